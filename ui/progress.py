"""Slow work in a thread of its own, so that the page can show how far it is and the visitor can leave."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import streamlit as st
from streamlit.runtime.scriptrunner import add_script_run_ctx, get_script_run_ctx

from ui import effort, session

T = TypeVar("T")
Progress = Callable[[float], None]

SHOW_AFTER = 0.3  # seconds until a progress bar appears
POLL = 0.1  # seconds between its steps


def with_progress(label: str, work: Callable[[Progress], T]) -> T:
    """Runs `work`, which tells a function how far it is, under a progress bar that appears if it takes long.

    When the visitor moves on, this page's run ends at the next step of the bar, the work is told to stop, and the next
    page begins.
    """
    share, left = [0.0], threading.Event()

    def tell(fraction: float) -> None:
        share[0] = fraction
        if left.is_set():
            raise _Left

    with ThreadPoolExecutor(1) as pool:
        context = get_script_run_ctx()
        future = pool.submit(lambda: (add_script_run_ctx(threading.current_thread(), context), work(tell))[1])
        begun, bar = time.monotonic(), None
        try:
            while not future.done():
                time.sleep(0.01 if bar is None else POLL)
                if time.monotonic() - begun > SHOW_AFTER:
                    bar = bar or st.empty()
                    bar.progress(share[0], f"{label} ({share[0]:.0%})")
        except BaseException:  # Streamlit ends a run by an exception of its own
            left.set()
            raise
    if bar is not None:
        bar.empty()
    return future.result()


def when_asked(what: str, seconds: float, key: str) -> None:
    """Goes on where `what` is short or was asked for; else says how long it takes, and ends the page's run here.

    Args:
        what: will be done, as the beginning of a sentence.
        seconds: that it takes about.
        key: names the measurement, so that it is asked for once.
    """
    started = st.session_state.setdefault(session.STARTED, set())
    if seconds <= effort.PATIENCE or key in started:
        return
    st.info(
        f"**{what} takes about {effort.in_words(seconds)}** here. It shows how far it is, and leaving the page stops it. "
        "Fewer or shorter windows in the sidebar make it shorter; a smaller model, much shorter.",
        icon=":material/hourglass_top:",
    )
    if st.button("Start", type="primary", key=f"start {key}"):
        started.add(key)
        st.rerun()
    st.stop()


class _Left(Exception):
    """The visitor went elsewhere."""
