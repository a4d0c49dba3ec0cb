"""Weights and what belongs to them in one place: a zip archive or a folder, as Hugging Face and nanoGPT leave them.

Names inside are names only: nothing is written anywhere, and paths in an archive are cut to their last part.
"""

import io
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from interp_core.containers import MAX_BYTES, open_source
from interp_core.papers import MOST_BYTES, Papers, read_papers
from interp_core.pickles import CheckpointError

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")
PAPERS = ("config.json", "tokenizer.json", "vocab.json", "merges.txt", "meta.pkl", "input.txt")
NOT_WEIGHTS = ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth")
MOST_MEMBERS = 10_000


@dataclass(frozen=True, eq=False)
class Bundle:
    """The file of weights in a bundle, and its papers."""

    name: str
    weights: bytes | Path
    papers: Papers


def is_bundle(source: bytes | Path) -> bool:
    """Whether this is a folder with weights, or a zip archive that torch.save did not write."""
    if isinstance(source, Path) and source.is_dir():
        names = [path.name for path in source.iterdir()]
        return any(_is_weights(name) for name in names) and any(name in PAPERS for name in names)
    with open_source(source) as stream:
        if stream.read(4) != b"PK\x03\x04":
            return False
        try:
            with zipfile.ZipFile(stream) as archive:
                return not any(name.endswith("data.pkl") for name in archive.namelist())
        except Exception:  # a damaged archive: the reader of weights says so
            return False


def unpack(source: bytes | Path) -> Bundle:
    """The weights and papers of a bundle.

    Raises:
        CheckpointError: no weights, several, papers that cannot be read, or sizes that no honest bundle claims.
    """
    if isinstance(source, Path) and source.is_dir():
        paths = {path.name: path for path in sorted(source.iterdir()) if path.is_file()}
        name = _choose({name: path.stat().st_size for name, path in paths.items()})
        return Bundle(
            name,
            paths[name],
            _papers({n: p.stat().st_size for n, p in paths.items()}, name, lambda n: paths[n].read_bytes()),
        )
    with open_source(source) as stream:
        try:
            with zipfile.ZipFile(stream) as archive:
                return _unzip(archive)
        except CheckpointError:
            raise
        except Exception as error:  # a damaged archive can fail anywhere in its reader
            raise CheckpointError("This zip archive is cut off or damaged. Make or download it again.") from error


def _unzip(archive: zipfile.ZipFile) -> Bundle:
    members = archive.infolist()
    if len(members) > MOST_MEMBERS:
        raise CheckpointError(f"This archive has {len(members):,} members, more than the {MOST_MEMBERS:,} read here.")
    inside: dict[str, zipfile.ZipInfo] = {}
    for member in members:
        name = member.filename.replace("\\", "/").rsplit("/", 1)[-1]
        if name and not member.filename.startswith("__MACOSX/"):
            inside.setdefault(name, member)
    name = _choose(inside)
    if inside[name].file_size > MAX_BYTES:
        raise CheckpointError(
            f"{name} claims {inside[name].file_size:,} bytes unpacked, more than the {MAX_BYTES:,} read here."
        )
    papers = _papers({n: m.file_size for n, m in inside.items()}, name, lambda n: archive.read(inside[n]))
    return Bundle(name, archive.read(inside[name]), papers)


def _is_weights(name: str) -> bool:
    return name.endswith(WEIGHTS) and not name.endswith(".sae.safetensors") and name not in NOT_WEIGHTS


def _choose(names: Iterable[str]) -> str:
    """The one file of weights; of two formats of the same, safetensors."""
    found = [name for name in names if _is_weights(name)]
    if len(found) > 1 and any("-of-0" in name for name in found):
        raise CheckpointError(
            f"Its weights lie in {len(found)} shards: save the model in one file (max_shard_size='5GB')."
        )
    for name in ("model.safetensors", "pytorch_model.bin"):
        if name in found:
            return name
    if not found:
        raise CheckpointError(
            "This is a zip archive, but not one that torch.save wrote, and no weights lie in it: expected model.safetensors, "
            "pytorch_model.bin or a .pt file, with config.json and tokenizer.json beside it."
        )
    if len(found) > 1:
        raise CheckpointError(
            f"It holds several files of weights ({', '.join(sorted(found)[:4])}): keep the one that is meant."
        )
    return found[0]


def _papers(sizes: Mapping[str, int], weights: str, read: Callable[[str], bytes]) -> Papers:
    wanted = [name for name in sizes if name in PAPERS or name == weights.rsplit(".", 1)[0] + ".json"]
    for name in wanted:
        if sizes[name] > MOST_BYTES:
            raise CheckpointError(f"{name} claims {sizes[name]:,} bytes, more than the {MOST_BYTES:,} read here.")
    return read_papers({name: read(name) for name in wanted})


def pack(files: Mapping[str, bytes]) -> bytes:
    """Files as one archive, the inverse of `unpack`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()
