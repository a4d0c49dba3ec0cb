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

from interp_core import atlas, checkpoints, copying, jobs, learning_curves, run_files, training
from interp_core.atlas import HeadAtlas
from interp_core.learning_curves import Curves, Guidance
from interp_core.lessons import Lesson
from interp_core.statistics import interval
from ui import cache, runs, session, wording
from ui.charts import atlas as atlas_charts
from ui.charts import train as charts
from ui.runs import TrainingRun

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

        def measure(tell: cache.Progress) -> pd.DataFrame:
            tables = []
            for step, path in found.items():
                tables.append(cache.formation_of(path, half).assign(step=step))
                tell(len(tables) / len(found))
            return pd.concat(tables, ignore_index=True)

        return cache.with_progress(f"Measuring the heads of {len(found)} snapshots", measure)

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


def claim(watch: Watch) -> None:
    """The loss, its control, how far the run is, and what the curves say."""
    loss, control, progress = st.columns(3)
    curves, recipe = watch.curves, watch.run.plan.recipe
    if curves is None:
        job = watch.run.job
        if job is not None and job.state == "queued":
            st.info(
                f"Waiting: place {job.place} in the line. One run at a time has the machine; closing this page is fine."
            )
        elif job is not None and job.active:
            st.info("Starting: Python loads torch, then the first step is taken.", icon=":material/hourglass_top:")
        return
    loss.metric(
        "validation loss, nats" + _bits(watch, curves.validation[-1]), wording.plus_minus(_ends(curves.validation[-1]))
    )
    best = min(watch.references, key=lambda name: watch.references[name].mean())
    named = {"bigram": "control: pair counts", "uniform": "control: guessing, ln V"}
    control.metric(
        named.get(best, f"control: {best} counts") + _bits(watch, watch.references[best]),
        wording.plus_minus(_ends(watch.references[best])),
    )
    seconds = float(curves.table["seconds"].iloc[-1])
    rate = watch.step / max(seconds, 1e-9)
    left = (recipe.steps - watch.step) / rate
    ahead = f", {wording.duration(left)} left" if watch.run.active else ""
    progress.metric(f"steps, {wording.rate(rate)}{ahead}", f"{watch.step:,} of {recipe.steps:,}")
    if watch.run.active:
        st.progress(watch.step / recipe.steps)
    found = watch.guidance()
    assert found is not None
    good = found.kind in ("learning", "fits")
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.badge(
            found.headline,
            icon=":material/check:" if good else ":material/question_mark:",
            color="green" if good else "orange",
        )
        st.caption(found.advice, width="stretch")


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
    scale = 1 / NATS_PER_BIT if watch.characters else 1.0
    unit = "bits/char" if watch.characters else "nats"
    table = watch.curves.table.copy()
    losses = table.columns.str.contains("loss")
    table.loc[:, losses] *= scale
    names = {"uniform": "guessing", "unigram": "letter frequencies", "bigram": "pair counts"}
    marks = {
        f"{names[name]} {scale * known.mean():.2f}": float(scale * known.mean())
        for name, known in watch.references.items()
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
    panels = [charts.formation(table, score) for score in charts.PANELS]
    for place, panel in zip(st.columns(3), panels, strict=True):
        place.altair_chart(panel, alt="A score of every head over training steps.")
    st.caption(
        "A line is a head, with its 95% band over 64 sequences of random tokens that repeat once, so nothing but the heads' own "
        "habits shows; *matching* is what the place gets above an unrelated context's, and *copying* is read off the weights. An "
        "induction circuit forms when a previous-token head (left) and a matching head that copies (middle, right) rise together."
    )
    draw_links(watch, None)
    return charts.formations(table)


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
    session.default_to(session.SCRUB, options, options[-1])
    step = int(str(st.select_slider("Training step", options, key=session.SCRUB, bind="query-params")))
    measured, first = _atlas(watch, step), _atlas(watch, min(found))
    labels, before = atlas.label_heads(measured), atlas.label_heads(first)
    figure, about = st.columns([5, 3], gap="medium")
    grid = atlas_charts.head_grid(
        measured.patterns.numpy(), labels.table.merge(measured.table), None, session.is_dark(), 0.8, f"step {step:,}"
    )
    with figure:
        st.altair_chart(grid, width="content", alt=f"Mean attention pattern of every head at step {step}.")
        st.caption(
            "Row = the token that looks, column = the one looked at; the frame is the head's name. **Move the slider.**"
        )
    with about:
        st.caption(
            f"{labels.named.estimate:.0f} of {len(labels.table)} heads have a name at step {step:,} (95%: {labels.named.low:.0f} "
            f"to {labels.named.high:.0f}); control: {before.named.estimate:.0f} at step {min(found)}."
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
    return cache.with_progress(
        f"Measuring every head at step {step:,}",
        lambda tell: cache.head_atlas(checkpoint.sha256, cache.digest(windows), 0, checkpoint.model, windows, tell),
    )


def draw_sample(watch: Watch, step: int) -> None:
    """What the model writes at a step, always from the same random numbers."""
    st.caption(f"What it writes at step {step:,}:")
    st.code(cache.sample_of(watch.snapshots[step], SAMPLE), language=None, wrap_lines=True, height=170)


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


def draw_controls(run: TrainingRun) -> None:
    """Stop, resume, delete and carry home."""
    job = run.job
    if job is None:
        st.caption("It came with the app, with the records and snapshots of its training.")
        return
    if job.state == "failed":
        st.error(f"{job.message}")
    elif job.state == "interrupted":
        st.warning("Its process was killed. Nothing that it had saved is lost: resume it.")
    with st.container(horizontal=True, gap="small"):
        if job.active:
            st.button("Stop", icon=":material/stop:", on_click=_act, args=(jobs.stop, job), type="primary")
        elif job.state in jobs.RESUMABLE and job.code != training.GAVE_UP:
            st.button("Resume", icon=":material/play_arrow:", on_click=_act, args=(jobs.resume, job), type="primary")
        if not job.active:
            with st.popover("Delete", icon=":material/delete:"):
                st.markdown(f"Checkpoint, snapshots and curves of **{run.name}** are gone then, for everybody.")
                st.button("Delete it", on_click=_act, args=(jobs.delete, job))


def _act(action: Callable[[jobs.Job], None], job: jobs.Job) -> None:
    try:
        action(job)
    except jobs.JobError as error:
        st.session_state[session.TRAIN_ERROR] = str(error)


def code(run: TrainingRun, lesson: Lesson) -> str:
    """The Python that trains the same run."""
    plan, recipe = run.plan, run.plan.recipe
    if plan.file is not None:
        what = f'lessons.of_text("{plan.file.name}", corpora.read_file(Path("{plan.file.name}")), {plan.context})'
    elif lesson.vocabulary is None:
        what = f'lessons.of_sequences("{plan.text}", {plan.d_vocab}, {plan.context})'
    else:
        what = f'lessons.of_text("{plan.text}", corpora.read("{plan.text}"), {plan.context})'
    shape = f"lesson.d_vocab, {plan.context}, {plan.d_model}, {plan.heads}, {plan.layers}, d_mlp={plan.d_mlp}"
    return f"""from pathlib import Path

from interp_core import corpora, lessons, plans, training
from interp_core.model import GPT

lesson = {what}
recipe = plans.{recipe}
run = training.Run(GPT(plans.shape({shape}), seed={recipe.seed}), recipe)
for record in training.train(run, lesson, every={plan.record_every}):
    print(record.step, record.training_loss, record.validation_loss)

# or, in a shell, with checkpoint, card and snapshots:
# {plan.command}"""


VIEWS: dict[str, Callable[[Watch], Chart]] = {"learning": learning, "heads form": heads_form, "snapshots": scrub}

POLL = {
    "learning": 1.0,
    "heads form": 2.0,
}  # seconds between two looks at a run that goes on; snapshots wait for a move


def packed(watch: Watch) -> bytes:
    """The run as a zip."""
    return runs.packed(watch.run, pd.DataFrame() if watch.curves is None else watch.curves.table)


def _ends(windows: np.ndarray) -> wording.Interval:
    return interval(windows, 0)


def _bits(watch: Watch, windows: np.ndarray) -> str:
    return f" ({windows.mean() / NATS_PER_BIT:.2f} bits/char)" if watch.characters else ""
