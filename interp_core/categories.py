"""Categories of a text: a named one or the visitor's own regular expression says for every token whether it belongs.

A category is a pattern, and a token belongs when a match covers any of its characters; so characters and subword tokens
are labelled alike. Labels are found on the whole text at once, so that a window's edge cuts no name in two.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import regex
from jaxtyping import Bool, Int
from numpy import ndarray

SECONDS = 2.0  # that a pattern may take on a whole text
LONGEST = 500  # characters of a pattern


class PatternError(ValueError):
    """A regular expression that cannot be used; says what is wrong with it."""


@dataclass(frozen=True)
class Category:
    """A kind of token, by a pattern of the `regex` library in multi-line mode."""

    name: str
    pattern: str
    words: str  # what it is, for people


LIBRARY: tuple[Category, ...] = (
    Category("vowel", r"[aeiouAEIOU]", "a, e, i, o, u"),
    Category("capital", r"\p{Lu}", "a capital letter"),
    Category("whitespace", r"\s", "a space or a line break"),
    Category("punctuation", r"\p{P}", "a full stop, a comma, a quotation mark …"),
    Category("digit", r"\p{Nd}", "0 to 9"),
    Category("first letter of a word", r"(?<![\p{L}'’])\p{L}", "a letter with none before it"),
    Category(
        "last letter of a word", r"\p{L}(?!['’]?\p{L})", "a letter with none after it: to be known before it is read"
    ),
    Category(
        "inside a speaker's name", r"(?<=\n\n|\A)\p{Lu}[^\n:]{0,40}(?=:\n)", "the line before a speech, as in ROMEO:"
    ),
    Category("end of line next", r"[^\n](?=\n)", "the character before a line break"),
    Category("inside a quotation", r"(?<=\")[^\"\n]+(?=\")|(?<=“)[^”\n]+(?=”)", "between quotation marks on one line"),
    Category("repeated letter", r"(\p{L})\1", "a letter beside the same letter"),
    Category("number or code", r"[\w.]*\d[\w.]*", "a word with a digit in it"),
)
NAMED = {category.name: category for category in LIBRARY}


@dataclass(frozen=True)
class WindowCategory:
    """A kind of token that depends on what the model has in view."""

    name: str
    rule: Callable[[Int[ndarray, "window pos"]], Bool[ndarray, "window pos"]]
    words: str


def repeated_bigram(windows: Int[ndarray, "window pos"]) -> Bool[ndarray, "window pos"]:
    """Where the same two tokens, this one and the one before it, stood earlier in the window."""
    repeated = np.zeros(windows.shape, dtype=bool)
    for row, marks in zip(windows.tolist(), repeated, strict=True):
        seen: set[tuple[int, int]] = set()
        for place, pair in enumerate(pairwise(row), start=1):
            marks[place] = pair in seen
            seen.add(pair)
    return repeated


def second_half(windows: Int[ndarray, "window pos"]) -> Bool[ndarray, "window pos"]:
    """The later positions of a window, where more can be looked back at."""
    return np.broadcast_to(np.arange(windows.shape[1]) >= windows.shape[1] // 2, windows.shape).copy()


IN_WINDOW = {
    category.name: category
    for category in (
        WindowCategory("repeated bigram", repeated_bigram, "the same two tokens stood earlier in the window"),
        WindowCategory("second half of the window", second_half, "a position, whatever the token"),
    )
}


def label(pattern: str, pieces: Sequence[str], seconds: float = SECONDS) -> Bool[ndarray, "token"]:
    """Whether each token belongs: whether a match of the pattern covers any of its characters.

    Args:
        pattern: a regular expression.
        pieces: the characters of each token; side by side they are the text.
        seconds: that the search may take.

    Raises:
        PatternError: no valid expression, too long a one, or one that takes too long on this text.
    """
    lengths = np.fromiter((len(piece) for piece in pieces), dtype=np.int64, count=len(pieces))
    covered = _covered("".join(pieces), _compiled(pattern), seconds)
    counts = np.concatenate([[0], covered.cumsum()])
    ends = lengths.cumsum()
    return counts[ends] > counts[ends - lengths]


def balanced(kept: Bool[ndarray, "row"], positive: Bool[ndarray, "row"], seed: int) -> Bool[ndarray, "row"]:
    """As many rows of the commoner class as of the rarer one, drawn without replacement from those that are kept."""
    parts = sorted((np.flatnonzero(kept & positive), np.flatnonzero(kept & ~positive)), key=len)
    chosen = np.zeros(len(kept), dtype=bool)
    chosen[parts[0]] = True
    chosen[np.random.default_rng(seed).choice(parts[1], len(parts[0]), replace=False)] = True
    return chosen


def _compiled(pattern: str) -> regex.Pattern:
    if not pattern:
        raise PatternError("The pattern is empty: type a regular expression, such as [aeiou] or \\bking\\b.")
    if len(pattern) > LONGEST:
        raise PatternError(f"The pattern has {len(pattern)} characters, more than the {LONGEST} that are tried here.")
    try:
        return regex.compile(pattern, regex.MULTILINE)
    except regex.error as error:
        raise PatternError(f"This is no regular expression: {error}.") from error


def _covered(text: str, compiled: regex.Pattern, seconds: float) -> Bool[ndarray, "character"]:
    """Which characters of the text lie in a match."""
    covered, ends = np.zeros(len(text), dtype=bool), time.monotonic() + seconds
    try:
        for match in compiled.finditer(text, timeout=seconds):
            covered[match.start() : match.end()] = True
            if time.monotonic() > ends:
                raise TimeoutError
    except TimeoutError as error:
        raise PatternError(
            f"The pattern takes more than {seconds:.0f} s on this text: nested repeats such as (a+)+ try every way to split a "
            "stretch. Make it simpler."
        ) from error
    return covered
