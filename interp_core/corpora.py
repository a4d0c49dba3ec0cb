"""Named texts, their split into training and validation, and the windows that every measurement reads.

A window has `context` + 1 tokens: the model reads all but the last and is asked for all but the first. Windows are cut
at multiples of their length, so two of them never share a character, and intervals over windows are honest.
"""

import hashlib
import importlib.util
import os
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import pooch
import torch
from jaxtyping import Int
from torch import Tensor

from interp_core.tokenizers import Tokenizer

SHAKESPEARE_URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
SHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
SHAKESPEARE_FILE = "tinyshakespeare.txt"
TRAIN_SHARE = 0.9
COURSE_PROTOCOL = (
    "mean over 60 batches of 64 windows at random places of the validation part, seed 0, as the course measures"
)
SECONDS_TO_FETCH = 15
INVISIBLE = (
    "Cc",
    "Cf",
    "Cn",
    "Co",
    "Cs",
    "Zl",
    "Zp",
    "Zs",
)  # categories of Unicode: control, format, spaces of odd width
SELDOM = 5  # occurrences, below which nothing is learned of a character

# Modules of the standard library that hold much code and little else: the text `python-source`.
SOURCE_MODULES = (
    "argparse", "ast", "asyncio.base_events", "collections", "configparser", "csv", "dataclasses", "difflib", "doctest",
    "enum", "functools", "heapq", "http.client", "inspect", "ipaddress", "json.decoder", "logging", "mailbox", "optparse",
    "pathlib", "pickle", "random", "shutil", "statistics", "subprocess", "tarfile", "textwrap", "threading", "tokenize",
    "traceback", "typing", "unittest.mock", "urllib.parse", "urllib.request", "uuid", "zipfile",
)  # fmt: skip

OWN_SAMPLES = "own-samples"  # windows drawn from a checkpoint itself; see samples.py
NAMES = ("tiny-shakespeare", "python-docs", "python-source")


class TextUnavailable(RuntimeError):
    """A text that is neither on this machine nor to be fetched; says what to do."""


@dataclass(frozen=True, eq=False)
class Text:
    """A text as token numbers, split by position."""

    name: str
    sha256: str  # of the text itself, or of the token numbers where there is no text
    train: Int[Tensor, "train_pos"]
    validation: Int[Tensor, "validation_pos"]
    dropped: int = 0  # characters left out because the vocabulary has not got them

    def __len__(self) -> int:
        return len(self.train) + len(self.validation)


def is_local(name: str) -> bool:
    """Whether a named text can be read without a network."""
    return name in NAMES and (name != "tiny-shakespeare" or _shakespeare_path() is not None)


def read(name: str) -> str:
    """The characters of a named text; fetches `tiny-shakespeare` once if it is not on this machine.

    Raises:
        ValueError: an unknown name.
        TextUnavailable: not local, and fetching failed or brought another file.
    """
    if name == "tiny-shakespeare":
        return _read_shakespeare()
    if name == "python-docs":
        from pydoc_data.topics import topics

        return "\n".join(topics[key] for key in sorted(topics))
    if name == "python-source":
        return "\n".join(_source(module) for module in SOURCE_MODULES)
    raise ValueError(f"no text is named {name!r}; expected one of {', '.join(NAMES)}")


def read_file(path: Path) -> str:
    """The characters of a text file, line ends as they are.

    Raises:
        ValueError: not UTF-8.
    """
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} is not text in UTF-8: save it as that.") from error


def load(name: str, tokenizer: Tokenizer, unknown: Literal["error", "drop"] = "error") -> Text:
    """A named text, encoded and split 90/10 by position.

    Raises:
        UnknownCharacters: the text has characters that the tokenizer has not, and `unknown` is "error".
        ValueError, TextUnavailable: as `read`.
    """
    return encode(name, read(name), tokenizer, unknown)


def encode(name: str, characters: str, tokenizer: Tokenizer, unknown: Literal["error", "drop"] = "error") -> Text:
    """Any text, encoded and split 90/10 by position: an upload, a paste.

    Raises:
        UnknownCharacters: as `load`.
    """
    tokens = tokenizer.encode(characters, unknown)
    digest = hashlib.sha256(characters.encode("utf-8", "surrogatepass")).hexdigest()
    cut = int(TRAIN_SHARE * len(tokens))
    return Text(name, digest, tokens[:cut], tokens[cut:], tokenizer.unread(characters) if unknown == "drop" else 0)


def odd_characters(characters: str) -> pd.DataFrame:
    """Characters of a text that are probably not meant: invisible ones, and those that occur too seldom to be learned.

    Columns: character (as Python writes it), name, count, why.
    """
    rows = []
    for character, count in sorted(Counter(characters).items()):
        why = _oddity(character, count)
        if why:
            rows.append((ascii(character)[1:-1], unicodedata.name(character, "no name"), count, why))
    return pd.DataFrame(rows, columns=["character", "name", "count", "why"])


def repeated_share(characters: str, stretch: int = 32, count: int = 64) -> float:
    """Share of stretches of the held-out tenth that stand word for word in the training part, too.

    In natural text next to none does. Where many do, the validation loss measures memory.
    """
    cut = int(TRAIN_SHARE * len(characters))
    train, starts = characters[:cut], np.linspace(cut, len(characters) - stretch, count).astype(int)
    return sum(characters[start : start + stretch] in train for start in starts) / count


def _oddity(character: str, count: int) -> str:
    if character == "\ufffd":
        return "stands for bytes that could not be read: was the file saved as UTF-8?"
    if character == "\r":
        return "Windows line ends: each line break is two characters"
    if character not in "\n\t " and unicodedata.category(character) in INVISIBLE:
        return "cannot be seen"
    return f"occurs {count} times only" if count < SELDOM else ""


def from_windows(name: str, windows: Int[Tensor, "window pos"], train_share: float = 0.5) -> Text:
    """A text made of independent windows laid end to end, none of them cut by the split: samples, synthetic sequences."""
    cut = int(train_share * len(windows))
    digest = hashlib.sha256(windows.numpy().tobytes()).hexdigest()
    return Text(name, digest, windows[:cut].flatten(), windows[cut:].flatten())


def count_windows(tokens: Int[Tensor, "pos"], context: int) -> int:
    """How many disjoint windows of `context` + 1 tokens a text holds."""
    return len(tokens) // (context + 1)


def windows(tokens: Int[Tensor, "pos"], context: int, count: int, seed: int) -> Int[Tensor, "window pos_plus_1"]:
    """`count` disjoint windows, drawn without replacement, in the order of the text.

    Raises:
        ValueError: the text does not hold that many.
    """
    return windows_at(tokens, window_offsets(tokens, context, count, seed).tolist(), context)


def window_offsets(tokens: Int[Tensor, "pos"], context: int, count: int, seed: int) -> Int[Tensor, "window"]:
    """Where the windows of `windows` begin.

    Raises:
        ValueError: as `windows`.
    """
    available = count_windows(tokens, context)
    if not 1 <= count <= available:
        raise ValueError(
            f"{count} windows of {context + 1} tokens were asked for, but this text of {len(tokens):,} tokens holds "
            f"{available} that do not overlap: ask for fewer windows, or choose a longer text"
        )
    chosen = torch.randperm(available, generator=torch.Generator().manual_seed(seed))[:count].sort().values
    return chosen * (context + 1)


def all_windows(text: Text, context: int, before: int = 0) -> Int[Tensor, "window before_pos_plus_1"]:
    """All disjoint windows of the validation part, each with the `before` tokens in front of it, for models that count them.

    The targets are the same whatever `before` is: the last `context` tokens of each row.
    """
    tokens = torch.cat([text.train, text.validation])
    starts = len(text.train) + torch.arange(count_windows(text.validation, context)) * (context + 1)
    return windows_at(tokens, (starts - before).tolist(), context + before)


def windows_at(tokens: Int[Tensor, "pos"], offsets: Sequence[int], context: int) -> Int[Tensor, "window pos_plus_1"]:
    """The windows that begin at `offsets`; they may overlap, so they are for training and for stated protocols only."""
    return tokens[torch.tensor(offsets)[:, None] + torch.arange(context + 1)]


def course_windows(
    tokens: Int[Tensor, "pos"], context: int, batches: int = 60, batch: int = 64, seed: int = 0
) -> Int[Tensor, "window pos_plus_1"]:
    """The windows on which the course's notebook measures validation loss.

    They overlap, so a mean over them can be compared with the course's figures, but no interval comes from them.
    """
    generator = torch.Generator().manual_seed(seed)
    places = len(tokens) - context - 1
    offsets = torch.cat([torch.randint(places, (batch,), generator=generator) for _ in range(batches)])
    return windows_at(tokens, offsets.tolist(), context)


def _read_shakespeare() -> str:
    path = _shakespeare_path()
    if path is None:
        path = _fetch_shakespeare()
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if digest != SHAKESPEARE_SHA256:
        raise TextUnavailable(
            f"{path.name} is another file than tiny Shakespeare (SHA-256 {digest[:8]}…, expected "
            f"{SHAKESPEARE_SHA256[:8]}…): replace it by the course's input.txt of 1,115,394 characters"
        )
    return data.decode("utf-8")


def _shakespeare_path() -> Path | None:
    """Where the text lies on this machine, if it does."""
    given = os.environ.get("LOUPE_DATA")
    candidates = [Path(given) / SHAKESPEARE_FILE] if given else []
    candidates.append(Path(pooch.os_cache("loupe")) / SHAKESPEARE_FILE)
    return next((path for path in candidates if path.is_file()), None)


def _fetch_shakespeare() -> Path:
    try:
        fetched = pooch.retrieve(
            SHAKESPEARE_URL,
            known_hash=f"sha256:{SHAKESPEARE_SHA256}",
            fname=SHAKESPEARE_FILE,
            path=pooch.os_cache("loupe"),
            downloader=pooch.HTTPDownloader(timeout=SECONDS_TO_FETCH),
        )
    except (OSError, ValueError) as error:  # requests' errors are OSErrors; pooch raises ValueError on another hash
        raise TextUnavailable(
            "tiny Shakespeare could not be fetched (no network?): put the course's input.txt into a folder as "
            f"{SHAKESPEARE_FILE} and set LOUPE_DATA to that folder"
        ) from error
    return Path(fetched)


def _source(module: str) -> str:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return ""
    return Path(spec.origin).read_text(encoding="utf-8")
