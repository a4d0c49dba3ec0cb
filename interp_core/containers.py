"""Bytes of an unknown file to named tensors, safely.

A file from a stranger is hostile until proven otherwise: it is recognised by its content, never by its name, its claims
about sizes are checked before anything is allocated, and no pickled code runs (`weights_only=True`, never without).
"""

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Mapping

import safetensors
import safetensors.torch
import torch
from torch import Tensor

MAX_BYTES = 2**30  # of a file, and of the tensors in it once unpacked
PICKLE_BYTES = 2**25  # of the names and shapes of the tensors
HOW_TO_SAVE = "Save the weights alone: torch.save(model.state_dict(), 'model.pt')."

WRAPPERS = ("model", "state_dict", "model_state_dict")  # keys under which training scripts put the weights
PREFIXES = ("module.", "_orig_mod.", "model.")  # put before every key by DDP, torch.compile, Lightning

DAMAGED = (
    "This file begins like a checkpoint but cannot be read to its end: it is cut off or damaged. "
    "Copy or download it again, then upload it."
)
REBUILDERS = {  # what a pickle of weights may call
    ("torch._utils", "_rebuild_tensor"),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch._utils", "_rebuild_tensor_v3"),
    ("torch._utils", "_rebuild_parameter"),
    ("torch", "Size"),
    ("torch", "device"),
}
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
        raise CheckpointError(f"This file holds Python objects, which could run code. {HOW_TO_SAVE}") from error
    except Exception as error:  # a damaged file can fail anywhere in torch's reader, and none of it may reach the page
        raise CheckpointError(DAMAGED) from error


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
    unplain = [key for key, value in loaded.items() if not _is_plain(value)]
    if unplain:
        raise CheckpointError(f"{unplain[0]} is sparse, nested, quantised or without data, expected a plain tensor.")
    return {str(key): value for key, value in loaded.items()}


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
            sizes = {member.filename: member.file_size for member in archive.infolist()}
            _check_members(sizes, len(data))
            pickled = archive.read(next(name for name in sizes if name.endswith("data.pkl")))
    except CheckpointError:
        raise
    except zipfile.BadZipFile as error:
        raise CheckpointError(
            "This file begins like a checkpoint, but its end is missing: it is cut off. Copy or download it again."
        ) from error
    except Exception as error:  # a damaged archive can fail anywhere in its reader
        raise CheckpointError(DAMAGED) from error
    _rehearse(io.BytesIO(pickled), pickles=1)


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


def _check_pickle(data: bytes) -> None:
    """Only what torch wrote before version 1.6 goes on: pickles of a magic number, protocol, system, and the tensors."""
    stream = io.BytesIO(data)
    if _rehearse(stream, pickles=1) != MAGIC_NUMBER:
        raise CheckpointError(f"This file is a pickle of Python objects, which could run code. {HOW_TO_SAVE}")
    _rehearse(stream, pickles=3)


class _Rehearsal(pickle.Unpickler):
    """Goes through a pickle with stand-ins for everything that it names, before torch does so with the real things.

    `weights_only` keeps code from running but lets a pickle call what allocates (`bytearray(10**12)`). Here a name outside
    the few that weights need is refused, the classes of storages cannot be called, and what storages claim is added up.
    """

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream)
        self.claimed: dict[object, int] = {}  # numbers in each storage

    def find_class(self, module: str, name: str) -> object:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) in REBUILDERS:
            return lambda *_: None
        if module in ("torch", "torch.storage") and (
            name.endswith("Storage") or isinstance(getattr(torch, name, 0), torch.dtype)
        ):
            return object()
        if module.split(".")[0] == "torch":
            raise CheckpointError(f"This file holds {module}.{name}, which is no plain tensor. {HOW_TO_SAVE}")
        raise CheckpointError(
            f"This file holds Python objects ({module}.{name}), which could run code when opened, so it was not opened. "
            + HOW_TO_SAVE
        )

    def persistent_load(self, pid: tuple) -> None:
        self.claimed[pid[2]] = int(pid[4])
        if sum(self.claimed.values()) > MAX_BYTES // 4:
            raise CheckpointError(
                f"This file claims sizes of {sum(self.claimed.values()):,} in all, more than is read here."
            )


def _rehearse(stream: io.BytesIO, pickles: int) -> object:
    """Goes through the next pickles of a stream and returns what stands in for the last.

    Raises:
        CheckpointError: a name that weights do not need, a size that is too large, or bytes that are no pickle.
    """
    found: object = None
    for _ in range(pickles):
        try:
            found = _Rehearsal(stream).load()
        except CheckpointError:
            raise
        except Exception as error:  # whatever hostile bytes can make the reader do, short of the above
            raise CheckpointError(DAMAGED) from error
    return found


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
