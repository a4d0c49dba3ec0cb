"""Start: what can be asked here, and one thing that was found."""

import streamlit as st

from ui import session

session.guard()
st.title("Loupe: take a small transformer apart")
st.markdown(
    "**What do the parts of this model do, and how would you know?** A lab bench for GPTs small enough to understand."
)

session.warm_up()

from interp_core import atlas
from ui import wording
from ui.bench import open_bench
from ui.charts import atlas as charts

bench = open_bench()
measured = bench.heads()
labels = atlas.label_heads(measured)
best = atlas.standout(measured)

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
        f"A square is a head: row = the {bench.token_word} that looks, column = the one looked at, strong colour = much "
        "attention."
    )
with words:
    control = atlas.summarise_control(bench.untrained())
    st.subheader(wording.finding(best, control))
    st.markdown(wording.standout_evidence(best, control))
    st.page_link(
        "pages/atlas.py", label=f"Next: open {best.head} in the Atlas", icon=":material/arrow_forward:",
        query_params={session.HEAD: best.head, session.VIEW: "one head"},
    )  # fmt: skip
    st.subheader("What can be asked here")
    for path, (name, question) in session.QUESTIONS.items():
        st.page_link(path, label=f"**{name}**: {question}")
    report = bench.preflight()
    st.caption(f"Pre-flight: {report.verdict} The whole report is in the sidebar.")
st.caption(bench.provenance)
