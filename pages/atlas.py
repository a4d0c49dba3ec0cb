"""Atlas: what every head of the model looks at."""

import streamlit as st

from ui import session

session.guard()
top, side = st.columns([2, 3], vertical_alignment="bottom")
top.title("Atlas")

session.warm_up()

from interp_core import atlas
from ui import wording
from ui.bench import open_bench
from ui.sections.atlas import VIEWS, everything, selected_head
from ui.takeaway import load_lines, takeaway

KEYS = (
    session.THRESHOLD,
    session.VIEW,
    session.HEAD,
    session.PATTERN,
    session.FROM,
    session.UNTRAINED,
    session.SENTENCE,
)

bench = open_bench()
with st.sidebar:
    threshold = st.slider(
        "Threshold for a name", 0.1, 0.9, atlas.THRESHOLD, 0.05, key=session.THRESHOLD, bind="query-params",
        help="A head is named when one of its scores (previous token, self, first token, prefix matching) is larger.",
    )  # fmt: skip
    st.toggle("Show an untrained model in the grid", key=session.UNTRAINED, bind="query-params")
view = side.segmented_control(
    "View",
    list(VIEWS),
    default="all heads",
    key=session.VIEW,
    bind="query-params",
    required=True,
    label_visibility="collapsed",
)

measured = bench.heads()
labels = atlas.label_heads(measured, threshold)
best = atlas.standout(measured)
control = atlas.summarise_control(bench.untrained(), threshold)
good, verdict = wording.atlas_verdict(labels, best, control)
total = len(labels.table)

st.markdown(f"**How many of these {total} heads look in a way that a person can name?**")
named, found, chance = st.columns(3)
near = ", ".join(f"{atlas.count_named(measured, t)} at {t:.2f}" for t in (threshold - 0.1, threshold + 0.1))
named.metric(
    f"heads with a name (95%: {labels.named.low:.0f} to {labels.named.high:.0f})",
    f"{labels.named.estimate:.0f} of {total}",
    help=f"The interval is over windows. The count also depends on the threshold: {near}.",
)
found.metric(f"{best.head}, {wording.SCORE_NAMES[best.score_name]} score", wording.plus_minus(best.score))
chance.metric(
    f"control: best of {len(control)} untrained models",
    f"{control[best.score_name].max():.2f}, {control['named'].max()} of {total} named",
)
st.badge(verdict, icon=":material/check:" if good else ":material/question_mark:", color="green" if good else "orange")

figure, about = st.columns([5, 3], gap="medium")
with about:
    head = selected_head(bench, measured, labels, best.head)
with figure:
    chart = VIEWS[view](bench, measured, labels, head)

code = f"""{load_lines(bench, "atlas")}
heads = atlas.head_atlas(checkpoint.model, windows, seed={bench.seed})
labels = atlas.label_heads(heads, threshold={threshold})
print(labels.named, atlas.standout(heads))
print(heads.table)"""
table = everything(bench, measured, labels, threshold)
untrained = bool(st.session_state[session.UNTRAINED]) and view == "all heads"
takeaway(bench, "atlas_untrained" if untrained else "atlas", table, chart, code, KEYS)

st.subheader("All heads")
st.caption("Click a column's name to sort by it. Each score has its 95% interval in the CSV.")
st.dataframe(
    table[["head", "label", "stability", "label_on_own_samples", "sharp_but_quiet", *wording.SCORE_NAMES]],
    hide_index=True,
    column_config={
        name: st.column_config.NumberColumn(label, format="%.3f") for name, label in wording.SCORE_NAMES.items()
    }
    | {
        "stability": st.column_config.NumberColumn("keeps its name", format="percent"),
        "label_on_own_samples": "label on own samples",
        "sharp_but_quiet": "sharp but quiet",
    },
)
with st.expander("How this is measured"):
    st.markdown(session.method("atlas"))
