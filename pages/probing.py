"""Probing: is a category readable from a few neurons, and which, stably?"""

import streamlit as st

from ui import session

session.guard()
top, side = st.columns([2, 5], vertical_alignment="bottom")
top.title("Probing")
session.warm_up()

from interp_core.classification import FIGURES
from interp_core.probe_controls import SHIFTS
from interp_core.probing import STRENGTHS
from ui.bench import SOME_TOKENS, open_bench
from ui.sections import labelled as choice
from ui.sections.probing import Study, claim, controls
from ui.sections.probing_views import VIEWS
from ui.takeaway import load_lines, takeaway

KEYS = (
    session.CATEGORY, session.AGAINST, session.PATTERN_TYPED, session.SITE, session.LAYER, session.TOKENS, session.SAMPLING,
    session.STRENGTH, session.JUDGED_BY, session.PROBING_VIEW, session.STABLE, session.SHARE, session.PAIRS, session.NEURON,
)  # fmt: skip
C = [f"{strength:.2g}" for strength in STRENGTHS]

bench = open_bench(SOME_TOKENS)
with st.sidebar:
    strength = C.index(
        st.select_slider(
            "Sparsity: C, few neurons to many", C, C[7], key=session.STRENGTH, bind="query-params",
            help="Strength of the L1 penalty is 1/C: the smaller C, the fewer neurons a probe keeps.",
        )
    )  # fmt: skip
    session.keep_choice(session.JUDGED_BY, FIGURES)
    figure = st.radio(
        "Judged by", FIGURES, key=session.JUDGED_BY, bind="query-params",
        help="AUC: how often a token of the category gets the higher score of two. It does not depend on shares.",
    ) or FIGURES[0]  # fmt: skip
view = side.segmented_control(
    "View", list(VIEWS), default="sparsity", key=session.PROBING_VIEW, bind="query-params", required=True,
    label_visibility="collapsed",
) or "sparsity"  # fmt: skip
st.markdown("**Is the category readable from a few neurons, and which, stably?**")
labelled = choice.choose(bench)
if labelled is None:
    st.stop()
study = Study(labelled, strength, figure)
try:
    claim(study)
    picture, about = st.columns([5, 3], gap="medium")
    with picture:
        chart = VIEWS[view](study)
    beside = controls(study)
except ValueError as error:
    st.error(f"{error}")
    with st.expander("The category in the text", expanded=True):
        choice.preview(labelled)
    st.stop()
with about:
    choice.preview(labelled)
    st.dataframe(beside, hide_index=True, row_height=28)
code = f"""import torch

{load_lines(bench, "activations", "categories", "probe_controls", "probing")}
{choice.code(labelled)}
probes = probing.path(rows, positive, blocks, seed={bench.seed})
found = probes.judged[{strength}].figure({figure!r})
null = probe_controls.null(rows, positive, blocks, probes.strengths, seed={bench.seed})
print(probes.neurons[{strength}], found, null.p_value({figure!r}, {strength}, found.estimate))"""
takeaway(
    bench,
    "probing",
    study.probes().table,
    chart,
    code,
    KEYS,
    f"{labelled.provenance} · C = {C[strength]} · {SHIFTS} shifts",
)
with st.expander("How this is measured"):
    st.markdown(session.method("probing"))
