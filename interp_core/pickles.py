"""Pickles, gone through with stand-ins before anything real is made of them; none of their code ever runs.

Python's unpickler imports and calls whatever a pickle names. Here names stand for things that do nothing, and names that
weights do not need are refused; the few that only label a config (`GPTConfig`, `Namespace`) become records of plain values.
"""

import io
import pickle
import pickletools
import re
from collections import OrderedDict
from dataclasses import dataclass
from io import BufferedIOBase
from typing import IO, cast

import torch

HOW_TO_SAVE = "Save the weights alone: torch.save(model.state_dict(), 'model.pt')."
DAMAGED = (
    "This file begins like a checkpoint but cannot be read to its end: it is cut off or damaged. "
    "Copy or download it again, then upload it."
)
MAGIC_NUMBER = 0x1950A86A20F9469CFC6C  # torch's own, before version 1.6
REBUILDERS = {  # what a pickle of weights may call
    ("torch._utils", "_rebuild_tensor"),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch._utils", "_rebuild_tensor_v3"),
    ("torch._utils", "_rebuild_parameter"),
    ("torch", "Size"),
    ("torch", "device"),
}
CONFIGS = re.compile(r"\w*(Config|Args|Arguments|HParams|Namespace|CfgNode|AttributeDict)")  # names of classes, whole
MOST_MEMOS = 2**22  # places of a pickle's memory: Python's own unpickler makes room for the largest that is named


class CheckpointError(ValueError):
    """A file that is not read as a checkpoint; the message says what it is, what was expected, what to do."""


class Inert:
    """Stands in for a config's class: takes its values and does nothing with them."""

    def __new__(cls, *_: object, **__: object) -> "Inert":
        """Whatever it is called with."""
        return super().__new__(cls)

    def __init__(self, *_: object, **__: object) -> None: ...


@dataclass(frozen=True)
class Rehearsal:
    """What stands in for the last pickle's object, and which classes of configs were named."""

    found: object
    configs: frozenset[tuple[str, str]]


def rehearse(stream: BufferedIOBase, pickles: int, most: int) -> Rehearsal:
    """Goes through the next pickles of a stream.

    `weights_only` keeps code from running but lets a pickle call what allocates (`bytearray(10**12)`). Here the classes of
    storages cannot be called, and what storages claim is added up.

    Args:
        stream: at the first pickle.
        pickles: how many follow each other.
        most: numbers that their storages may claim in all.

    Raises:
        CheckpointError: a name that weights do not need, a size that is too large, or bytes that are no pickle.
    """
    found: object = None
    configs: set[tuple[str, str]] = set()
    for _ in range(pickles):
        reader = _Reader(io.BytesIO(_next_pickle(stream)), most)
        try:
            found = reader.load()
        except CheckpointError:
            raise
        except Exception as error:  # whatever hostile bytes can make the reader do, short of the above
            raise CheckpointError(DAMAGED) from error
        configs |= reader.configs
    return Rehearsal(found, frozenset(configs))


def read_plain(data: bytes) -> object:
    """The dictionaries, lists, words and numbers of a pickle that names nothing else: nanoGPT's `meta.pkl`.

    Raises:
        CheckpointError: it names anything that Python would import, or is no pickle.
    """
    try:
        return _Plain(io.BytesIO(_next_pickle(io.BytesIO(data)))).load()
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(DAMAGED) from error


def _next_pickle(stream: BufferedIOBase) -> bytes:
    """The bytes of the next pickle, once its instructions were seen to ask for no absurd room."""
    start = stream.tell()
    try:
        for opcode, argument, _ in pickletools.genops(cast(IO[bytes], stream)):
            if "PUT" in opcode.name and int(argument or 0) > MOST_MEMOS:
                raise CheckpointError(
                    f"This file's pickle asks for {argument:,} places of memory, which no weights need."
                )
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(DAMAGED) from error
    end = stream.tell()
    stream.seek(start)
    return stream.read(end - start)


class _Reader(pickle.Unpickler):
    def __init__(self, stream: BufferedIOBase, most: int) -> None:
        super().__init__(stream)
        self.most = most
        self.claimed: dict[object, int] = {}  # numbers in each storage
        self.configs: set[tuple[str, str]] = set()

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
        if CONFIGS.fullmatch(name):
            self.configs.add((module, name))
            return Inert
        raise CheckpointError(
            f"This file holds Python objects ({module}.{name}), which could run code when opened, so it was not opened. "
            + HOW_TO_SAVE
        )

    def persistent_load(self, pid: tuple) -> None:
        self.claimed[pid[2]] = int(pid[4])
        if sum(self.claimed.values()) > self.most:
            raise CheckpointError(
                f"This file claims sizes of {sum(self.claimed.values()):,} in all, more than is read here."
            )


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        raise CheckpointError(
            f"This pickle names {module}.{name}, which could run code when opened, so it was not opened. Expected plain "
            "dictionaries: the stoi and itos of nanoGPT's meta.pkl."
        )
