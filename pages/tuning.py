"""Tuning: is an update low rank, and what does it cost to please a reward?"""

import streamlit as st

from ui import session

session.guard()
top, side = st.columns([2, 5], vertical_alignment="bottom")
top.title("Tuning")
session.warm_up()

from ui import tunings
from ui.bench import open_bench
from ui.sections import best_of_n
from ui.sections import tuning as section
from ui.takeaway import load_lines, takeaway

LOW_RANK, BEST_OF_N = "low-rank tuning", "best of n"
IS_IT_LOW = "Is the update of a fine-tuning low rank?"
KEYS = (
    session.TRACK, session.TUNING, session.TUNING_VIEW, session.REWARD, session.BEST, session.POOL, session.LENGTH_OF,
    session.REWARD_VIEW,
)  # fmt: skip

bench = open_bench()
track = side.segmented_control(
    "Track", [LOW_RANK, BEST_OF_N], default=LOW_RANK, key=session.TRACK, bind="query-params", required=True,
    label_visibility="collapsed",
)  # fmt: skip


def ask(question: str, key: str, views: list[str]) -> str:
    """The question, and beside it the choice of figure."""
    words, choice = st.columns([3, 2], vertical_alignment="center")
    words.markdown(f"**{question}**")
    session.default_to(key, views, views[0])
    return choice.segmented_control(
        "View", views, key=key, bind="query-params", required=True, label_visibility="collapsed"
    )


def low_rank() -> None:
    """The form, or a sweep: claim, controls, figure, take-away."""
    entries = {entry.name: entry for entry in tunings.find(bench)}
    with st.sidebar:
        options = [*entries, section.NEW]
        session.default_to(session.TUNING, options, options[0])
        st.caption("Sweep")
        name = st.selectbox(
            "Sweep", options, index=None, key=session.TUNING, bind="query-params", required=True, label_visibility="collapsed"
        )  # fmt: skip
        chosen = entries.get(name or options[0])
        if chosen is not None:
            section.draw_controls(chosen)
    if session.TUNING_ERROR in st.session_state:
        st.error(st.session_state.pop(session.TUNING_ERROR))
    if chosen is None:
        st.markdown(f"**{IS_IT_LOW}**")
        section.draw_form(bench)
        return
    if chosen.job is not None and chosen.job.active:
        section.watch(chosen, chosen.stamp)
    else:
        section.draw_progress(chosen)
    found = section.open_sweep(bench, chosen)
    if found is None:
        return
    view = ask(IS_IT_LOW, session.TUNING_VIEW, list(section.VIEWS))
    section.claim(found)
    picture, about = st.columns([5, 4], gap="medium")
    with picture:
        chart = section.VIEWS[view](found)
    with about:
        section.beside(found)
    takeaway(
        bench, "tuning", found.table.drop(columns="gain_seeds"), chart, section.code(found), KEYS, found.provenance
    )


def best_of() -> None:
    """A reward: claim, control, figure, samples, take-away."""
    view = ask("What does it cost to please a reward, and how is it gamed?", session.REWARD_VIEW, list(best_of_n.VIEWS))
    study = best_of_n.open_study(bench)
    if study is None:
        return
    best_of_n.claim(study)
    picture, about = st.columns([5, 4], gap="medium")
    with picture:
        chart = best_of_n.VIEWS[view](study)
    with about:
        best_of_n.samples_beside(study)
    code = load_lines(bench) + "\n" + best_of_n.code(study)
    takeaway(bench, "best_of_n", study.best(), chart, code, KEYS, study.provenance)


if track == BEST_OF_N:
    best_of()
else:
    low_rank()
with st.expander("How this is measured"):
    st.markdown(session.method("tuning"))
