"""Rewards that a class can write down without programming: sums of countable things of a text, each with its weight."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import regex
from jaxtyping import Float
from numpy import ndarray

Kind = Literal["pattern", "lines of k syllables", "banned word", "length", "share of vowels"]
KINDS: tuple[Kind, ...] = ("pattern", "lines of k syllables", "banned word", "length", "share of vowels")
SECONDS = 5.0  # that a pattern may take on all texts
LONGEST = 500  # characters of a pattern
VOWELS = frozenset("aeiouAEIOU")
WORD = re.compile(r"[A-Za-z]*[AEIOUYaeiouy][A-Za-z]*")
SYLLABLE = re.compile(r"[aeiouy]+", re.IGNORECASE)  # a group of vowels: right for about nine English words in ten
SILENT = re.compile(r"(?<=[^aeiouyl\W])e\b", re.IGNORECASE)


class RewardError(ValueError):
    """A reward that cannot be computed; says what is wrong with it."""


@dataclass(frozen=True)
class Term:
    """One countable thing of a text.

    Attributes:
        kind: what is counted. *pattern*: matches of a regular expression. *lines of k syllables*: whole lines with exactly
            `number` of them. *banned word*: minus its occurrences as a whole word, whatever its case. *length*: minus the
            distance of the text's length, up to its first blank line, from `number` characters. *share of vowels*: of all
            letters.
        weight: the factor.
        text: the expression, or the word.
        number: of syllables, or of characters.
    """

    kind: Kind
    weight: float = 1.0
    text: str = ""
    number: int = 0


def score(terms: Sequence[Term], texts: Sequence[str]) -> Float[ndarray, "text"]:
    """The weighted sum of all terms, for each text.

    Raises:
        RewardError: no term, an expression that cannot be used or takes too long, a word or number that is missing.
    """
    if not terms:
        raise RewardError("There is no reward yet: add a term.")
    return sum(
        (term.weight * np.array(_counted(term, texts), dtype=np.float64) for term in terms), np.zeros(len(texts))
    )


def syllables(line: str) -> int:
    """Groups of vowels, a silent e at the end of a word not counted, at least one a word: a rule of thumb, not a dictionary."""
    return sum(max(1, len(SYLLABLE.findall(SILENT.sub("", word)))) for word in WORD.findall(line))


def _counted(term: Term, texts: Sequence[str]) -> list[float] | list[int]:
    if term.kind == "pattern":
        return _matches(term.text, texts)
    if term.kind == "lines of k syllables":
        if term.number < 1:
            raise RewardError(f"A line of {term.number} syllables cannot be counted: give 1 or more.")
        return [sum(syllables(line) == term.number for line in _whole_lines(text)) for text in texts]
    if term.kind == "banned word":
        word = term.text.strip()
        if not word:
            raise RewardError("No word is banned yet: type one.")
        return [-count for count in _matches(rf"(?i)\b{regex.escape(word)}\b", texts)]
    if term.kind == "length":
        return [-abs(len(text.split("\n\n", 1)[0]) - term.number) for text in texts]
    return [_vowels(text) for text in texts]


def _whole_lines(text: str) -> list[str]:
    """Lines with a beginning and an end: a sample cuts its first and last one."""
    return text.split("\n")[1:-1]


def _vowels(text: str) -> float:
    letters = [character for character in text if character.isalpha()]
    return sum(letter in VOWELS for letter in letters) / max(len(letters), 1)


def _matches(pattern: str, texts: Sequence[str]) -> list[float]:
    if not pattern:
        raise RewardError("The pattern is empty: type a regular expression, such as \\bking\\b.")
    if len(pattern) > LONGEST:
        raise RewardError(f"The pattern has {len(pattern)} characters, more than the {LONGEST} that are tried here.")
    try:
        compiled = regex.compile(pattern, regex.MULTILINE)
    except regex.error as error:
        raise RewardError(f"This is no regular expression: {error}.") from error
    ends, found = time.monotonic() + SECONDS, []
    try:
        for text in texts:
            left = ends - time.monotonic()
            if left <= 0:
                raise TimeoutError
            found.append(
                float(sum(1 for match in compiled.finditer(text, timeout=left) if match.end() > match.start()))
            )
    except TimeoutError as error:
        raise RewardError(
            f"The pattern takes more than {SECONDS:.0f} s on these texts: nested repeats such as (a+)+ try every way to split "
            "a stretch. Make it simpler."
        ) from error
    return found
