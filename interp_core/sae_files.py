"""Autoencoders in files: safetensors, with a card in the header that says what they were trained on and how good they are."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from jaxtyping import Float
from torch import Tensor

from interp_core import files
from interp_core.sae import Shape, SparseAutoencoder

FORMAT = "loupe-sae-1"
REPLICATION = "replication"
ENDING = ".sae.safetensors"
MAX_BYTES = 200_000_000
CARD = {"shape", "checkpoint", "site", "text", "recipe"}  # what a card must say


class SaeError(ValueError):
    """A file that cannot be used; says what was found and what was expected."""


@dataclass(frozen=True, eq=False)
class Trained:
    """An autoencoder and its papers."""

    name: str
    sha256: str
    sae: SparseAutoencoder
    card: Mapping[str, Any]
    replication: Float[Tensor, "feature"] | None = None  # cosine to the nearest feature of another seed


def save(
    path: Path, sae: SparseAutoencoder, papers: Mapping[str, Any], replication: Float[Tensor, "feature"] | None = None
) -> Trained:
    """Writes an autoencoder, at once or not at all, and reads it back.

    Args:
        path: where; its name ends with `ENDING`.
        sae: the weights.
        papers: what the card says beyond the shape: checkpoint (its hash), site, text, recipe, and how good it is.
        replication: of every feature in another seed, when that is known.
    """
    tensors = {name: tensor.detach().contiguous() for name, tensor in sae.state_dict().items()}
    if replication is not None:
        tensors[REPLICATION] = replication.contiguous()
    card = json.dumps({"shape": asdict(sae.shape), **papers}, ensure_ascii=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, safetensors.torch.save(tensors, {"format": FORMAT, "card": card}))
    return load(path)


def load(path: Path) -> Trained:
    """Reads a file that `save` wrote.

    Raises:
        SaeError: any other file.
    """
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise SaeError(f"{path.name} has {size:,} bytes, more than the {MAX_BYTES:,} that are read here.")
    data = path.read_bytes()
    shape, card = _papers(path)
    sae = SparseAutoencoder(shape)
    expected = {name: tuple(tensor.shape) for name, tensor in sae.state_dict().items()}
    tensors = safetensors.torch.load(data)
    replication = tensors.pop(REPLICATION, None)
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if found != expected:
        raise SaeError(
            f"{path.name} holds {_listed(found)}, expected {_listed(expected)}: its card is of another file."
        )
    if not all(tensor.isfinite().all() for tensor in tensors.values()):
        raise SaeError(f"{path.name} holds numbers that are not finite: train it again.")
    sae.load_state_dict(tensors)
    sae.requires_grad_(False)
    if replication is not None and replication.shape != (shape.features,):
        raise SaeError(
            f"{path.name} holds {list(replication.shape)} scores of replication for {shape.features} features."
        )
    return Trained(path.name.removesuffix(ENDING), hashlib.sha256(data).hexdigest(), sae, card, replication)


def find(folder: Path) -> list[Path]:
    """The autoencoders in a folder and in the folders of its runs, by name."""
    return sorted([*folder.glob(f"*{ENDING}"), *folder.glob(f"*/*{ENDING}")], key=lambda path: path.name)


def card_of(path: Path) -> Mapping[str, Any]:
    """The card alone, without reading the weights.

    Raises:
        SaeError: as `load`.
    """
    return _papers(path)[1]


def _papers(path: Path) -> tuple[Shape, Mapping[str, Any]]:
    """The shape and the card that the header tells, before anything is built from them."""
    wrong = f"{path.name} is no autoencoder of this app (a .safetensors file that its SAE page wrote)"
    try:
        with safetensors.safe_open(path, "pt") as opened:
            header = opened.metadata() or {}
            names = [name for name in opened.keys() if name != REPLICATION]  # noqa: SIM118
            held = sum(math.prod(opened.get_slice(name).get_shape()) for name in names)
    except (safetensors.SafetensorError, OSError) as error:
        raise SaeError(f"{wrong}: {error}.") from error
    if header.get("format") != FORMAT:
        raise SaeError(f"{wrong}: its header says {header.get('format')!r}, expected {FORMAT!r}.")
    try:
        card = json.loads(header.get("card", ""))
        shape = Shape(**card["shape"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SaeError(f"{wrong}: its card cannot be read ({error}).") from error
    missing = CARD - set(card)
    if missing:
        raise SaeError(f"{wrong}: its card does not say {', '.join(sorted(missing))}.")
    if 2 * shape.d * shape.features + shape.d + shape.features + 2 != held:
        raise SaeError(f"{wrong}: its card tells of {shape.features} features of width {shape.d}, its weights do not.")
    return shape, card


def _listed(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in sorted(shapes.items()))
