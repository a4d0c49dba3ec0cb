"""Checkpoints: a file of weights, its card, and what is known of both.

A checkpoint of ours is two files side by side: `name.pt`, weights that the course's notebook loads with
`model.load_state_dict(torch.load(...))`, and `name.json`, its card: config, vocabulary, text, recipe, losses. A file's
identity is the SHA-256 of its bytes.
"""

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from interp_core import files, layouts, run_files
from interp_core.containers import MAX_BYTES, CheckpointError, read_tensors
from interp_core.layouts import Fact
from interp_core.model import GPT
from interp_core.tokenizers import CharTokenizer, NumberTokenizer, Tokenizer

__all__ = [
    "Checkpoint", "CheckpointError", "Vocabulary", "find", "find_runs", "history", "load", "read", "read_card",
    "read_vocabulary", "save", "save_snapshot", "vocabulary_of_text", "with_vocabulary",
]  # fmt: skip


@dataclass(frozen=True)
class Vocabulary:
    """Characters in the order of their token numbers, and where they came from."""

    characters: tuple[str, ...]
    source: str


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A model that is ready to be asked, and its papers."""

    name: str
    sha256: str
    model: GPT
    tokenizer: Tokenizer
    layout: str
    facts: tuple[Fact, ...]  # the config, field by field, with what each is known from
    vocabulary_source: str
    card: Mapping[str, Any] = field(default_factory=dict)

    @property
    def short_hash(self) -> str:
        """The first eight digits of the hash: enough to tell checkpoints apart on a page."""
        return self.sha256[:8]


def find(folder: Path | str) -> list[Path]:
    """The checkpoints in a folder, by name."""
    return sorted(Path(folder).glob("*.pt"))


def find_runs(folder: Path | str) -> list[Path]:
    """The checkpoints of the runs in a folder (`name/name.pt`), by name."""
    return sorted(path for path in Path(folder).glob("*/*.pt") if path.stem == path.parent.name)


def load(path: Path | str, vocabulary: Vocabulary | None = None) -> Checkpoint:
    """Reads a checkpoint and, when it lies beside it, the card; a snapshot has its run's card but for what it weighs.

    Raises:
        CheckpointError: as `read`.
        FileNotFoundError: there is no such file.
    """
    path = Path(path)
    if path.stat().st_size > MAX_BYTES:
        raise CheckpointError(f"{path.name} has {path.stat().st_size:,} bytes, more than the {MAX_BYTES:,} read here.")
    data, step = path.read_bytes(), run_files.step_of(path)
    papers = (path if step is None else path.parent).with_suffix(".json")
    card = read_card(papers.read_bytes()) if papers.is_file() else None
    if step is None:
        return read(data, path.stem, card, vocabulary)
    if card is not None:
        shared = ("config", "vocabulary", "text", "recipe")
        card = {name: card[name] for name in shared if name in card}
        card |= {"step": step, "sha256": hashlib.sha256(data).hexdigest()}
    return read(data, f"{path.parent.name}@{step}", card, vocabulary)


def history(path: Path) -> dict[int, Path]:
    """The snapshots of a checkpoint's training by step, and the checkpoint itself as the last; empty where none were kept.

    Raises:
        CheckpointError: the card cannot be read.
    """
    found, card = run_files.snapshots(path), path.with_suffix(".json")
    if not found or not card.is_file():
        return found
    return found | {int(read_card(card.read_bytes()).get("step", max(found) + 1)): path}


def read(
    data: bytes, name: str, card: Mapping[str, Any] | None = None, vocabulary: Vocabulary | None = None
) -> Checkpoint:
    """Reads the bytes of a checkpoint.

    Args:
        data: the file, from anybody.
        name: what to call it.
        card: its card, which must carry the hash of `data`.
        vocabulary: characters to use when there is no card.

    Raises:
        CheckpointError: not a checkpoint, not a layout known here, or card or vocabulary of another one.
    """
    digest = hashlib.sha256(data).hexdigest()
    if card is not None and card.get("sha256") != digest:
        raise CheckpointError(
            f"The card beside {name} is of another file (SHA-256 {str(card.get('sha256'))[:8]}…, the weights have "
            f"{digest[:8]}…): put back the right card, or remove it."
        )
    reading = layouts.read(read_tensors(data), (card or {}).get("config"))
    numbers = NumberTokenizer(reading.model.config.d_vocab)
    numbered = card is not None and card.get("vocabulary", ...) is None
    unknown = "none: trained on numbers" if numbered else "unknown: tokens are shown by number"
    checkpoint = Checkpoint(name, digest, reading.model, numbers, reading.layout, reading.facts, unknown, card or {})
    if card is not None and card.get("vocabulary"):
        vocabulary = Vocabulary(tuple(card["vocabulary"]), "card")
    return checkpoint if vocabulary is None else with_vocabulary(checkpoint, vocabulary)


def with_vocabulary(checkpoint: Checkpoint, vocabulary: Vocabulary) -> Checkpoint:
    """The same checkpoint with its tokens named.

    Raises:
        CheckpointError: the vocabulary has another size, or entries that are not distinct single characters.
    """
    size = checkpoint.model.config.d_vocab
    if len(vocabulary.characters) != size:
        raise CheckpointError(
            f"This checkpoint has {size} tokens but {vocabulary.source} has {len(vocabulary.characters)} distinct "
            "characters: choose the text that it was trained on, or upload its vocabulary."
        )
    try:
        tokenizer = CharTokenizer(vocabulary.characters)
    except ValueError as error:
        raise CheckpointError(f"The vocabulary from {vocabulary.source} cannot be used: {error}.") from error
    return replace(checkpoint, tokenizer=tokenizer, vocabulary_source=vocabulary.source)


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


def read_vocabulary(data: bytes, name: str) -> Vocabulary:
    """The vocabulary that an uploaded file gives: a card, a JSON list of characters, or the text of the training.

    A text gives its distinct characters in the order of their code points, as the course numbers them.

    Raises:
        CheckpointError: none of these.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(
            f"{name} is not text in UTF-8: upload the text that the checkpoint was trained on (.txt), or its card (.json)."
        ) from error
    if not text:
        raise CheckpointError(f"{name} is empty, expected the text that the checkpoint was trained on.")
    if name.lower().endswith(".json"):
        return Vocabulary(_listed(data, name), name)
    return vocabulary_of_text(text, name)


def vocabulary_of_text(characters: str, source: str) -> Vocabulary:
    """The distinct characters of a text in the order of their code points, as the course numbers them."""
    return Vocabulary(CharTokenizer.of_text(characters).vocabulary, source)


def save(path: Path | str, model: GPT, vocabulary: Sequence[str] | None, papers: Mapping[str, Any]) -> Checkpoint:
    """Writes `path` (.pt) and its card beside it, each at once or not at all, and reads them back.

    Args:
        path: where the weights go; the card goes beside them.
        model: the weights.
        vocabulary: characters in the order of their numbers, if the tokens are characters.
        papers: what the card says beyond config, vocabulary and hash: text, recipe, step, losses, command.
    """
    path = Path(path)
    buffer = io.BytesIO()
    torch.save(layouts.write(model), buffer)
    card = {
        "name": path.stem,
        "sha256": hashlib.sha256(buffer.getvalue()).hexdigest(),
        "layout": layouts.COURSE,
        "parameters": model.count(),
        "config": asdict(model.config),
        "vocabulary": list(vocabulary) if vocabulary is not None else None,
        **papers,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, buffer.getvalue())
    files.write(path.with_suffix(".json"), (json.dumps(card, indent=1, ensure_ascii=False) + "\n").encode())
    return load(path)


def save_snapshot(path: Path | str, step: int, model: GPT) -> Path:
    """Writes the weights that a run had at a step into the folder of the checkpoint `path`, whose card is theirs too."""
    place = run_files.snapshot(Path(path), step)
    place.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    torch.save(layouts.write(model), buffer)
    files.write(place, buffer.getvalue())
    return place


def _listed(data: bytes, name: str) -> tuple[str, ...]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{name} is not valid JSON, expected a card or a list of characters.") from error
    if isinstance(found, dict):
        found = found.get("vocabulary")
    if not isinstance(found, list) or not all(isinstance(entry, str) for entry in found):
        raise CheckpointError(f"{name} names no vocabulary, expected a card or a list of characters.")
    return tuple(found)
