"""Text to token numbers and back."""

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

VISIBLE = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"}


@runtime_checkable
class Tokenizer(Protocol):
    """What the rest of the library asks of a tokenizer."""

    size: int

    def encode(self, text: str, unknown: Literal["error", "drop"] = "error") -> Int[Tensor, "pos"]:
        """Token numbers of a text."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of token numbers."""
        ...

    def label(self, token: int) -> str:
        """A token as a person can see it: a space is ␣, a line break ⏎."""
        ...


class UnknownCharacters(ValueError):
    """A text has characters that the vocabulary has not; `counts` says which and how often."""

    def __init__(self, counts: dict[str, int], size: int) -> None:
        self.counts = counts
        most = sorted(counts, key=lambda c: -counts[c])[:12]
        shown = " ".join(VISIBLE.get(c, c) for c in most)
        super().__init__(
            f"{len(counts)} characters of this text ({sum(counts.values()):,} places) are not among the {size} that the "
            f"checkpoint knows: {shown}{' …' if len(counts) > len(most) else ''}. Choose the text that it was trained on, "
            "or leave these characters out."
        )


class CharTokenizer:
    """One token a character, numbered by its place in `vocabulary`.

    Raises:
        ValueError: an entry is not a single character, or one occurs twice.
    """

    def __init__(self, vocabulary: Sequence[str]) -> None:
        bad = [entry for entry in vocabulary if len(entry) != 1]
        if bad:
            raise ValueError(f"the vocabulary holds {bad[0]!r}, expected single characters")
        if len(set(vocabulary)) < len(vocabulary):
            twice = next(c for i, c in enumerate(vocabulary) if c in vocabulary[:i])
            raise ValueError(f"the vocabulary holds {twice!r} twice, expected distinct characters")
        self.vocabulary = tuple(vocabulary)
        self.size = len(self.vocabulary)
        points = np.array([ord(c) for c in self.vocabulary], dtype=np.uint32)
        self._order = np.argsort(points)
        self._points = points[self._order]

    @classmethod
    def of_text(cls, text: str) -> "CharTokenizer":
        """The distinct characters of a text in the order of their code points, as the course numbers them."""
        return cls(sorted(set(text)))

    def encode(self, text: str, unknown: Literal["error", "drop"] = "error") -> Int[Tensor, "pos"]:
        """Token numbers of a text.

        Raises:
            UnknownCharacters: the text has others than the vocabulary, and `unknown` is "error".
        """
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        place = np.searchsorted(self._points, points).clip(max=self.size - 1)
        known = self._points[place] == points
        if not known.all() and unknown == "error":
            odd, counts = np.unique(points[~known], return_counts=True)
            raise UnknownCharacters({chr(p): int(n) for p, n in zip(odd, counts, strict=True)}, self.size)
        return torch.from_numpy(self._order[place[known]].astype(np.int64))

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of token numbers."""
        return "".join(self.vocabulary[int(t)] for t in tokens)

    def label(self, token: int) -> str:
        """A token as a person can see it: a space is ␣, a line break ⏎."""
        character = self.vocabulary[token]
        return VISIBLE.get(character, character if character.isprintable() else f"U+{ord(character):04X}")


class NumberTokenizer:
    """For a checkpoint whose tokens stand for nothing, or nobody knows for what: tokens are shown by number."""

    def __init__(self, size: int) -> None:
        self.size = size

    def encode(self, text: str, unknown: Literal["error", "drop"] = "error") -> Int[Tensor, "pos"]:
        """Always refuses.

        Raises:
            ValueError: says what to upload.
        """
        raise ValueError(
            f"this checkpoint's {self.size} tokens are numbers here, not characters: choose a synthetic text, or, if it was "
            "trained on a text, upload that or its vocabulary together with the checkpoint"
        )

    def decode(self, tokens: Sequence[int]) -> str:
        """Token numbers, bracketed."""
        return "".join(self.label(int(t)) for t in tokens)

    def label(self, token: int) -> str:
        """The token's number, bracketed."""
        return f"⟨{token}⟩"
