"""Text to token numbers and back."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, Protocol, cast, runtime_checkable

import numpy as np
import tokenizers
import torch
from jaxtyping import Int
from tokenizers import decoders, models, pre_tokenizers
from torch import Tensor

VISIBLE = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"}


@runtime_checkable
class Tokenizer(Protocol):
    """What the rest of the library asks of a tokenizer."""

    size: int
    identity: str  # two tokenizers of one identity give every text the same numbers

    def encode(self, text: str, unknown: Literal["error", "drop"] = "error") -> Int[Tensor, "pos"]:
        """Token numbers of a text."""
        ...

    def unread(self, text: str) -> int:
        """How many characters of a text no token stands for."""
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

    Args:
        vocabulary: the characters.
        size: tokens of the model, where it has more than characters: the rest is padding, and shown by number.

    Raises:
        ValueError: an entry is not a single character, or one occurs twice.
    """

    def __init__(self, vocabulary: Sequence[str], size: int | None = None) -> None:
        bad = [entry for entry in vocabulary if len(entry) != 1]
        if bad:
            raise ValueError(f"the vocabulary holds {bad[0]!r}, expected single characters")
        if len(set(vocabulary)) < len(vocabulary):
            twice = next(c for i, c in enumerate(vocabulary) if c in vocabulary[:i])
            raise ValueError(f"the vocabulary holds {twice!r} twice, expected distinct characters")
        self.vocabulary = tuple(vocabulary)
        self.size = size or len(self.vocabulary)
        self.identity = hashlib.sha256("".join(self.vocabulary).encode("utf-8", "surrogatepass")).hexdigest()
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
        place = np.searchsorted(self._points, points).clip(max=len(self.vocabulary) - 1)
        known = self._points[place] == points
        if not known.all() and unknown == "error":
            odd, counts = np.unique(points[~known], return_counts=True)
            raise UnknownCharacters({chr(p): int(n) for p, n in zip(odd, counts, strict=True)}, self.size)
        return torch.from_numpy(self._order[place[known]].astype(np.int64))

    def unread(self, text: str) -> int:
        """How many characters of a text are not in the vocabulary."""
        return len(text) - len(self.encode(text, "drop"))

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of token numbers."""
        known = len(self.vocabulary)
        return "".join(self.vocabulary[int(t)] if t < known else f"⟨{int(t)}⟩" for t in tokens)

    def label(self, token: int) -> str:
        """A token as a person can see it: a space is ␣, a line break ⏎."""
        if token >= len(self.vocabulary):
            return f"⟨{token}⟩"
        character = self.vocabulary[token]
        return VISIBLE.get(character, character if character.isprintable() else f"U+{ord(character):04X}")


class NumberTokenizer:
    """For a checkpoint whose tokens stand for nothing, or nobody knows for what: tokens are shown by number."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.identity = f"numbers below {size}"

    def encode(self, text: str, unknown: Literal["error", "drop"] = "error") -> Int[Tensor, "pos"]:
        """Always refuses.

        Raises:
            ValueError: says what to upload.
        """
        raise ValueError(
            f"this checkpoint's {self.size} tokens are numbers here, not characters: choose a synthetic text, or, if it was "
            "trained on a text, upload that or its vocabulary together with the checkpoint"
        )

    def unread(self, text: str) -> int:
        """All of them."""
        return len(text)

    def decode(self, tokens: Sequence[int]) -> str:
        """Token numbers, bracketed."""
        return "".join(self.label(int(t)) for t in tokens)

    def label(self, token: int) -> str:
        """The token's number, bracketed."""
        return f"⟨{token}⟩"


class SubwordTokenizer:
    """One token a piece of text, by a Hugging Face `tokenizer.json`.

    Args:
        definition: the file's text.
        size: tokens of the model; rows beyond those of the file are padding, and shown by number.

    Raises:
        ValueError: not a tokenizer, or one of more tokens than the model has.
    """

    def __init__(self, definition: str, size: int) -> None:
        self._pieces = _parse(definition)
        self.definition, self.size = definition, size
        self.known = self._pieces.get_vocab_size(with_added_tokens=True)
        if self.known > size:
            raise ValueError(f"the tokenizer has {self.known:,} tokens, but the model {size:,}")
        self.identity = hashlib.sha256(definition.encode()).hexdigest()

    @classmethod
    def of_merges(cls, vocabulary: dict[str, int], merges: str, size: int) -> "SubwordTokenizer":
        """From the two files that GPT-2's byte pairs came in: `vocab.json` and `merges.txt`.

        Raises:
            ValueError: they do not fit each other.
        """
        pairs = [tuple(line.split(" ")) for line in merges.splitlines() if line and not line.startswith("#version")]
        if not pairs or any(len(pair) != 2 for pair in pairs):
            raise ValueError("merges.txt is not a list of pairs")
        with _as_value_errors():
            pieces = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=cast(list[tuple[str, str]], pairs)))
            pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            pieces.decoder = decoders.ByteLevel()
        return cls(pieces.to_str(), size)

    def encode(self, text: str, unknown: Literal["error", "drop"] = "error") -> Int[Tensor, "pos"]:
        """Token numbers of a text, without the tokens that only frame one.

        Raises:
            UnknownCharacters: the pieces of the text do not give it back, and `unknown` is "error".
        """
        encoding = self._encoding(text)
        lost = self._lost(text, encoding) if unknown == "error" else None
        if lost:
            raise UnknownCharacters(dict(lost), self.size)
        return torch.tensor(encoding.ids, dtype=torch.long)

    def unread(self, text: str) -> int:
        """How many characters of a text stand in no piece; spaces between pieces are meant to be lost by some."""
        return self._lost(text, self._encoding(text)).total()

    def _encoding(self, text: str) -> tokenizers.Encoding:
        with _as_value_errors():
            return self._pieces.encode(text, add_special_tokens=False)

    def _lost(self, text: str, encoding: tokenizers.Encoding) -> Counter[str]:
        read = np.zeros(len(text) + 1, dtype=np.int64)  # +1 where a piece begins, -1 where one ends
        begins, ends = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2).T
        np.add.at(read, begins, 1)
        np.add.at(read, ends, -1)
        outside = np.flatnonzero(read[:-1].cumsum() == 0)
        return Counter(text[place] for place in outside if not text[place].isspace())

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of token numbers; padding by number."""
        parts, run = [], []
        for token in (int(t) for t in tokens):
            if token < self.known:
                run.append(token)
            else:
                parts += [self._pieces.decode(run, skip_special_tokens=False), f"⟨{token}⟩"]
                run = []
        return "".join([*parts, self._pieces.decode(run, skip_special_tokens=False)])

    def label(self, token: int) -> str:
        """A token as a person can see it: a leading space is ␣, bytes that are no whole character are in hexadecimal."""
        text, piece = self.decode([token]), self._pieces.id_to_token(token) or ""
        if piece.startswith("▁"):  # SentencePiece's sign for a space, which a decoder drops at the beginning
            text = piece.replace("▁", " ")
        if "\ufffd" in text:
            return "⟨" + " ".join(f"{_BYTES[c]:02X}" if c in _BYTES else c for c in piece) + "⟩"
        return "".join(VISIBLE.get(c, c if c.isprintable() else f"⟨{ord(c):04X}⟩") for c in text)


def _parse(definition: str) -> tokenizers.Tokenizer:
    with _as_value_errors():
        return tokenizers.Tokenizer.from_str(definition)


@contextmanager
def _as_value_errors() -> Iterator[None]:
    """The library's errors are plain exceptions, and a panic of its Rust code is not even that."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise ValueError(f"the tokenizers library cannot use it ({str(error)[:200]})") from error


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's stand-ins for bytes (Radford et al. 2019): printable ones are themselves, the others follow from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


_BYTES = _byte_alphabet()
