"""Checkpoints: a file of weights, its papers, and what is known of both.

A checkpoint of ours is two files side by side: `name.pt`, weights that the course's notebook loads with
`model.load_state_dict(torch.load(...))`, and `name.json`, its card: config, vocabulary, text, recipe, losses. A file's
identity is the SHA-256 of its bytes, and of what a person answered where they do not tell.
"""

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import torch

from interp_core import files, layouts, run_files
from interp_core.bundles import is_bundle, pack, unpack
from interp_core.containers import Contents, open_source, read_contents
from interp_core.layouts import Fact, HeadsMissing
from interp_core.model import GPT
from interp_core.papers import EXPECTED, Papers, Vocabulary, read_card, read_papers, vocabulary_of, vocabulary_of_text
from interp_core.pickles import CheckpointError
from interp_core.tokenizers import CharTokenizer, NumberTokenizer, SubwordTokenizer, Tokenizer

__all__ = [
    "Checkpoint", "CheckpointError", "HeadsMissing", "Papers", "Vocabulary", "digest_of", "export", "find", "find_runs",
    "history", "load", "packed", "read", "read_card", "read_papers", "read_vocabulary", "save", "save_snapshot",
    "vocabulary_of_text", "with_vocabulary",
]  # fmt: skip

ENDINGS = (".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".zip")
NO_PAPERS = Papers()


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
    answers: Mapping[str, Any] = field(default_factory=dict)  # what a person said of the config
    unsaid: tuple[str, ...] = ()  # fields of the config that the file does not tell
    card: Mapping[str, Any] = field(default_factory=dict)

    @property
    def short_hash(self) -> str:
        """The first eight digits of the hash: enough to tell checkpoints apart on a page."""
        return self.sha256[:8]


def find(folder: Path | str) -> list[Path]:
    """The checkpoints in a folder, by name: files of weights, archives, and folders of weights with their config."""
    found = [path for path in Path(folder).glob("*") if path.is_file() and path.suffix.lower() in ENDINGS]
    found = [path for path in found if not path.name.endswith(".sae.safetensors")]
    folders = [path for path in Path(folder).glob("*") if path.is_dir() and is_bundle(path)]
    return sorted([*found, *folders])


def find_runs(folder: Path | str) -> list[Path]:
    """The checkpoints of the runs in a folder (`name/name.pt`), by name."""
    return sorted(path for path in Path(folder).glob("*/*.pt") if path.stem == path.parent.name)


def load(
    path: Path | str, vocabulary: Vocabulary | None = None, answers: Mapping[str, Any] | None = None
) -> Checkpoint:
    """Reads a checkpoint and what lies beside it; a snapshot has its run's card but for what it weighs.

    Args:
        path: a file of weights, with its card (`name.json`) beside it; an archive or a folder with its papers.
        vocabulary: what to use when nothing beside it names the tokens.
        answers: fields of the config that the file does not say: `{"heads": 6}`.

    Raises:
        CheckpointError: as `read`.
        FileNotFoundError: there is no such file.
    """
    path = Path(path)
    if is_bundle(path):
        bundle = unpack(path)
        return read(bundle.weights, path.stem, bundle.papers, vocabulary, answers)
    step = run_files.step_of(path)
    beside = (path if step is None else path.parent).with_suffix(".json")
    papers = read_papers({beside.name: beside.read_bytes()}) if beside.is_file() else Papers()
    if step is None or papers.card is None:
        return read(path, path.stem, papers, vocabulary, answers)
    shared = ("config", "vocabulary", "text", "recipe")
    card = {name: papers.card[name] for name in shared if name in papers.card}
    card |= {"step": step, "sha256": digest_of(path)}
    return read(path, f"{path.parent.name}@{step}", replace(papers, card=card), vocabulary, answers)


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
    source: bytes | Path,
    name: str,
    papers: Papers = NO_PAPERS,
    vocabulary: Vocabulary | None = None,
    answers: Mapping[str, Any] | None = None,
) -> Checkpoint:
    """Reads the weights of a checkpoint.

    Args:
        source: the file or its bytes, from anybody.
        name: what to call it.
        papers: what lies beside it; a card must carry the hash of the weights.
        vocabulary: what to use when neither the papers nor the file itself name the tokens.
        answers: fields of the config that a person gives.

    Raises:
        HeadsMissing: nothing says how many heads a layer has.
        CheckpointError: not a checkpoint, not a layout known here, or card or vocabulary of another one.
    """
    contents, digest, card = read_contents(source), digest_of(source), papers.card or {}
    if papers.card is not None and card.get("sha256") != digest:
        raise CheckpointError(
            f"The card beside {name} is of another file (SHA-256 {str(card.get('sha256'))[:8]}…, the weights have "
            f"{digest[:8]}…): put back the right card, or remove it."
        )
    settings = {**contents.settings, **(papers.settings or {})}
    reading = layouts.read(contents.tensors, card.get("config"), settings, answers, contents.beside)
    numbered = papers.card is not None and card.get("vocabulary", ...) is None
    checkpoint = Checkpoint(
        name=name,
        sha256=_identity(digest, answers or {}),
        model=reading.model,
        tokenizer=NumberTokenizer(reading.model.config.d_vocab),
        layout=reading.layout,
        facts=reading.facts,
        answers=dict(answers or {}),
        unsaid=reading.unsaid,
        vocabulary_source="none: trained on numbers" if numbered else "unknown: tokens are shown by number",
        card=card,
    )
    found = _vocabulary(papers, contents, vocabulary)
    return checkpoint if found is None else with_vocabulary(checkpoint, found)


def _vocabulary(papers: Papers, contents: Contents, given: Vocabulary | None) -> Vocabulary | None:
    """The first that names the tokens: the card, a paper of its own, the file itself, what was given."""
    if papers.card is not None and papers.card.get("vocabulary"):
        exported = "read_from" in papers.card  # its model may have more rows, as padding
        return replace(vocabulary_of(papers.card["vocabulary"], "card"), padded=exported)
    if papers.vocabulary is not None:
        return papers.vocabulary
    return given if contents.vocabulary is None else vocabulary_of(contents.vocabulary, "the checkpoint's own file")


def digest_of(source: bytes | Path) -> str:
    """The SHA-256 of a file's bytes, by which a checkpoint is known."""
    with open_source(source) as stream:
        return hashlib.file_digest(cast(Any, stream), "sha256").hexdigest()


def _identity(digest: str, answers: Mapping[str, Any]) -> str:
    """Weights that are read in two ways are two models."""
    return hashlib.sha256(f"{digest} {sorted(answers.items())}".encode()).hexdigest() if answers else digest


def with_vocabulary(checkpoint: Checkpoint, vocabulary: Vocabulary) -> Checkpoint:
    """The same checkpoint with its tokens named.

    Raises:
        CheckpointError: the vocabulary has another size, or entries that are not distinct single characters.
    """
    size, count = checkpoint.model.config.d_vocab, vocabulary.count
    if count > size or (count < size and not vocabulary.padded):
        raise CheckpointError(
            f"This checkpoint has {size} tokens but {vocabulary.source} has {count} distinct "
            "characters: choose the text that it was trained on, or upload its vocabulary."
        )
    try:
        tokenizer = vocabulary.tokenizer(size)
    except ValueError as error:
        raise CheckpointError(f"The vocabulary from {vocabulary.source} cannot be used: {error}.") from error
    return replace(checkpoint, tokenizer=tokenizer, vocabulary_source=vocabulary.source)


def read_vocabulary(data: bytes, name: str) -> Vocabulary:
    """The vocabulary that one file gives: see `papers.read_papers`.

    Raises:
        CheckpointError: it gives none.
    """
    found = read_papers({name: data}).vocabulary
    if found is None:
        raise CheckpointError(f"{name} names no vocabulary, {EXPECTED}.")
    return found


def save(path: Path | str, model: GPT, vocabulary: Sequence[str] | None, papers: Mapping[str, Any]) -> Checkpoint:
    """Writes `path` (.pt) and its card beside it, each at once or not at all, and reads them back.

    Args:
        path: where the weights go; the card goes beside them.
        model: the weights.
        vocabulary: characters in the order of their numbers, if the tokens are characters.
        papers: what the card says beyond config, vocabulary and hash: text, recipe, step, losses, command.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    for name, data in packed(path.stem, model, vocabulary, papers).items():
        files.write(path.with_name(name), data)
    return load(path)


def packed(
    name: str, model: GPT, vocabulary: Sequence[str] | None, papers: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, bytes]:
    """The two files of a checkpoint of ours, by their names: weights in the course's layout, and the card."""
    buffer = io.BytesIO()
    torch.save(layouts.write(model), buffer)
    card = {
        "name": name,
        "sha256": hashlib.sha256(buffer.getvalue()).hexdigest(),
        "layout": layouts.COURSE.name,
        "parameters": model.count(),
        "config": asdict(model.config),
        "vocabulary": list(vocabulary) if vocabulary is not None else None,
        **papers,
    }
    return {
        f"{name}.pt": buffer.getvalue(),
        f"{name}.json": (json.dumps(card, indent=1, ensure_ascii=False) + "\n").encode(),
    }


def export(checkpoint: Checkpoint, name: str) -> bytes:
    """An archive of a checkpoint in the course's layout, with its card and tokenizer: `load` reads it again, bit by bit."""
    tokenizer = checkpoint.tokenizer
    characters = tokenizer.vocabulary if isinstance(tokenizer, CharTokenizer) else None
    found = packed(name, checkpoint.model, characters, {"read_from": checkpoint.layout})
    if isinstance(tokenizer, SubwordTokenizer):
        found["tokenizer.json"] = tokenizer.definition.encode()
    return pack(found)


def save_snapshot(path: Path | str, step: int, model: GPT) -> Path:
    """Writes the weights that a run had at a step into the folder of the checkpoint `path`, whose card is theirs too."""
    place = run_files.snapshot(Path(path), step)
    place.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    torch.save(layouts.write(model), buffer)
    files.write(place, buffer.getvalue())
    return place
