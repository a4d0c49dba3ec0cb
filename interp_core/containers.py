"""Bytes of an unknown file to named tensors, safely.

A file from a stranger is hostile until proven otherwise: it is recognised by its content, never by its name, its claims
about sizes are checked before anything is allocated, and no pickled code runs (`weights_only=True`, never without). What
lies on the disk is mapped, not copied, so that an optimizer's state beside the weights costs no memory.
"""

import io
import pickle
import threading
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from interp_core.pickles import DAMAGED, HOW_TO_SAVE, MAGIC_NUMBER, CheckpointError, Inert, rehearse

__all__ = ["MAX_BYTES", "CheckpointError", "Contents", "open_source", "read_contents", "read_tensors", "what"]

MAX_BYTES = 2**30  # of the weights once unpacked, and of a file that comes through the browser
MAX_FILE = 2**32  # of a file on the disk: an optimizer's state may lie beside the weights
PICKLE_BYTES = 2**25  # of the names and shapes of the tensors

WRAPPERS = (
    "model",
    "state_dict",
    "model_state_dict",
    "model_state",
    "weights",
    "net",
    "module",
)  # where scripts put them
SETTINGS = ("model_args", "model_config", "hyper_parameters", "hparams", "config", "cfg", "args")  # and their options
VOCABULARIES = ("itos", "stoi", "chars", "vocab", "vocabulary")  # and the vocabulary
PREFIXES = ("module.", "_orig_mod.", "model.", "net.")  # put before every key by DDP, torch.compile, Lightning

MAGIC = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF", "a PDF document"),
    (b"GGUF", "a GGUF file (llama.cpp)"),
    (b"version https://git-lfs", "a Git LFS pointer: a note of where the weights lie, not the weights"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x89HDF", "an HDF5 file (Keras)"),
    ((20240326).to_bytes(4, "little"), "a llm.c file (load it there and export it to Hugging Face)"),
)
_LOADING = threading.Lock()  # the stand-ins that torch may use are one list for all threads


@dataclass(frozen=True, eq=False)
class Contents:
    """What a file holds: tensors by name, and what its author left beside them."""

    tensors: dict[str, Tensor]
    settings: Mapping[str, object] = field(default_factory=dict)  # plain numbers and words of a config
    vocabulary: object = None  # as it was stored: a list, a string, a dictionary
    beside: frozenset[str] = frozenset()  # names of everything that lay beside the weights


def read_tensors(source: bytes | Path) -> dict[str, Tensor]:
    """The named tensors of a file, without wrappers around the dictionary or before the keys.

    Raises:
        CheckpointError: as `read_contents`.
    """
    return read_contents(source).tensors


def read_contents(source: bytes | Path) -> Contents:
    """The named tensors of a `.pt`, `.ckpt`, `.bin` or `.safetensors` file, and the config saved with them.

    Raises:
        CheckpointError: anything else, named in one sentence.
    """
    with open_source(source) as stream:
        size, head = stream.seek(0, io.SEEK_END), _head(stream)
        most = MAX_BYTES if isinstance(source, bytes) else MAX_FILE
        if not size:
            raise CheckpointError("This file is empty, expected a checkpoint. " + HOW_TO_SAVE)
        if size > most:
            raise CheckpointError(f"This file has {size:,} bytes, more than the {most:,} that are read here.")
        if _is_safetensors(head, size):
            return Contents(_strip(_bounded(_read_safetensors(source))))
        if head[:4] == b"PK\x03\x04":
            named = _check_zip(stream, size)
        elif head[:1] == b"\x80":
            named = _check_pickle(stream)
        else:
            raise CheckpointError(f"This is {what(head)}, not a checkpoint. {HOW_TO_SAVE}")
    return _unwrap(_load(source, head[:1] != b"\x80", named))


def open_source(source: bytes | Path) -> BufferedIOBase:
    """A stream of a file's bytes, wherever they are."""
    return io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")


def _head(stream: BufferedIOBase) -> bytes:
    stream.seek(0)
    head = stream.read(4096)
    stream.seek(0)
    return head


def _load(source: bytes | Path, mappable: bool, named: frozenset[tuple[str, str]]) -> object:
    """What torch reads; classes of configs that the pickle names are replaced by records that do nothing."""
    allowed: list[Any] = [(Inert, f"{module}.{name}") for module, name in named]
    given = io.BytesIO(source) if isinstance(source, bytes) else source
    try:
        with _LOADING, torch.serialization.safe_globals(allowed), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old formats
            on_disk = mappable and not isinstance(source, bytes)
            return torch.load(given, map_location="cpu", weights_only=True, mmap=on_disk or None)
    except pickle.UnpicklingError as error:
        raise CheckpointError(f"This file holds Python objects, which could run code. {HOW_TO_SAVE}") from error
    except Exception as error:  # a damaged file can fail anywhere in torch's reader, and none of it may reach the page
        raise CheckpointError(DAMAGED) from error


def _unwrap(loaded: object) -> Contents:
    if not isinstance(loaded, Mapping):
        raise CheckpointError(f"This file holds a {_kind(loaded)}, not a dictionary of weights. {HOW_TO_SAVE}")
    around: Mapping = {}
    weights = _weights_in(loaded)
    if weights is not loaded:
        around = loaded
    odd = [f"{key} ({_kind(value)})" for key, value in weights.items() if not isinstance(value, Tensor)]
    if odd or not weights:
        found = f"also holds {odd[0]}" if odd else "holds nothing"
        raise CheckpointError(f"This file {found}, expected tensors with names only. {HOW_TO_SAVE}")
    unplain = [key for key, value in weights.items() if not _is_plain(value)]
    if unplain:
        raise CheckpointError(f"{unplain[0]} is sparse, nested, quantised or without data, expected a plain tensor.")
    tensors = _strip(_bounded({str(key): value for key, value in weights.items()}))
    vocabulary = next((around[key] for key in VOCABULARIES if key in around), None)
    return Contents(tensors, _settings(around), vocabulary, frozenset(str(key) for key in around))


def _weights_in(loaded: Mapping) -> Mapping:
    """The dictionary of weights itself, or the one entry that is."""
    for key in WRAPPERS:
        if isinstance(loaded.get(key), Mapping):
            return loaded[key]
    inner = [value for value in loaded.values() if isinstance(value, Mapping) and value]
    inner = [value for value in inner if all(isinstance(part, Tensor) for part in value.values())]
    return inner[0] if len(inner) == 1 else loaded


def _settings(around: Mapping) -> dict[str, object]:
    """Plain numbers and words of the configs beside the weights; what an earlier one says is not overruled."""
    found: dict[str, object] = {}
    for key in SETTINGS:
        for level in _levels(around.get(key)):
            for name, value in level.items():
                if isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) < 200):
                    found.setdefault(str(name), value)
    return found


def _levels(config: object) -> list[Mapping]:
    """A config and what is nested in it, one level deep."""
    plain = vars(config) if isinstance(config, Inert) else config
    if not isinstance(plain, Mapping):
        return []
    inner = [vars(value) if isinstance(value, Inert) else value for value in plain.values()]
    return [plain, *(value for value in inner if isinstance(value, Mapping))]


def _kind(thing: object) -> str:
    return "Python object" if isinstance(thing, Inert) else type(thing).__name__


def _is_plain(tensor: Tensor) -> bool:
    return (
        tensor.layout == torch.strided
        and not tensor.is_nested
        and not tensor.is_quantized
        and tensor.device.type == "cpu"
    )


def _bounded(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Refuses tensors whose shapes claim more than a file may hold: a view can pretend to any size."""
    claimed = sum(tensor.numel() * 4 for tensor in tensors.values())
    if claimed > MAX_BYTES:
        raise CheckpointError(
            f"The tensors in this file claim {claimed:,} bytes, more than the {MAX_BYTES:,} read here."
        )
    return tensors


def _strip(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The keys as the model's own code has them: wrappers leave a prefix, torch.compile a part anywhere."""
    found = {key.replace("._orig_mod.", "."): value for key, value in tensors.items()}
    while prefix := next((p for p in PREFIXES if all(key.startswith(p) for key in found)), None):
        found = {key.removeprefix(prefix): value for key, value in found.items()}
    if len(found) < len(tensors):
        raise CheckpointError("Two weights in this file have the same name once torch.compile's prefix is taken off.")
    return found


def _is_safetensors(head: bytes, size: int) -> bool:
    """Eight bytes of length, then the JSON header."""
    return size > 8 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= size


def _read_safetensors(source: bytes | Path) -> Mapping[str, Tensor]:
    try:
        return safetensors.torch.load(source) if isinstance(source, bytes) else safetensors.torch.load_file(source)
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"This file begins like safetensors but cannot be read ({error}): it is cut off or damaged. Copy it again."
        ) from error


def _check_zip(stream: BufferedIOBase, size: int) -> frozenset[tuple[str, str]]:
    try:
        with zipfile.ZipFile(stream) as archive:
            sizes = {member.filename: member.file_size for member in archive.infolist()}
            _check_members(sizes, size)
            pickled = archive.read(next(name for name in sizes if name.endswith("data.pkl")))
    except CheckpointError:
        raise
    except zipfile.BadZipFile as error:
        raise CheckpointError(
            "This file begins like a checkpoint, but its end is missing: it is cut off. Copy or download it again."
        ) from error
    except Exception as error:  # a damaged archive can fail anywhere in its reader
        raise CheckpointError(DAMAGED) from error
    return rehearse(io.BytesIO(pickled), pickles=1, most=_numbers(size)).configs


def _numbers(size: int) -> int:
    """How many numbers a file's storages may claim: what is read at most, or what an honest file of that size holds."""
    return max(MAX_BYTES // 4, size)


def _check_members(sizes: Mapping[str, int], length: int) -> None:
    """Refuses archives of another kind, and sizes that no honest one claims."""
    unpacked = sum(sizes.values())
    if unpacked > max(MAX_BYTES, length):
        raise CheckpointError(f"This file claims {unpacked:,} bytes unpacked, more than the {MAX_BYTES:,} read here.")
    named = [size for name, size in sizes.items() if name.endswith("data.pkl")]
    if not named:
        raise CheckpointError(f"This is a zip archive, but not one that torch.save wrote. {HOW_TO_SAVE}")
    if max(named) > PICKLE_BYTES:
        raise CheckpointError(
            f"This file claims {max(named):,} bytes of names, more than the {PICKLE_BYTES:,} read here."
        )
    if any(name.endswith("constants.pkl") for name in sizes):
        raise CheckpointError(f"This is a TorchScript program, which is code as well as weights. {HOW_TO_SAVE}")


def _check_pickle(stream: BufferedIOBase) -> frozenset[tuple[str, str]]:
    """Only what torch wrote before version 1.6 goes on: pickles of a magic number, protocol, system, and the tensors."""
    size = stream.seek(0, io.SEEK_END)
    stream.seek(0)
    if rehearse(stream, pickles=1, most=_numbers(size)).found != MAGIC_NUMBER:
        raise CheckpointError(f"This file is a pickle of Python objects, which could run code. {HOW_TO_SAVE}")
    return rehearse(stream, pickles=3, most=_numbers(size)).configs


def what(head: bytes) -> str:
    """What a file that is no checkpoint seems to be, from its first 4096 bytes."""
    for magic, name in MAGIC:
        if head.startswith(magic):
            return name
    try:
        words = head.decode("utf-8", errors="strict" if len(head) < 4096 else "ignore").lstrip()
    except UnicodeDecodeError:
        return "a binary file of a kind not known here"
    if "\0" in words:
        return "a binary file of a kind not known here"
    if words.lower().startswith(("<!doctype", "<html")):
        return "a web page (the download saved the page, not the file)"
    return "JSON text" if words.startswith(("{", "[")) else "plain text"
