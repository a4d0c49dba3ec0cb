"""Bytes of an unknown file to named tensors, safely.

A file from a stranger is hostile until proven otherwise: it is recognised by its content, never by its name, its claims
about sizes are checked before anything is allocated, and no pickled code runs (`weights_only=True`, never without).
"""

import io
import pickle
import pickletools
import zipfile
from collections.abc import Mapping

import safetensors
import safetensors.torch
import torch
from torch import Tensor

MAX_BYTES = 2**30  # of a file, and of the tensors in it once unpacked
HOW_TO_SAVE = "Save the weights alone: torch.save(model.state_dict(), 'model.pt')."

WRAPPERS = ("model", "state_dict", "model_state_dict")  # keys under which training scripts put the weights
PREFIXES = ("module.", "_orig_mod.", "model.")  # put before every key by DDP, torch.compile, Lightning

MAGIC_NUMBER = 0x1950A86A20F9469CFC6C  # torch's own, before version 1.6
MAGIC = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF", "a PDF document"),
    (b"GGUF", "a GGUF file (llama.cpp)"),
    (b"version https://git-lfs", "a Git LFS pointer: a note of where the weights lie, not the weights"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x93NUMPY", "a NumPy array"),
)


class CheckpointError(ValueError):
    """A file that is not read as a checkpoint; the message says what it is, what was expected, what to do."""


def read_tensors(data: bytes) -> dict[str, Tensor]:
    """The named tensors of a `.pt` or `.safetensors` file, without wrappers around the dictionary or before the keys.

    Raises:
        CheckpointError: anything else, named in one sentence.
    """
    if not data:
        raise CheckpointError("This file is empty, expected a checkpoint. " + HOW_TO_SAVE)
    if len(data) > MAX_BYTES:
        raise CheckpointError(f"This file has {len(data):,} bytes, more than the {MAX_BYTES:,} that are read here.")
    if _is_safetensors(data):
        return _strip(_bounded(_read_safetensors(data)))
    if data[:4] == b"PK\x03\x04":
        _check_zip(data)
    elif data[:1] == b"\x80":
        _check_pickle(data)
    else:
        raise CheckpointError(f"This is {_what(data)}, not a checkpoint. {HOW_TO_SAVE}")
    return _strip(_bounded(_unwrap(_load(data))))


def _load(data: bytes) -> object:
    try:
        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(_blocked(data)) from error
    except Exception as error:  # a damaged file can fail anywhere in torch's reader, and none of it may reach the page
        raise CheckpointError(
            "This file begins like a checkpoint but cannot be read to its end: it is cut off or damaged. "
            "Copy or download it again, then upload it."
        ) from error


def _blocked(data: bytes) -> str:
    """Why safe loading refused, with the names of what it met."""
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(data))
    except Exception:  # files from before torch 1.6, plain pickles: there is nothing to list, and the message says so
        names = []
    what = f"Python objects ({', '.join(sorted(names)[:3])})" if names else "Python objects, not weights"
    return f"This file holds {what}, which could run code when opened, so it was not opened. {HOW_TO_SAVE}"


def _unwrap(loaded: object) -> Mapping[str, Tensor]:
    if isinstance(loaded, Mapping):
        for key in WRAPPERS:
            if isinstance(loaded.get(key), Mapping):
                loaded = loaded[key]
                break
    if not isinstance(loaded, Mapping):
        raise CheckpointError(f"This file holds a {type(loaded).__name__}, not a dictionary of weights. {HOW_TO_SAVE}")
    odd = [f"{key} ({type(value).__name__})" for key, value in loaded.items() if not isinstance(value, Tensor)]
    if odd or not loaded:
        found = f"also holds {odd[0]}" if odd else "holds nothing"
        raise CheckpointError(f"This file {found}, expected tensors with names only. {HOW_TO_SAVE}")
    return {str(key): value for key, value in loaded.items()}


def _bounded(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Refuses tensors whose shapes claim more than a file may hold: a view can pretend to any size."""
    claimed = sum(tensor.numel() * 4 for tensor in tensors.values())
    if claimed > MAX_BYTES:
        raise CheckpointError(
            f"The tensors in this file claim {claimed:,} bytes, more than the {MAX_BYTES:,} read here."
        )
    return tensors


def _strip(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    while prefix := next((p for p in PREFIXES if all(key.startswith(p) for key in tensors)), None):
        tensors = {key.removeprefix(prefix): value for key, value in tensors.items()}
    return dict(tensors)


def _is_safetensors(data: bytes) -> bool:
    """Eight bytes of length, then the JSON header."""
    return len(data) > 9 and data[8:9] == b"{" and int.from_bytes(data[:8], "little") < 10**8


def _read_safetensors(data: bytes) -> Mapping[str, Tensor]:
    try:
        return safetensors.torch.load(data)
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"This file begins like safetensors but cannot be read ({error}): it is cut off or damaged. Copy it again."
        ) from error


def _check_zip(data: bytes) -> None:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
    except zipfile.BadZipFile as error:
        raise CheckpointError(
            "This file begins like a checkpoint, but its end is missing: it is cut off. Copy or download it again."
        ) from error
    names = [member.filename for member in members]
    if not any(name.endswith("data.pkl") for name in names):
        raise CheckpointError(f"This is a zip archive, but not one that torch.save wrote. {HOW_TO_SAVE}")
    if any(name.endswith("constants.pkl") for name in names):
        raise CheckpointError(f"This is a TorchScript program, which is code as well as weights. {HOW_TO_SAVE}")
    unpacked = sum(member.file_size for member in members)
    if unpacked > max(MAX_BYTES, len(data)):
        raise CheckpointError(f"This file claims {unpacked:,} bytes unpacked, more than the {MAX_BYTES:,} read here.")


def _check_pickle(data: bytes) -> None:
    """Only what torch wrote before version 1.6 goes on, and only if the sizes that it names are small.

    Such a file is four pickles (magic number, protocol, system, tensors) before the numbers themselves.
    """
    stream, integers = io.BytesIO(data), []
    try:
        for _ in range(4):
            for code, argument, _ in pickletools.genops(stream):
                if isinstance(argument, int) and ("INT" in code.name or "LONG" in code.name):
                    integers.append(argument)
            if integers[:1] != [MAGIC_NUMBER]:
                raise CheckpointError(f"This file is a pickle of Python objects, which could run code. {HOW_TO_SAVE}")
    except CheckpointError:
        raise
    except Exception:  # not a pickle to its end: torch.load meets the same, and the caller says so
        return
    claimed = sum(abs(integer) for integer in integers[1:])
    if claimed > MAX_BYTES:
        raise CheckpointError(f"This file claims sizes of {claimed:,} in all, more than is read here.")


def _what(data: bytes) -> str:
    """What a file that is no checkpoint seems to be."""
    for magic, name in MAGIC:
        if data.startswith(magic):
            return name
    head = data[:4096]
    try:
        words = head.decode("utf-8", errors="strict" if len(head) < 4096 else "ignore").lstrip()
    except UnicodeDecodeError:
        return "a binary file of a kind not known here"
    if "\0" in words:
        return "a binary file of a kind not known here"
    if words.lower().startswith(("<!doctype", "<html")):
        return "a web page (the download saved the page, not the file)"
    return "JSON text" if words.startswith(("{", "[")) else "plain text"
