"""The only caches. Keys are hashes, numbers and names; models and tensors travel as `_arguments` and are never hashed.

A hundred visitors who open the same view cost one computation, because concurrent misses wait for the first.
"""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import pandas as pd
import streamlit as st
import torch
from torch import Tensor

from interp_core import (
    ablation,
    activations,
    atlas,
    bengio,
    bits_per_char,
    budget,
    categories,
    checkpoints,
    copying,
    corpora,
    induction,
    learning_curves,
    lessons,
    lora_job,
    pools,
    preflight,
    sae_files,
    samples,
    text_copying,
)  # fmt: skip
from interp_core.ablation import Donors, Mode, Sweep
from interp_core.activations import Activations
from interp_core.atlas import HeadAtlas
from interp_core.bits_per_char import Row
from interp_core.checkpoints import Checkpoint, Vocabulary
from interp_core.copying import Behaviour, Protocol
from interp_core.corpora import Text
from interp_core.induction import Circuit, Interventions
from interp_core.lessons import Lesson
from interp_core.lora_job import Results
from interp_core.model import GPT, ModelConfig
from interp_core.plans import Plan, Recipe
from interp_core.pools import Pool
from interp_core.preflight import Preflight
from interp_core.sae_files import Trained
from interp_core.text_copying import Counterfactual, Repeated
from interp_core.tokenizers import NumberTokenizer, Tokenizer
from ui import effort, session
from ui.progress import Progress

T = TypeVar("T")
FORMATION_SEQUENCES = 64  # on which heads are measured at every snapshot


def text_hash(characters: str) -> str:
    """Hash of a text, whatever characters it has."""
    return hashlib.sha256(characters.encode("utf-8", "surrogatepass")).hexdigest()


def digest(tensor: Tensor) -> str:
    """Hash of all of a small tensor: windows, tokens."""
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()


@st.cache_resource(max_entries=8, show_spinner=False)
def checkpoint_file(path: str, stamp: str, answers: str, _answers: Mapping[str, Any]) -> Checkpoint:
    """A checkpoint of the folder; `stamp` changes when the file or its papers do."""
    return checkpoints.load(Path(path), answers=_answers)


def checkpoint_of(path: Path, answers: Mapping[str, Any] | None = None) -> Checkpoint:
    """A checkpoint of the folder as it is now, file and papers, read with the visitor's answers."""
    parts = sorted(path.iterdir()) if path.is_dir() else [path, path.with_suffix(".json")]
    stamps = [(part.stat().st_mtime_ns, part.stat().st_size) for part in parts if part.is_file()]
    return checkpoint_file(str(path), str(stamps), str(sorted((answers or {}).items())), answers or {})


@st.cache_resource(max_entries=8, show_spinner=False)
def autoencoder(path: str, stamp: int) -> Trained:
    """An autoencoder's file; `stamp` changes when it does."""
    return sae_files.load(Path(path))


def autoencoder_of(path: Path) -> Trained:
    """An autoencoder as its file is now."""
    return autoencoder(str(path), path.stat().st_mtime_ns)


@st.cache_resource(max_entries=8, show_spinner=False)
def checkpoint_upload(key: str, _read: Callable[[], Checkpoint]) -> Checkpoint:
    """A checkpoint that a visitor brought, by the hashes of its bytes and papers, and the answers."""
    return _read()


@st.cache_data(max_entries=32, show_spinner=False)
def seconds_a_token(shape: str, _model: GPT) -> float:
    """How long a token takes in a forward pass of this model here."""
    return effort.seconds_a_token(_model)


@st.cache_resource(max_entries=4, show_spinner=False)
def characters(name: str) -> str:
    """A named text of this machine."""
    return corpora.read(name)


@st.cache_data(max_entries=8, show_spinner=False)
def vocabulary_of(name: str) -> Vocabulary:
    """The distinct characters of a named text."""
    return checkpoints.vocabulary_of_text(characters(name), name)


@st.cache_resource(max_entries=8, show_spinner=False)
def text(name: str, text_hash: str, vocabulary: str, drop: bool, _characters: str, _tokenizer: Tokenizer) -> Text:
    """A text encoded with a vocabulary."""
    return corpora.encode(name, _characters, _tokenizer, "drop" if drop else "error")


def brought_texts() -> dict[str, str]:
    """The texts that this visitor brought, by name."""
    return st.session_state.get(session.TEXTS, {})


@st.cache_data(max_entries=16, show_spinner=False)
def sweep_results(path: str, stamp: int) -> Results:
    """What a sweep of tunings has found; `stamp` changes when its file does."""
    return lora_job.read(Path(path))


@st.cache_resource(max_entries=4, show_spinner=False)
def pool(checkpoint: str, count: int, length: int, seed: int, first: int, _model: GPT, _progress: Progress) -> Pool:
    """Samples of a checkpoint, all after the token `first`, with their probabilities."""
    return pools.draw(_model, count, length, seed, _progress, first)


@st.cache_resource(max_entries=8, show_spinner=False)
def own_samples(checkpoint: str, seed: int, length: int, _model: GPT, _progress: Progress | None = None) -> Text:
    """Windows of `length` + 1 tokens drawn from a checkpoint itself, as a text."""
    windows = samples.own_windows(_model, effort.own_count(_model, length), seed, _progress, length)
    return corpora.from_windows("own-samples", windows)


@st.cache_resource(max_entries=16, show_spinner=False)
def head_atlas(
    checkpoint: str, windows: str, seed: int, _model: GPT, _windows: Tensor, _progress: Progress
) -> HeadAtlas:
    """The atlas of a checkpoint over windows, both given by their hashes."""
    return atlas.head_atlas(_model, _windows, seed, progress=_progress)


@st.cache_data(max_entries=16, show_spinner=False)
def untrained_control(
    shape: str, windows: str, _config: ModelConfig, _windows: Tensor, _progress: Progress
) -> pd.DataFrame:
    """The atlas of untrained models of the same shape over the same windows."""
    return atlas.untrained_control(_config, _windows, progress=_progress)


@st.cache_resource(max_entries=8, show_spinner=False)
def donors(checkpoint: str, windows: str, _model: GPT, _windows: Tensor) -> Donors:
    """What the parts of a checkpoint write on training windows."""
    return ablation.gather_donors(_model, _windows)


@st.cache_resource(max_entries=8, show_spinner=False)
def sweep(
    checkpoint: str, windows: str, seed: int, _model: GPT, _windows: Tensor, _donors: Donors, _progress: Progress
) -> Sweep:
    """Every part of a checkpoint taken away in every mode; the donors follow from checkpoint, text and seed."""
    return ablation.sweep(_model, _windows, _donors, ablation.MODES, seed=seed, progress=_progress)


@st.cache_data(max_entries=8, show_spinner=False)
def pairs(
    checkpoint: str, windows: str, seed: int, mode: Mode, _bench: tuple[GPT, Tensor, Donors], _progress: Progress
) -> pd.DataFrame:
    """Every two heads of a checkpoint taken away together."""
    model, tokens, given = _bench
    return ablation.pairs(model, tokens, mode, given, seed, _progress)


@st.cache_resource(max_entries=16, show_spinner=False)
def preflight_report(
    checkpoint: str, windows: str, seed: int, _checkpoint: Checkpoint, _text: Text, _windows: Tensor
) -> Preflight:
    """The pre-flight report of a checkpoint on windows of a text."""
    return preflight.report(_checkpoint, _text, _windows, seed)


@st.cache_resource(max_entries=32, show_spinner=False)
def behaviour(
    checkpoint: str, protocol: str, drawn: str, _given: tuple[GPT, Protocol, Tensor | None], _progress: Progress
) -> Behaviour:
    """How well a checkpoint predicts the last copy after three contexts; `drawn` is the text whose frequencies are used."""
    return copying.measure(*_given, progress=_progress)


@st.cache_resource(max_entries=16, show_spinner=False)
def circuit(checkpoint: str, longest: int, seed: int, sequences: int, _model: GPT, _progress: Progress) -> Circuit:
    """What every head of a checkpoint does on repeats."""
    return induction.measure_heads(_model, longest, sequences, seed, _progress)


@st.cache_resource(max_entries=16, show_spinner=False)
def interventions(
    key: str, _given: tuple[GPT, Circuit, Behaviour, Protocol, Tensor | None], _progress: Progress
) -> Interventions:
    """What is left of copying without heads; the key names checkpoint, protocol and text."""
    return induction.intervene(*_given, progress=_progress)


@st.cache_data(max_entries=16, show_spinner=False)
def copying_in_text(
    checkpoint: str, windows: str, seed: int, _model: GPT, _windows: Tensor
) -> tuple[Repeated | None, Counterfactual | None]:
    """Repeats in windows of a text, and what replacing one token of them does."""
    return text_copying.repeated(_model, _windows, seed), text_copying.counterfactual(_model, _windows, seed)


@st.cache_data(max_entries=8, show_spinner=False)
def emergence(
    checkpoint: str, protocol: str, _paths: dict[int, Path], _protocol: Protocol, _progress: Progress
) -> pd.DataFrame:
    """Copying and its heads over the snapshots of a training run."""
    models = ((step, checkpoint_of(path).model) for step, path in sorted(_paths.items()))
    return induction.emergence(models, _protocol, lambda done: _progress(done / len(_paths)))


@st.cache_resource(max_entries=8, show_spinner=False)
def lesson(key: str, _plan: Plan) -> Lesson:
    """What a run learns; the key names text, context and vocabulary."""
    return _plan.lesson()


def lesson_of(plan: Plan) -> Lesson:
    """What a run learns, read once for all who look at it."""
    file = "" if plan.file is None else f"{plan.file} {plan.file.stat().st_mtime_ns}"
    return lesson(f"{plan.text} {file} {plan.context} {plan.d_vocab}", plan)


@st.cache_resource(max_entries=4, show_spinner=False)
def lesson_of_text(name: str, text_hash: str, context: int, _characters: str) -> Lesson:
    """What can be learned from a text that a visitor brought."""
    return lessons.of_text(name, _characters, context)


@st.cache_data(max_entries=8, show_spinner=False)
def odd_characters(text_hash: str, _characters: str) -> pd.DataFrame:
    """Characters of a text that are probably not meant."""
    return corpora.odd_characters(_characters)


@st.cache_data(max_entries=8, show_spinner=False)
def repeated_share(text_hash: str, _characters: str) -> float:
    """How much of the held-out part of a text stands in its training part."""
    return corpora.repeated_share(_characters)


@st.cache_data(max_entries=8, show_spinner=False)
def references(key: str, _lesson: Lesson) -> dict[str, np.ndarray]:
    """What anything must beat on the windows of a lesson."""
    return learning_curves.references(_lesson)


@st.cache_data(max_entries=500, show_spinner=False)
def formation(path: str, stamp: int, half: int) -> pd.DataFrame:
    """The scores of every head in one snapshot, on random tokens that repeat once after up to `half`."""
    return induction.measure_heads(checkpoint_of(Path(path)).model, half, FORMATION_SEQUENCES).table


def formation_of(path: Path, half: int) -> pd.DataFrame:
    """The scores of every head in one snapshot as it is now."""
    return formation(str(path), path.stat().st_mtime_ns, half)


@st.cache_data(max_entries=200, show_spinner=False)
def written(key: str, length: int, _checkpoint: Checkpoint) -> str:
    """A text by a checkpoint, begun with a line break where it knows one; always of the same random numbers."""
    prompt = torch.tensor([[line_break(_checkpoint.tokenizer)]])
    return _checkpoint.tokenizer.decode(samples.generate(_checkpoint.model, prompt, length)[0, 1:].tolist())


def line_break(tokenizer: Tokenizer) -> int:
    """The token that a text begins after: a line break, or token 0 where there is none."""
    found = torch.zeros(0) if isinstance(tokenizer, NumberTokenizer) else tokenizer.encode("\n", "drop")
    return int(found[-1]) if len(found) else 0


def written_at(path: Path, length: int) -> str:
    """A text by one snapshot as it is now."""
    checkpoint = checkpoint_of(path)
    return written(f"{checkpoint.sha256} {checkpoint.tokenizer.identity}", length, checkpoint)


@st.cache_data(max_entries=64, show_spinner=False)
def seconds_a_step(shape: str, _config: ModelConfig, _recipe: Recipe) -> float:
    """How long a step of a training takes here, from its first steps; the key names shape and batch."""
    return budget.seconds_a_step(_config, _recipe)


@st.cache_resource(max_entries=8, show_spinner=False)
def bits_of_counts(text: str, context: int, _text: Text, _d_vocab: int) -> list[Row]:
    """Bits a character of what is only counted."""
    return bits_per_char.of_counts(_text, _d_vocab, context)


@st.cache_resource(max_entries=8, show_spinner=False)
def bits_of_bengio(path: str, stamp: int, text: str, context: int, _text: Text) -> Row:
    """Bits a character of a trained MLP."""
    model, papers = bengio.load(Path(path))
    return bits_per_char.of_bengio(model, _text, context, float(str(papers["seconds"])))


@st.cache_resource(max_entries=16, show_spinner=False)
def bits_of_gpt(checkpoint: str, text: str, _checkpoint: Checkpoint, _text: Text, _progress: Progress) -> Row:
    """Bits a character of a GPT."""
    seconds = float(_checkpoint.card.get("seconds", float("nan")))
    return bits_per_char.of_gpt(_checkpoint.name, _checkpoint.model, _text, seconds, progress=_progress)


@st.cache_data(max_entries=32, show_spinner=False)
def labels(pattern: str, text: str, vocabulary: str, _tokens: Tensor, _tokenizer: Tokenizer) -> np.ndarray:
    """Which tokens of a text's validation part a pattern marks."""
    return categories.label(pattern, [_tokenizer.decode([token]) for token in _tokens.tolist()])


@st.cache_resource(max_entries=8, show_spinner=False)
def gathered(
    checkpoint: str, windows: str, site: str, _model: GPT, _windows: Tensor, _progress: Progress
) -> Activations:
    """What a checkpoint holds at a site while it reads windows."""
    return activations.gather(_model, _windows, [site], _progress)[site]


def measured(key: str, work: Callable[[], T]) -> T:
    """A measurement on labelled activations; the key names what is measured and everything that it depends on."""
    return cast(T, _measured(key, work))


@st.cache_resource(max_entries=256, show_spinner=False)
def _measured(key: str, _work: Callable[[], object]) -> object:
    return _work()
