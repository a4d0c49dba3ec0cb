"""Low-rank tuning on the Tuning page: the form, the sweep while it runs, and what it found."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import streamlit as st

from interp_core import corpora, jobs, lora_sweep, run_files
from interp_core.lora import TARGETS, Tuning
from interp_core.lora_job import Plan, Results
from ui import cache, runs, session, tunings, wording
from ui.bench import Bench
from ui.charts import tuning as charts
from ui.session import NEW_TUNING
from ui.takeaway import shown_path
from ui.tunings import Tuned, UnknownCharacters

Row = Mapping[Any, Any]  # of the table of variants
NEW = "tune anew"
STEPS = ("30", "60", "120", "240")
LOOK = 1.0  # seconds between two looks at a sweep


@dataclass(frozen=True, eq=False)
class Found:
    """A sweep and its table."""

    bench: Bench
    tuned: Tuned
    results: Results
    table: pd.DataFrame

    @property
    def provenance(self) -> str:
        """Where the numbers come from, in one line."""
        papers = self.results.papers
        windows, tuning = papers["windows"], papers["tuning"]
        return (
            f"checkpoint {self.bench.checkpoint.name} ({self.bench.checkpoint.short_hash}) · tuned on {papers['target']}, "
            f"{windows['tokens learned']:,} tokens, {tuning['steps']} steps of {tuning['batch']} windows · judged on "
            f"{windows['target'] // 2} windows of it and {windows['source']} of the source · {papers['seeds']} seeds"
        )

    @property
    def ranks(self) -> list[int]:
        """The ranks that are done."""
        return sorted(self.table[self.table["kind"] == "low rank"]["rank"])


def draw_form(bench: Bench) -> None:
    """What is to be tuned, and on what."""
    options = tunings.offered(bench)
    if not options:
        st.info("This checkpoint's tokens are numbers: choose one that was trained on a text.")
        return
    left, right = st.columns(2)
    with left:
        session.keep_choice(NEW_TUNING["target"], options)
        target = st.selectbox(
            "Second text", options, key=NEW_TUNING["target"],
            help="A speaker, verse and prose are taken from the held-out part of the text on the bench, if it is a play: the "
            "base model has not seen them. Bring any other text in the sidebar.",
        )  # fmt: skip
        targets = st.multiselect("Matrices", list(TARGETS), ["queries", "values"], key=NEW_TUNING["targets"])
    with right:
        steps = st.select_slider("Steps of 16 windows", STEPS, "60", key=NEW_TUNING["steps"])
        seeds = st.slider("Seeds", 2, 5, 3, key=NEW_TUNING["seeds"])
    if not targets:
        st.info("Choose at least one kind of matrix.")
        return
    given = _texts(bench, str(target))
    if given is None:
        return
    plan = Plan(Path(), Path(), target=str(target), targets=tuple(targets), seeds=int(seeds),
                tuning=Tuning(steps=int(steps), seed=bench.seed, targets=tuple(targets)))  # fmt: skip
    variants = lora_sweep.variants(bench.checkpoint.model, plan.tuning, plan.ranks)
    st.caption(
        f"{len(given[0]):,} tokens of {target}, a quarter of them held out. "
        f"{lora_sweep.count(variants, plan.seeds)} tunings: every rank, all weights and the controls, each at the best of four "
        "learning rates. It runs beside the app: close the page, it goes on."
    )
    st.button("Tune", type="primary", icon=":material/play_arrow:", on_click=_start, args=(plan, bench, given))


def _texts(bench: Bench, target: str) -> tuple[corpora.Text, corpora.Text] | None:
    try:
        return tunings.texts(bench, target, drop=False)
    except UnknownCharacters as error:
        st.warning(f"{error}")
        if not st.checkbox("Leave them out", key=NEW_TUNING["drop"]):
            return None
        return tunings.texts(bench, target, drop=True)


def _start(plan: Plan, bench: Bench, given: tuple[corpora.Text, corpora.Text]) -> None:
    stem = re.sub(r"[^a-z0-9]+", "-", f"{bench.checkpoint.name.split(' ')[0]}-{plan.target}".lower()).strip("-")
    try:
        job = tunings.start(plan, bench, given, runs.free_name(stem[:36].strip("-")))
    except (jobs.JobError, ValueError) as error:
        st.session_state[session.TUNING_ERROR] = str(error)
        return
    st.session_state[session.TUNING] = job.name


def open_sweep(bench: Bench, tuned: Tuned) -> Found | None:
    """What a sweep has found so far; None before its first rank is done."""
    if not tuned.stamp:
        return None
    results = cache.sweep_results(str(tuned.results), tuned.stamp)
    rates = {name: tuple(tried) for name, tried in results.papers["rates"].items()}
    table = lora_sweep.table(results.outcomes, rates, bench.seed)
    return Found(bench, tuned, results, table) if (table["kind"] == "low rank").any() else None


def draw_progress(tuned: Tuned) -> None:
    """How far a sweep is."""
    job = None if tuned.job is None else jobs.look(tuned.job.folder)
    if job is None or tuned.out is None:
        return
    records = run_files.records(tuned.out)
    if job.state == "failed":
        st.error(job.message)
    elif job.state == "queued":
        st.progress(0.0, f"Waiting, place {job.place} in the line")
    elif job.active:
        last: Row = records[-1] if records else {"part": "reading", "step": 0, "steps": 1}
        st.progress(last["step"] / last["steps"], f"{last['part']}: {last['step']} of {last['steps']} tunings")


@st.fragment(run_every=LOOK)
def watch(tuned: Tuned, stamp: int) -> None:
    """The progress while a sweep runs, and the page anew when there is more to see."""
    draw_progress(tuned)
    job = None if tuned.job is None else jobs.look(tuned.job.folder)
    if job is None or not job.active or tuned.stamp != stamp:
        st.rerun()


def draw_controls(tuned: Tuned) -> None:
    """Stop, delete."""
    if tuned.job is None:
        st.caption("It came with the app.")
        return
    job = jobs.look(tuned.job.folder)
    if job is None:
        return
    st.caption(f"{job.state}" if not job.place else f"waiting, place {job.place}")
    with st.container(horizontal=True, gap="small"):
        if job.active:
            st.button("Stop", icon=":material/stop:", on_click=_act, args=(jobs.stop, job))
            return
        if job.state in jobs.RESUMABLE:
            st.button("Begin again", icon=":material/replay:", on_click=_act, args=(jobs.resume, job))
        with st.popover("Delete", icon=":material/delete:"):
            st.markdown(f"**{job.name}** is gone then, for everybody.")
            st.button("Delete it", on_click=_act, args=(jobs.delete, job))


def _act(action: Callable[[jobs.Job], None], job: jobs.Job) -> None:
    try:
        action(job)
    except jobs.JobError as error:
        st.session_state[session.TUNING_ERROR] = str(error)


def claim(found: Found) -> None:
    """What the smallest sufficient rank gains, all weights, and the strongest control."""
    rows: dict[str, Row] = {str(row["variant"]): row for row in found.table.to_dict("records")}
    rank = lora_sweep.elbow(found.table)
    mine, full = rows[f"rank {rank}"], rows.get(lora_sweep.FULL)
    controls = [row for row in rows.values() if row["kind"] in ("frozen A", "head only", "dense")]
    best = max(controls, key=lambda row: float(row["gain_nats"]), default=None)
    left, middle, right, last = st.columns(4)
    left.metric(
        f"rank {rank}: gain, nats", _value(mine, "gain_nats"),
        help=f"On held-out windows of the second text. {mine['parameters']:,} numbers learned; the smallest rank that is not "
        f"clearly worse than the best. Interval over seeds: {mine['gain_seeds_low']:+.3f} to {mine['gain_seeds_high']:+.3f}.",
    )  # fmt: skip
    middle.metric("all weights", "not yet" if full is None else _value(full, "gain_nats"))
    right.metric(
        "best control" if best is None else f"control: {best['variant']}",
        "not yet" if best is None else _value(best, "gain_nats"),
    )
    last.metric(f"forgotten of the source, rank {rank}", _value(mine, "forgetting_nats"))
    held = _held(found)
    good, words = wording.tuning_verdict(rank, mine, full, best, None if held is None else _needed(held))
    st.badge(
        words, icon=":material/check:" if good else ":material/question_mark:", color="green" if good else "orange"
    )
    edges = list(found.table[found.table["edge"]]["variant"])
    if edges:
        st.caption(f"Their best learning rate was the largest or smallest of those tried: {', '.join(edges)}.")


def _value(row: Row, name: str) -> str:
    return f"{row[name]:+.3f} ±{(row[f'{name}_high'] - row[f'{name}_low']) / 2:.3f}"


def _held(found: Found) -> pd.DataFrame | None:
    """Share of the full update that the first directions of each matrix hold: matrix, rank, held."""
    spectra = found.results.papers.get("spectra")
    if not spectra:
        return None
    held = {name: np.cumsum(values) for name, values in spectra.items()}
    least = min(len(values) for values in held.values())
    held["median"] = np.median([values[:least] for values in held.values()], axis=0)
    parts = [pd.DataFrame({"matrix": name, "rank": np.arange(1, len(v) + 1), "held": v}) for name, v in held.items()]
    return pd.concat(parts)


def _needed(held: pd.DataFrame, share: float = 0.9) -> int:
    """How many directions of the median matrix hold so much."""
    median = held[held["matrix"] == "median"]
    return int((median["held"] < share).sum()) + 1


def the_quality(found: Found) -> alt.LayerChart:
    """Gain on the second text against what is learned."""
    return _scatter(found, "gain_nats", "gain on the second text, nats")


def the_forgetting(found: Found) -> alt.LayerChart:
    """Loss on the source against what is learned."""
    return _scatter(found, "forgetting_nats", "loss added on the source, nats")


def _scatter(found: Found, column: str, title: str) -> alt.LayerChart:
    seeds = column == "gain_nats"
    chart = charts.quality(found.table[found.table["kind"] != "base"], column, title, seeds)
    st.altair_chart(chart, alt=f"{title}, against the number of learned parameters.")
    st.caption(
        "A point is a variant at its best learning rate, the mean of its seeds"
        + (" (ticks)" if seeds else "")
        + "; bars: 95% over held-out windows that chose nothing. Blue line: ranks. Red: all weights. The others are controls."
    )
    return chart


def the_spectrum(found: Found) -> alt.LayerChart | None:
    """Singular values of the full update."""
    held = _held(found)
    if held is None:
        st.info("The tuning of all weights is not done yet.")
        return None
    chart = charts.spectra(held, found.ranks)
    st.altair_chart(chart, alt="Share of the full update held by its first singular directions.")
    st.caption(
        f"Grey: every matrix of the tuning of all weights; red: their median, {_needed(held)} directions for 90%. Blue: the "
        "ranks of the sweep. Where quality saturates well left of the red line's rise, a good update need not be *the* update."
    )
    return chart


def the_heads(found: Found) -> alt.LayerChart | None:
    """Which heads moved."""
    rank, papers = lora_sweep.elbow(found.table), found.results.papers
    names = [f"rank {rank}", lora_sweep.FULL]
    name = st.segmented_control(
        "Tuned by", names, default=names[0], key=session.TUNED_BY, required=True, label_visibility="collapsed"
    )
    moved = papers.get(f"heads {name}")
    if moved is None:
        st.info("Not done yet.")
        return None
    chart = charts.heads(np.array(moved), str(name))
    st.altair_chart(chart, width="content", alt="How far each head's matrices moved.")
    st.caption("Frobenius norm of the change of a head's queries, keys, values and outputs, over that of the weights.")
    return chart


VIEWS: dict[str, Callable[[Found], alt.LayerChart | None]] = {
    "quality": the_quality,
    "forgetting": the_forgetting,
    "spectrum": the_spectrum,
    "heads": the_heads,
}


def beside(found: Found) -> None:
    """The table of variants, and the way to the tuned model on other pages."""
    shown = found.table.assign(
        target=[_value(row, "gain_nats") for row in found.table.to_dict("records")],
        source=[_value(row, "forgetting_nats") for row in found.table.to_dict("records")],
    )
    shown = shown[shown["kind"] != "base"]
    st.dataframe(
        shown[["variant", "parameters", "lr", "target", "source"]].rename(columns={"target": "gain", "source": "forgotten"}),
        hide_index=True, row_height=28, height=300,
    )  # fmt: skip
    out = found.tuned.out
    if out is not None and out.is_file():
        st.page_link(
            "pages/atlas.py", label=f"{out.stem} in the Atlas: which heads changed?", icon=":material/arrow_forward:",
            query_params={session.CHECKPOINT: out.stem},
        )  # fmt: skip


def code(found: Found) -> str:
    """The Python that reads the same table."""
    path = shown_path(found.tuned.results)
    return f"""from pathlib import Path

from interp_core import lora_job, lora_sweep

found = lora_job.read(Path({path!r}))
rates = {{name: tuple(tried) for name, tried in found.papers["rates"].items()}}
table = lora_sweep.table(found.outcomes, rates, seed={found.bench.seed})
print(lora_sweep.elbow(table))
print(table)
# made by: {found.results.papers["command"]}"""
