"""Start: what can be asked here, and one thing that was found."""

import streamlit as st

from ui import session

session.guard()
st.title("Loupe: take a small transformer apart")
st.markdown(
    "**What do the parts of this model do, and how would you know?** A lab bench for GPTs small enough to understand."
)

from interp_core import atlas
from ui import charts, wording
from ui.bench import open_bench

bench = open_bench()
measured = bench.heads()
labels = atlas.label_heads(measured)
best = atlas.standout(measured)
control = bench.untrained(atlas.THRESHOLD)

picture, words = st.columns([3, 2], gap="large")
with picture:
    st.altair_chart(
        charts.head_grid(
            measured.patterns.numpy(), labels.table.merge(measured.table), best.head, session.is_dark(), 0.95
        ),
        width="content",
        alt=f"Mean attention patterns of the {len(labels.table)} heads of {bench.checkpoint.name}.",
    )
    st.caption(
        "A square is a head: row = the character that looks, column = the one looked at, strong colour = much attention."
    )
with words:
    st.subheader(wording.finding(best, control))
    st.markdown(wording.standout_evidence(best, control))
    st.page_link(
        "pages/atlas.py", label=f"Next: open {best.head} in the Atlas", icon=":material/arrow_forward:",
        query_params={session.HEAD: best.head, session.VIEW: "one head"},
    )  # fmt: skip
    st.divider()
    report = bench.preflight()
    st.badge(
        "pre-flight: reads this text" if report.healthy else "pre-flight: look here first",
        color="green" if report.healthy else "red",
    )
    st.markdown(report.verdict)
    with st.expander("Pre-flight report"):
        st.dataframe(report.losses, hide_index=True)
        st.dataframe(report.facts, hide_index=True)
st.caption(bench.provenance)
