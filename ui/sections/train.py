"""The Train page's look at one run: its curves, how its heads form, its snapshots."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import streamlit as st

from interp_core import atlas, checkpoints, copying, induction, learning_curves, run_files, training
from interp_core.atlas import HeadAtlas
from interp_core.induction import Circuit
from interp_core.learning_curves import Curves, Guidance
from interp_core.lessons import Lesson
from interp_core.model import GPT
from interp_core.statistics import interval
from ui import cache, session, wording
from ui.charts import atlas as atlas_charts
from ui.charts import train as charts
from ui.progress import Progress, with_progress
from ui.runs import TrainingRun

GRID = 0.74  # of the grid of heads beside a sample
SAMPLE = 240  # characters
LONGEST_HALF = 32  # tokens of a repeat on which heads are measured
NATS_PER_BIT = math.log(2)
Chart = alt.LayerChart | alt.HConcatChart | None


@dataclass(frozen=True, eq=False)
class Watch:
    """One run as it stands now: everything that the page shows of it."""

    run: TrainingRun
    lesson: Lesson
    references: dict[str, np.ndarray]  # nats, one number a validation window
    curves: Curves | None

    @property
    def characters(self) -> bool:
        """Whether its tokens are characters."""
        return self.lesson.vocabulary is not None

    @property
    def step(self) -> int:
        """How far it has come."""
        return 0 if self.curves is None else int(self.curves.table["step"].iloc[-1])

    @property
    def snapshots(self) -> dict[int, Path]:
        """Its snapshots by step, and its checkpoint as the last of them once it is done."""
        return run_files.snapshots(self.run.out) if self.run.active else checkpoints.history(self.run.out)

    def guidance(self) -> Guidance | None:
        """What its curves say; None while there are none."""
        if self.curves is None:
            return None
        steps, fresh = self.run.plan.recipe.steps, self.lesson.training_tokens is None
        return learning_curves.judge(self.curves, self.references, steps, fresh)

    def formation(self) -> pd.DataFrame | None:
        """The scores of every head at every snapshot; None where there is none, or no room for a repeat."""
        half = min(LONGEST_HALF, copying.longest_half(self.run.plan.context, 2))
        found = self.snapshots
        if not found or half < copying.SHORTEST:
            return None

        def measure(tell: Progress) -> pd.DataFrame:
            tables = []
            for step, path in found.items():
                tables.append(cache.formation_of(path, half).assign(step=step))
                tell(len(tables) / len(found))
            return pd.concat(tables, ignore_index=True)

        return with_progress(f"Measuring the heads of {len(found)} snapshots", measure)

    @property
    def provenance(self) -> str:
        """Where the numbers come from, in one line."""
        plan, windows = self.run.plan, self.lesson.validation.shape
        return (
            f"run {self.run.name}, step {self.step:,} of {plan.recipe.steps:,} · text {self.lesson.name} · {windows[0]} disjoint "
            f"windows of {windows[1] - 1} tokens, fixed for the run · seed {plan.recipe.seed}"
        )


def open_run(run: TrainingRun) -> Watch:
    """Reads what a run has written so far.

    Raises:
        ValueError, OSError, corpora.TextUnavailable: its text can no longer be read.
    """
    lesson = cache.lesson_of(run.plan)
    known = cache.references(cache.digest(lesson.validation), lesson)
    return Watch(run, lesson, known, learning_curves.read(run_files.records(run.out)))


def claim(watch: Watch, advice: bool) -> None:
    """The loss, its control, how far the run is, and what the curves say."""
    loss, control, progress = st.columns(3)
    curves, recipe = watch.curves, watch.run.plan.recipe
    if curves is None:
        _nothing_yet(watch.run)
        return
    loss.metric(
        "validation loss, nats" + _bits(watch, curves.validation[-1]),
        wording.plus_minus(interval(curves.validation[-1], 0)),
    )
    best = learning_curves.to_beat(watch.references)
    known = watch.references[best]
    control.metric(
        f"control: {best}{_bits(watch, known)}", wording.plus_minus(interval(known, 0)),
        help="The best of what a model should beat, on the same windows. Counts of a text come from its training part; *tokens "
        "so far* counts the tokens of the sequence at hand, which takes no circuit.",
    )  # fmt: skip
    seconds = float(curves.table["seconds"].iloc[-1])
    rate = watch.step / max(seconds, 1e-9)
    ahead = f", {wording.duration((recipe.steps - watch.step) / rate)} left" if watch.run.active else ""
    progress.metric(f"steps, {wording.rate(rate)}{ahead}", f"{watch.step:,} of {recipe.steps:,}")
    if watch.run.active:
        st.progress(watch.step / recipe.steps)
    job = watch.run.job
    if job is not None and job.code == training.GAVE_UP:
        _badge(False, "diverged", f"{job.message[0].upper()}{job.message[1:]}. {_kept(watch.run)}")
        return
    found = watch.guidance()
    assert found is not None
    _badge(found.kind in ("learning", "fits"), found.headline, found.advice if advice else "")


def _nothing_yet(run: TrainingRun) -> None:
    """What there is to say of a run without a single record."""
    job = run.job
    if job is None or job.state == "finished":
        st.info("No records of this training were kept.")
    elif job.state == "queued":
        st.info(
            f"Waiting: place {job.place} in the line. One run at a time has the machine; closing this page is fine."
        )
    elif job.active:
        st.info("Starting: Python loads torch, then the first step is taken.", icon=":material/hourglass_top:")
    else:
        st.info("It stopped before its first record.")


def _badge(good: bool, headline: str, words: str) -> None:
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.badge(
            headline,
            icon=":material/check:" if good else ":material/question_mark:",
            color="green" if good else "orange",
        )
        st.caption(words, width="stretch")


def _kept(run: TrainingRun) -> str:
    if not run.out.is_file():
        return "No checkpoint was good enough to be kept."
    return f"The checkpoint of step {cache.checkpoint_of(run.out).card.get('step')}, from before, is kept."


def learning(watch: Watch) -> Chart:
    """The losses over steps, beside them a sample."""
    if watch.curves is None:
        return None
    figure, about = st.columns([5, 3], gap="medium")
    with about:
        steps = watch.snapshots
        if watch.characters and steps:
            draw_sample(watch, max(steps))
        elif not watch.characters:
            st.caption(
                f"**{watch.lesson.name}**: random sequences with a rule, drawn anew for every step, so nothing can be learned by "
                "heart. Watch for a sudden fall, and open *heads form* to see what forms there."
            )
        draw_links(watch, None)
    bits = watch.characters and st.session_state.get(session.UNIT) == wording.BITS
    scale, unit = (1 / NATS_PER_BIT, wording.BITS) if bits else (1.0, wording.NATS)
    table = watch.curves.table.copy()
    losses = table.columns.str.contains("loss")
    table.loc[:, losses] *= scale
    marks = {
        f"{name} {scale * known.mean():.2f}": float(scale * known.mean()) for name, known in watch.references.items()
    }
    chart = charts.curves(table, marks, unit)
    with figure:
        st.altair_chart(chart, alt="Training and validation loss over steps, with the losses of counts as lines.")
        st.caption(
            "Red: held-out text; blue: text it was trained on, both on fixed windows with 95% bands. They part when it learns by "
            "heart. Grey: the training batches, smoothed, dropout included. Steps are on a logarithmic axis."
        )
    return chart


def heads_form(watch: Watch) -> Chart:
    """Three scores of every head over the snapshots."""
    table = watch.formation()
    if table is None:
        st.info("No snapshot yet: the first comes at step 30." if watch.run.active else "This run kept no snapshots.")
        return None
    _badge(*_formed(watch))
    panels = [charts.formation(table, score) for score in charts.PANELS]
    for place, panel in zip(st.columns(3), panels, strict=True):
        place.altair_chart(panel, alt="A score of every head over training steps.")
    st.caption(
        "A line is a head, with its 95% band over 64 sequences of random tokens that repeat once. *Prefix matching* is "
        "attention to what followed the earlier occurrence, above what that place gets after an unrelated context. When an "
        "induction circuit forms, the left and the middle panel rise together. *Copying* is read off the weights: above zero, "
        "a head raises what it looks at; where embeddings are loud it is near 1 for every head and tells nothing."
    )
    draw_links(watch, None)
    return charts.formations(table)


def _formed(watch: Watch) -> tuple[bool, str, str]:
    """Whether the circuit's heads are there at the newest snapshot, and in an untrained model of the same shape."""
    checkpoint = cache.checkpoint_of(watch.snapshots[max(watch.snapshots)])
    half = min(LONGEST_HALF, copying.longest_half(watch.run.plan.context, 2))
    config = checkpoint.model.config
    untrained = GPT(config, watch.run.plan.recipe.seed)

    def circuit(key: str, model: GPT) -> Circuit:
        label = "Looking for the heads of a circuit"
        return with_progress(label, lambda tell: cache.circuit(key, half, 0, induction.SEQUENCES, model, tell))

    return wording.formation_verdict(
        circuit(checkpoint.sha256, checkpoint.model), circuit(f"untrained {config}", untrained)
    )


def scrub(watch: Watch) -> Chart:
    """One snapshot: every head's pattern, a sample, every head's scores."""
    found = watch.snapshots
    if len(found) < 2:
        st.info(
            "Two snapshots are the least to move between: wait for them."
            if watch.run.active
            else "No snapshots were kept."
        )
        return None
    options = [f"{step}" for step in found]
    session.keep_choice(session.SCRUB, options)
    figure, about = st.columns([5, 3], gap="medium")
    step = int(
        about.select_slider(
            "Training step", options, options[-1], key=session.SCRUB, bind="query-params", width="stretch"
        )
    )
    measured, first = _atlas(watch, step), _atlas(watch, min(found))
    labels, before = atlas.label_heads(measured), atlas.label_heads(first)
    grid = atlas_charts.head_grid(
        measured.patterns.numpy(), labels.table.merge(measured.table), None, session.is_dark(), GRID, f"step {step:,}"
    )
    with figure:
        st.altair_chart(grid, width="content", alt=f"Mean attention pattern of every head at step {step}.")
        st.caption(
            "Row = the token that looks, column = the one looked at; the frame is the head's name. **Move the slider.**"
        )
    with about:
        control = f"; control: {before.named.estimate:.0f} at step {min(found)}" if step > min(found) else ""
        st.caption(
            f"{labels.named.estimate:.0f} of {len(labels.table)} heads have a name at step {step:,} ({labels.named.low:.0f} to "
            f"{labels.named.high:.0f} in 95% of resamples of windows){control}."
        )
        if watch.characters:
            draw_sample(watch, step)
        table = watch.formation()
        if table is not None:
            columns = {"previous_token_score": "previous", "matched_score": "matching", "copying_score": "copying"}
            now = table[table["step"] == step].sort_values("matched_score", ascending=False)
            st.dataframe(
                now[["head", *columns]].rename(columns=columns).round(2), hide_index=True, height=170, row_height=26
            )
        draw_links(watch, step)
    return grid


def _atlas(watch: Watch, step: int) -> HeadAtlas:
    """What every head of a snapshot looks at, on the run's validation windows."""
    checkpoint, windows = cache.checkpoint_of(watch.snapshots[step]), watch.lesson.validation
    return with_progress(
        f"Measuring every head at step {step:,}",
        lambda tell: cache.head_atlas(checkpoint.sha256, cache.digest(windows), 0, checkpoint.model, windows, tell),
    )


def draw_sample(watch: Watch, step: int) -> None:
    """What the model writes at a step, always from the same random numbers."""
    st.caption(f"What it writes at step {step:,}:")
    st.code(cache.written_at(watch.snapshots[step], SAMPLE), language=None, wrap_lines=True, height=170)


def draw_links(watch: Watch, step: int | None) -> None:
    """The same checkpoint, or one snapshot of it, on the other pages."""
    if not watch.run.out.is_file():
        return
    chosen: dict[str, Any] = {session.CHECKPOINT: watch.run.name}
    if step is not None and step in run_files.snapshots(watch.run.out):
        chosen[session.STEP] = f"{step}"
    left, middle, right = st.columns(3)
    for place, page in ((left, "Atlas"), (middle, "Ablation"), (right, "Induction")):
        place.page_link(f"pages/{page.lower()}.py", label=page, icon=":material/arrow_forward:", query_params=chosen)


VIEWS: dict[str, Callable[[Watch], Chart]] = {"learning": learning, "heads form": heads_form, "snapshots": scrub}

POLL = {
    "learning": 1.0,
    "heads form": 2.0,
}  # seconds between two looks at a run that goes on; snapshots wait for a move


def _bits(watch: Watch, windows: np.ndarray) -> str:
    return f" ({windows.mean() / NATS_PER_BIT:.2f} bits/char)" if watch.characters else ""
