"""The sidebar's first question: which checkpoint, and at which step of its training."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from interp_core import checkpoints, run_files
from interp_core.checkpoints import Checkpoint, CheckpointError
from interp_core.tokenizers import NumberTokenizer
from ui import cache, session, uploads

FIRST = "shakespeare"  # the checkpoint that the app opens on
LAST = "last"  # not a snapshot: the checkpoint itself


@dataclass(frozen=True, eq=False)
class Chosen:
    """A checkpoint, where it lies, and whether its number of heads waits for the visitor's word."""

    checkpoint: Checkpoint
    path: Path | None  # None for an upload
    asks: bool


def choose_checkpoint() -> Chosen:
    """The chosen checkpoint, or the chosen snapshot of its training."""
    found = [*checkpoints.find(session.FOLDER), *checkpoints.find_runs(session.RUNS)]
    stems = Counter(path.stem for path in found)
    paths = {path.stem if stems[path.stem] == 1 else path.name: path for path in found}
    brought = st.session_state.get(session.UPLOADS, {})
    names = sorted(paths, key=lambda name: (name != FIRST, found.index(paths[name]))) + list(brought)
    if not names:
        st.error(f"No checkpoint lies in {session.FOLDER.name}/. Put one there (.pt), or bring your own below.")
        uploads.draw()
        st.stop()
    asked = st.query_params.get(session.CHECKPOINT)
    if asked is not None and asked not in names:
        st.warning(f"The link asks for the checkpoint {asked}, which is not here: bring it below. Showing {names[0]}.")
    which, when = st.columns([3, 2])
    name = which.selectbox(
        "Checkpoint", names, key=session.CHECKPOINT, bind="query-params", on_change=session.forget_head
    )
    name = name or names[0]
    if name in paths:
        with when:
            paths[name] = _choose_step(paths[name])
    name, chosen = _load(name, paths, brought, names)
    config = chosen.checkpoint.model.config
    heads = "?" if chosen.asks else config.heads
    st.caption(
        f"{chosen.checkpoint.model.count():,} parameters · {config.layers} × {heads} heads · d = {config.d_model} · "
        f"T = {config.context} · V = {config.d_vocab} · {chosen.checkpoint.short_hash}"
    )
    uploads.draw()
    return chosen


def _choose_step(path: Path) -> Path:
    """One of the snapshots of a checkpoint's training, or the checkpoint itself."""
    snapshots = run_files.snapshots(path)
    options = [LAST, *(f"{step}" for step in snapshots)]
    if len(options) == 1:
        return path
    asked = st.query_params.get(session.STEP)
    if asked is not None and asked not in options:
        st.warning(f"No snapshot at step {asked}: showing the last.")
    step = st.selectbox(
        "At step", options, key=session.STEP, bind="query-params", on_change=session.forget_head,
        help="Snapshots of its training: the same page, earlier in the life of the model.",
    )  # fmt: skip
    return path if step is None or step == LAST else snapshots[int(step)]


def _load(name: str, paths: dict[str, Path], brought: dict, names: list[str]) -> tuple[str, Chosen]:
    """The named checkpoint, or the first that can be read, with a word about the one that cannot."""
    for candidate in (name, *(other for other in names if other != name)):
        answers = st.session_state.get(session.ANSWERS, {}).get(candidate, {})
        load: Callable[[Mapping[str, Any]], Checkpoint] = (
            brought[candidate].load if candidate in brought else partial(cache.checkpoint_of, paths[candidate])
        )
        try:
            checkpoint, asks = uploads.open_with(load, answers)
            if candidate in paths and run_files.step_of(paths[candidate]) is None:
                checkpoint = replace(checkpoint, name=candidate)
            return candidate, Chosen(_named(checkpoint), paths.get(candidate), asks)
        except (CheckpointError, OSError) as error:
            st.error(f"{candidate}: {error}")
    st.stop()


def _named(checkpoint: Checkpoint) -> Checkpoint:
    """With the characters of a text that has as many, where nothing that came with it names its tokens."""
    if not isinstance(checkpoint.tokenizer, NumberTokenizer) or checkpoint.card.get("vocabulary", ...) is None:
        return checkpoint
    vocabulary = uploads.guess(checkpoint.model.config.d_vocab)
    return checkpoint if vocabulary is None else checkpoints.with_vocabulary(checkpoint, vocabulary)
