"""Training an autoencoder from the page: the form, and what is seen while it runs."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import streamlit as st

from interp_core import jobs, run_files
from interp_core.sae import KINDS
from interp_core.sae_job import MAIN, SWEEP, TWIN, UNTRAINED, Plan
from interp_core.sae_training import Recipe
from ui import runs, saes, session
from ui.bench import Bench
from ui.charts import sae as charts
from ui.saes import Dictionary
from ui.session import NEW_SAE

NEW = "train a new one"
SITES = {
    "resid_post": "residual stream",
    "mlp_post": "MLP neurons",
    "attn_out": "attention output",
    "mlp_out": "MLP output",
}
EXPANSIONS, SPARSITIES = ("4", "8", "16", "32"), ("4", "8", "16", "32", "64")
STEPS = ("300", "750", "1500", "3000", "6000")
PENALTIES = ("0.03", "0.1", "0.3", "1")
PARTS = 3 + len(SWEEP)
LOOK = 1.0  # seconds between two looks at a training


def draw_form(bench: Bench) -> None:
    """What is to be trained."""
    usual, config = Plan(Path(), Path()), bench.checkpoint.model.config
    kinds = [kind for kind in SITES if config.d_mlp or not kind.startswith("mlp")]
    first, second, third = st.columns(3)
    with first:
        kind = st.radio(
            "Kind", KINDS, key=NEW_SAE["kind"],
            help="TopK: the k largest features of every token. BatchTopK: k a token on average. L1: ReLU and a penalty.",
        ) or KINDS[0]  # fmt: skip
        site = st.selectbox("Site", kinds, key=NEW_SAE["site"], format_func=lambda name: f"{name} ({SITES[name]})")
    with second:
        layers = list(range(config.layers))
        session.keep_choice(NEW_SAE["layer"], [str(layer) for layer in layers])
        layer = st.selectbox("Layer", [str(layer) for layer in layers], len(layers) // 2, key=NEW_SAE["layer"])
        expansion = st.select_slider("Features for every dimension", EXPANSIONS, "16", key=NEW_SAE["expansion"])
        if kind == "L1":
            sparsity = st.select_slider("Penalty of Σ|f|", PENALTIES, "0.1", key=NEW_SAE["l1"])
        else:
            sparsity = st.select_slider("k: features a token", SPARSITIES, "16", key=NEW_SAE["k"])
    with third:
        steps = st.select_slider("Steps of 1,024 tokens", STEPS, "1500", key=NEW_SAE["steps"])
        seed = st.number_input("Seed of the training", 0, 9999, 0, key=NEW_SAE["seed"])
        controls = st.toggle(
            "With its controls", True, key=NEW_SAE["controls"],
            help="A second seed (which features come back?), an untrained model, and a quick sweep of the sparsity. They "
            "take about three times as long again; the features can be looked at meanwhile.",
        )  # fmt: skip
    recipe = replace(Recipe(), steps=int(steps), seed=int(seed))
    recipe = replace(recipe, l1=float(sparsity)) if kind == "L1" else recipe
    plan = replace(
        usual, site=f"{site}.{layer}", kind=kind, expansion=int(expansion), controls=bool(controls), recipe=recipe,
        k=usual.k if kind == "L1" else int(sparsity),
    )  # fmt: skip
    st.caption(
        f"Learns from {bench.text.name}: up to {plan.rows:,} tokens of its training part ({len(bench.text.train):,}), on "
        f"{plan.site} of {bench.checkpoint.name}. It runs beside the app: close the page, it goes on."
    )
    st.button("Train", type="primary", icon=":material/play_arrow:", on_click=_start, args=(plan, bench))


def _start(plan: Plan, bench: Bench) -> None:
    stem = re.sub(r"[^a-z0-9]+", "-", f"{bench.checkpoint.name.split(' ')[0]}-{plan.site}-{plan.kind}".lower()).strip(
        "-"
    )
    try:
        job = saes.start(plan, bench, runs.free_name(stem[:36].strip("-")))
    except (jobs.JobError, ValueError) as error:
        st.session_state[session.SAE_ERROR] = str(error)
        return
    st.session_state[session.SAE] = job.name


def progress(chosen: Dictionary) -> pd.DataFrame:
    """The records of a training so far."""
    return pd.DataFrame(run_files.records(chosen.out))


def draw(chosen: Dictionary) -> None:
    """The curves of a training, live while it runs."""
    if chosen.job is not None and chosen.job.active:
        watch(chosen, chosen.stamp)
    else:
        draw_training(chosen)


def draw_training(chosen: Dictionary) -> None:
    """Live curves of a training, or those that it left."""
    table, job = progress(chosen), chosen.job
    now = None if job is None else jobs.look(job.folder)
    if now is not None and now.active:
        st.progress(*_share(table, now))
    if table.empty:
        if now is not None and now.state == "failed":
            st.error(now.message)
        return
    table = table.assign(recovered=[entry["estimate"] for entry in table["recovered"]])
    main, shown = table[table["part"] == MAIN], table[table["part"].isin([MAIN, TWIN, UNTRAINED])]
    left, right = st.columns(2)
    for place, column, title in (
        (left, "recovered", "cross-entropy recovered"), (right, "dead", "features that are dead"),
    ):  # fmt: skip
        place.altair_chart(charts.curves(shown, column, title), alt=f"{title} while autoencoders are trained.")
    st.caption(
        f"On windows of the validation part. Dead: silent for {Recipe().dead_after:,} tokens of the training; "
        f"{int(main['resampled'].max())} of the autoencoder's were revived or resampled on the way."
    )


def _share(table: pd.DataFrame, job: jobs.Job) -> tuple[float, str]:
    if job.state == "queued":
        return 0.0, f"Waiting, place {job.place} in the line"
    if table.empty:
        return 0.0, "Reading the text"
    order = [MAIN, TWIN, *(f"sparsity × {times:g}" for times in SWEEP), UNTRAINED]
    last = table.iloc[-1]
    done = order.index(last["part"]) + last["step"] / last["steps"]
    return min(1.0, float(done) / PARTS), f"{last['part']}: step {last['step']:,} of {last['steps']:,}"


def draw_controls(chosen: Dictionary) -> None:
    """Stop, delete."""
    if chosen.job is None:
        st.caption("It came with the app.")
        return
    job = jobs.look(chosen.job.folder)
    if job is None:
        return
    st.caption(f"{job.state}" if not job.place else f"waiting, place {job.place}")
    if job.state == "failed":
        st.error(job.message)
    with st.container(horizontal=True, gap="small"):
        if job.active:
            st.button("Stop", icon=":material/stop:", on_click=_act, args=(jobs.stop, job))
            return
        if job.state in jobs.RESUMABLE:
            st.button("Begin again", icon=":material/replay:", on_click=_act, args=(jobs.resume, job))
        with st.popover("Delete", icon=":material/delete:"):
            st.markdown(f"**{chosen.name}** is gone then, for everybody.")
            st.button("Delete it", on_click=_act, args=(jobs.delete, job))


@st.fragment(run_every=LOOK)
def watch(chosen: Dictionary, stamp: int) -> None:
    """Draws the curves anew while the training runs, and the page when it is done or there is a newer file to open."""
    draw_training(chosen)
    _notice(chosen, stamp)


@st.fragment(run_every=2 * LOOK)
def notice_the_end(chosen: Dictionary, stamp: int) -> None:
    """Draws the page anew when a training has written a newer file, or ended."""
    _notice(chosen, stamp)


def _notice(chosen: Dictionary, stamp: int) -> None:
    job = None if chosen.job is None else jobs.look(chosen.job.folder)
    if job is None or not job.active or chosen.stamp != stamp:
        st.rerun()


def _act(action: Callable[[jobs.Job], None], job: jobs.Job) -> None:
    try:
        action(job)
    except jobs.JobError as error:
        st.session_state[session.SAE_ERROR] = str(error)
