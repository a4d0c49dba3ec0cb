"""GED: is there a direction along which one category varies more than the other, and does it hold out of sample?"""

import streamlit as st

from ui import session

session.guard()
top, side = st.columns([2, 5], vertical_alignment="bottom")
top.title("GED")
session.warm_up()

from interp_core.ged import SHRINKAGE, TooFew
from ui.bench import SOME_TOKENS, open_bench
from ui.sections import ged as section
from ui.sections import labelled as choice
from ui.takeaway import load_lines, takeaway

KEYS = (
    session.CATEGORY, session.AGAINST, session.PATTERN_TYPED, session.SITE, session.LAYER, session.TOKENS,
    session.SAMPLING, session.SHRINK, session.SAMPLES, session.FIGURE, session.GED_VIEW,
)  # fmt: skip

bench = open_bench(SOME_TOKENS)
with st.sidebar:
    shrinkage = st.select_slider(
        "Shrinkage", section.SHRINKAGES, SHRINKAGE, key=session.SHRINK, bind="query-params",
        help="Share of the compared covariance that is replaced by its mean variance in every direction.",
    )  # fmt: skip
view = side.segmented_control(
    "View", list(section.VIEWS), default="projections", key=session.GED_VIEW, bind="query-params", required=True,
    label_visibility="collapsed",
)  # fmt: skip
st.markdown(
    "**Is there a direction along which one category varies more than the other, and does it hold out of sample?**"
)
labelled = choice.choose(bench)
if labelled is None:
    st.stop()
study = section.Study(labelled, float(shrinkage))
try:
    section.claim(study)
    figure, about = st.columns([5, 3], gap="medium")
    with figure:
        chart = section.VIEWS[view](study)
    table = section.methods(study)
except (TooFew, ValueError) as error:
    st.error(f"{error}")
    with st.expander("The category in the text", expanded=True):
        choice.preview(labelled)
    st.stop()
with about:
    choice.preview(labelled)
    st.dataframe(table, hide_index=True, row_height=28)
    st.caption("GED beside two directions that look for different means: same folds, p from the same shifts of labels.")
code = f"""import torch

{load_lines(bench, "activations", "categories", "ged")}
{choice.code(labelled)}
scores = ged.cross_validate(rows, positive, blocks, shrinkage={shrinkage}, seed={bench.seed})
null = ged.null(rows, positive, blocks, shrinkages=[{shrinkage}], seed={bench.seed})[{shrinkage}]
print(scores.ratio, scores.separation, null.p_value(scores))"""
takeaway(
    bench,
    "ged",
    table,
    chart,
    code,
    KEYS,
    f"{labelled.provenance} · shrinkage {shrinkage} · {len(study.null().ratios)} shifts",
)
with st.expander("How this is measured"):
    st.markdown(session.method("ged"))
