"""What lies beside weights: a card of ours, a config, a vocabulary, the text of the training. Told apart by content."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from interp_core.layouts.settings import NAMES
from interp_core.pickles import CheckpointError, read_plain
from interp_core.tokenizers import CharTokenizer, SubwordTokenizer, Tokenizer

MOST_BYTES = 100_000_000  # of a text
MOST_JSON = 20_000_000  # of a vocabulary or config: as Python's objects it takes ten times as much memory
IDLE = (
    "generation_config.json",
    "special_tokens_map.json",
    "tokenizer_config.json",
    "added_tokens.json",
)  # say nothing new
EXPECTED = "expected a card, a config.json, a tokenizer.json, vocab.json with merges.txt, nanoGPT's meta.pkl or a text"


@dataclass(frozen=True)
class Vocabulary:
    """What tokens stand for, and where that is from.

    Attributes:
        characters: in the order of their token numbers; empty where tokens are pieces of text.
        source: the file or text.
        pieces: a Hugging Face `tokenizer.json`, where tokens are pieces.
        padded: whether a model may have more rows, as padding.
    """

    characters: tuple[str, ...]
    source: str
    pieces: str | None = None
    padded: bool = False

    def tokenizer(self, size: int) -> Tokenizer:
        """The tokenizer of a model of `size` tokens.

        Raises:
            ValueError: entries that cannot be used, or more of them than the model has.
        """
        if self.pieces is not None:
            return SubwordTokenizer(self.pieces, size)
        return CharTokenizer(self.characters, size)

    @property
    def count(self) -> int:
        """How many characters; 0 where tokens are pieces."""
        return len(self.characters)


@dataclass(frozen=True)
class Papers:
    """What came with weights."""

    card: Mapping[str, Any] | None = None
    settings: Mapping[str, object] | None = None  # a config by its own names
    vocabulary: Vocabulary | None = None
    text: tuple[str, str] | None = None  # its name, its characters

    @property
    def only_text(self) -> bool:
        """Whether the vocabulary is nothing but the characters of the text."""
        return self.text is not None and self.vocabulary is not None and self.vocabulary.source == self.text[0]

    def over(self, others: "Papers") -> "Papers":
        """These papers and, for what they lack, others; a vocabulary of its own comes before the characters of a text."""
        first, second = (others, self) if self.only_text else (self, others)
        return Papers(
            card=self.card or others.card,
            settings={**(others.settings or {}), **(self.settings or {})} or None,
            vocabulary=first.vocabulary or second.vocabulary,
            text=self.text or others.text,
        )


def read_papers(files: Mapping[str, bytes]) -> Papers:
    """Reads files that lie beside weights, by name.

    A tokenizer or vocabulary of its own comes before the characters of a text, which are numbered by code point.

    Raises:
        CheckpointError: one of them is none of what is expected, or byte pairs lack one of their two files.
    """
    card: Mapping[str, Any] | None = None
    settings: dict[str, object] = {}
    vocabularies: list[Vocabulary] = []
    pairs: dict[str, int] | None = None
    merges: str | None = None
    text: tuple[str, str] | None = None
    for name, data in files.items():
        if name in IDLE:
            continue
        if len(data) > MOST_BYTES:
            raise CheckpointError(f"{name} has {len(data):,} bytes, more than the {MOST_BYTES:,} that are read here.")
        if data[:1] == b"\x80":
            vocabularies.append(vocabulary_of(read_plain(data), name))
            continue
        words = _decoded(data, name)
        if not name.lower().endswith(".json"):
            if words.startswith("#version") or name.lower() == "merges.txt":
                merges = words
            else:
                text = (name, words)
            continue
        if len(data) > MOST_JSON:
            raise CheckpointError(
                f"{name} has {len(data):,} bytes, more than the {MOST_JSON:,} of JSON that are read here."
            )
        found = _parsed(data, name)
        if isinstance(found, dict) and isinstance(found.get("model"), dict):
            vocabularies.append(Vocabulary((), name, words, padded=True))
        elif isinstance(found, dict) and ("sha256" in found or isinstance(found.get("config"), dict)):
            card = found
            if found.get("vocabulary"):
                vocabularies.append(vocabulary_of(found, name))
        elif isinstance(found, dict) and len(found) > 1 and all(isinstance(value, int) for value in found.values()):
            if all(len(piece) == 1 for piece in found):
                vocabularies.append(vocabulary_of(found, name))
            else:
                pairs = found
        elif isinstance(found, dict) and any(known in found for names in NAMES.values() for known in names):
            settings |= found
        elif isinstance(found, dict) and "weight_map" in found:
            raise CheckpointError(f"{name} lists shards: save the model in one file (max_shard_size='5GB').")
        else:
            vocabularies.append(vocabulary_of(found, name))
    if pairs is not None and merges is not None:
        vocabularies.append(_of_pairs(pairs, merges))
    elif not vocabularies and (pairs is not None or merges is not None):
        lacks = "merges.txt" if merges is None else "vocab.json"
        raise CheckpointError(f"Byte pairs come in two files, and {lacks} is missing: give both, or tokenizer.json.")
    if text is not None:
        vocabularies.append(vocabulary_of_text(text[1], text[0]))
    return Papers(card, settings or None, vocabularies[0] if vocabularies else None, text)


def read_card(data: bytes) -> dict[str, Any]:
    """A card's JSON.

    Raises:
        CheckpointError: not JSON, or not a card.
    """
    try:
        card = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CheckpointError("The card is not valid JSON: put back the one that came with the checkpoint.") from error
    if not isinstance(card, dict) or not isinstance(card.get("config", {}), dict):
        raise CheckpointError("The card is JSON but not a card: expected an object with sha256, config and vocabulary.")
    return card


def vocabulary_of_text(characters: str, source: str) -> Vocabulary:
    """The distinct characters of a text in the order of their code points, as the course numbers them."""
    return Vocabulary(CharTokenizer.of_text(characters).vocabulary, source)


def vocabulary_of(found: object, source: str) -> Vocabulary:
    """The vocabulary in a list of characters, a string of them, or dictionaries from or to numbers (`stoi`, `itos`).

    Raises:
        CheckpointError: none of these.
    """
    if isinstance(found, Mapping):
        inner = next((found[key] for key in ("vocabulary", "itos", "stoi", "chars", "vocab") if key in found), None)
        if inner is not None:
            return vocabulary_of(inner, source)
        if found and all(isinstance(key, str) and isinstance(value, int) for key, value in found.items()):
            found = {value: key for key, value in found.items()}
        if found and set(found) == set(range(len(found))):
            found = [found[number] for number in range(len(found))]
    if isinstance(found, str):
        found = list(found)
    if not isinstance(found, list | tuple) or not found or not all(isinstance(entry, str) for entry in found):
        raise CheckpointError(f"{source} names no vocabulary, {EXPECTED}.")
    return Vocabulary(tuple(found), source, padded=True)


def _of_pairs(pairs: dict[str, int], merges: str) -> Vocabulary:
    try:
        made = SubwordTokenizer.of_merges(pairs, merges, max(pairs.values()) + 1)
    except ValueError as error:
        raise CheckpointError(f"vocab.json and merges.txt do not fit each other: {error}.") from error
    return Vocabulary((), "vocab.json and merges.txt", made.definition, padded=True)


def _decoded(data: bytes, name: str) -> str:
    if not data:
        raise CheckpointError(f"{name} is empty, {EXPECTED}.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(
            f"{name} is not text in UTF-8: upload the text that the checkpoint was trained on (.txt), or its card (.json)."
        ) from error


def _parsed(data: bytes, name: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{name} is not valid JSON, {EXPECTED}.") from error
