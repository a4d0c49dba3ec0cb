"""Train: what a model learns, in which order, and how good it gets."""

import streamlit as st

from ui import session

session.guard()
top, side = st.columns([2, 5], vertical_alignment="bottom")
top.title("Train")
session.warm_up()

from interp_core.corpora import TextUnavailable
from ui import runs
from ui.sections import bits, new_run, run_controls
from ui.sections import train as section
from ui.takeaway import takeaway

BITS = "bits/char"
KEYS = (session.RUN, session.TRAIN_VIEW, session.SCRUB, session.COMPARED, session.UNIT)

found = {run.name: run for run in runs.find()}
with st.sidebar:
    options = [*found, bits.NEW_RUN]
    asked = st.query_params.get(session.RUN)
    if asked is not None and asked not in options:
        st.warning(f"The link asks for the run {asked}, which is not here. Showing {options[0]}.")
    session.default_to(session.RUN, options, options[0])
    chosen = st.selectbox(
        "Run", options, index=None, key=session.RUN, bind="query-params", required=True, label_visibility="collapsed"
    )  # fmt: skip
    chosen = chosen or options[0]
    if chosen != bits.NEW_RUN:
        st.button("New run", icon=":material/add:", on_click=bits.to_new_run, type="primary")
    run = found.get(chosen)
    if run is not None:
        run_controls.draw_controls(run)
    run_controls.draw_disk(sum(run.job is not None and run.job.state == "queued" for run in found.values()))
if session.TRAIN_ERROR in st.session_state:
    st.error(st.session_state.pop(session.TRAIN_ERROR))

views = [*section.VIEWS, BITS] if run is not None else ["form", BITS]
session.default_to(session.TRAIN_VIEW, views, views[0])
view = side.segmented_control(
    "View", views, key=session.TRAIN_VIEW, bind="query-params", required=True, label_visibility="collapsed"
)
st.markdown("**What does a model learn, in which order, and how good is it?**")


def watch() -> None:
    """One run: claim, control, figure, take-away."""
    assert run is not None
    now = runs.refreshed(run)
    if now is None or now.active != run.active:
        st.rerun()
    try:
        seen = section.open_run(now)
    except (ValueError, OSError, TextUnavailable) as error:
        st.error(f"{error}")
        return
    section.claim(seen, advice=view == "learning")
    chart = section.VIEWS[view](seen)
    if seen.curves is not None and not seen.run.active:
        takeaway(None, run.name, seen.curves.table, chart, run_controls.code(run, seen.lesson), KEYS, seen.provenance)
        st.download_button(
            "The whole run (.zip)", lambda: runs.packed(run, seen.curves.table), f"{run.name}.zip", "application/zip",
            icon=":material/download:", on_click="ignore",
            help="The checkpoint in the course's layout, its card, its snapshots, and the losses as CSV.",
        )  # fmt: skip
    elif seen.curves is not None:
        st.caption(seen.provenance)


if run is not None and run.active and view not in section.POLL:
    run_controls.notice_the_end(run)
if view == BITS:
    story = bits.open_story()
    if story is not None:
        bits.claim(story)
        figure, table = bits.draw(story)
        takeaway(None, "bits-per-char", table, figure, bits.code(story), KEYS, story.provenance)
elif run is None:
    new_run.draw()
else:
    st.fragment(watch, run_every=section.POLL.get(view) if run.active else None)()
with st.expander("How this is measured"):
    st.markdown(session.method("train"))
