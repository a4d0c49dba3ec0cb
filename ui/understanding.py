"""What was understood of a checkpoint: the pre-flight report, what its file does not say, and the visitor's answers."""

from functools import partial
from typing import Any

import pandas as pd
import streamlit as st
from torch import Tensor

from interp_core import checkpoints, unsaid
from interp_core.checkpoints import Checkpoint
from interp_core.corpora import Text
from interp_core.layouts import COURSE
from interp_core.preflight import Preflight
from interp_core.tokenizers import NumberTokenizer
from ui import cache, session, uploads
from ui.charts import understanding as charts
from ui.progress import with_progress

SAMPLE_TOKENS = 160
MOST_EXPORTED = 50_000_000  # parameters: 200 MB, what a browser takes back
SMALL = 5_000_000  # parameters: a model that writes a sample before one can ask for it
QUESTIONS = {
    "heads": "Heads in a layer",
    "activation": "Activation of the MLP",
    "score_scale": "Scores are multiplied by",
    "norm": "Norms",
    "norm_eps": "Epsilon of the norms",
}


def draw_report(checkpoint: Checkpoint, report: Preflight) -> None:
    """The pre-flight report, behind a button of the sidebar."""
    sick = report.healthy is False
    with st.popover(
        "Pre-flight: look here first" if sick else "Pre-flight report",
        icon=":material/error:" if sick else ":material/fact_check:",
    ):
        st.markdown(f"**{report.verdict}**")
        st.caption(f"Loss on {report.windows} disjoint windows of the validation part, with 95% intervals.")
        st.dataframe(report.losses.round(3), hide_index=True)
        _draw_sample(checkpoint)
        st.caption("What was understood of the checkpoint, and from where.")
        st.dataframe(report.facts, hide_index=True)
        if checkpoint.layout != COURSE.name and checkpoint.model.count() <= MOST_EXPORTED:
            name = _plain(checkpoint.name)
            st.download_button(
                "Take it home in the course's layout", partial(checkpoints.export, checkpoint, name), f"{name}.zip",
                icon=":material/download:", on_click="ignore",
                help="Weights that the course's code loads where its config fits, with a card that says the rest.",
            )  # fmt: skip


def _draw_sample(checkpoint: Checkpoint) -> None:
    if isinstance(checkpoint.tokenizer, NumberTokenizer):
        return
    st.caption("What it writes, at temperature 1:")
    if checkpoint.model.count() > SMALL and not st.toggle("Let it write (some seconds)", key=session.WRITE):
        return
    st.code(
        with_progress(
            "Writing",
            lambda tell: cache.written(
                f"{checkpoint.sha256} {checkpoint.tokenizer.identity}", SAMPLE_TOKENS, checkpoint
            ),
        ),
        language=None,
        wrap_lines=True,
    )


def ask_heads(checkpoint: Checkpoint, text: Text | None, windows: Tensor | None, seed: int) -> None:
    """In place of a page: the number of heads, suggested by the loss, to be confirmed."""
    config = checkpoint.model.config
    st.subheader(f"How many heads does a layer of {_plain(checkpoint.name)} have?")
    st.markdown(
        f"Its file does not say: the matrices of a {checkpoint.layout} model look the same for every divisor of its width, "
        f"{config.d_model}. With a wrong number every page would look right and be wrong, so it is asked, never assumed."
    )
    choices = list(unsaid.options(config, "heads"))
    best: str | None = None
    figure, form = st.columns([3, 2], gap="large")
    with figure:
        if text is None or windows is None:
            st.info(
                "Choose the text that it was trained on in the sidebar, or bring it: the loss on it suggests the number.",
                icon=":material/arrow_back:",
            )
        else:
            found = _effects(checkpoint, "heads", windows, seed, against_lowest=True)
            best, clear = unsaid.suggestion(found)
            st.altair_chart(charts.losses(found, best), alt="Loss for every number of heads.")
            st.caption(
                f"Loss of the same weights read with each number of heads, with 95% intervals over {len(windows)} disjoint "
                f"windows of {text.name}. "
                + (
                    "On the same windows every other number is clearly worse."
                    if clear
                    else "On the same windows the lowest is **not** clearly better than every other."
                )
            )
    with form, st.form("heads"):
        chosen = st.selectbox(
            QUESTIONS["heads"], choices, choices.index(best) if best else None, key=session.ASK["heads"],
            placeholder="choose", help="The config of its training says it: n_head, num_heads.",
        )  # fmt: skip
        if best:
            st.caption(f"Suggested: **{best}**, by the loss.")
        if st.form_submit_button("This is right", type="primary") and chosen is not None:
            _remember(checkpoint.name, {"heads": int(chosen)})


def review(checkpoint: Checkpoint, windows: Tensor, seed: int) -> None:
    """Behind a button of the sidebar: what was assumed, what each choice does to the loss, and a form to change it."""
    fields = [field for field in unsaid.FIELDS if field in checkpoint.unsaid]
    if "norm" in fields and checkpoint.model.config.norm not in ("plain", "none"):
        fields.remove("norm")
    if not fields:
        return
    with st.popover("What its file does not say", icon=":material/help:"):
        st.caption("Read as that project's code has it, unless you know better. Your answers change every page.")
        shown = st.toggle("Show what each choice does to the loss", key=session.EFFECTS)
        if shown:
            st.caption(
                "Nats a token, and the change from what is read now, with its 95% interval. The loss suggests; it proves "
                "nothing. The two GELUs and two epsilons differ by less than it can show, and a lost bias may even lower it."
            )
        answers: dict[str, Any] = {}
        with st.form("unsaid"):
            for field in fields:
                options, now = unsaid.options(checkpoint.model.config, field), getattr(checkpoint.model.config, field)
                index = list(options.values()).index(now) if now in options.values() else 0
                chosen = st.selectbox(QUESTIONS[field], list(options), index, key=session.ASK[field])
                answers[field] = options[chosen]
                if shown:
                    st.dataframe(_shown(_effects(checkpoint, field, windows, seed)), hide_index=True)
            if st.form_submit_button("Read it this way"):
                _remember(checkpoint.name, answers)


def _effects(
    checkpoint: Checkpoint, field: str, windows: Tensor, seed: int, against_lowest: bool = False
) -> pd.DataFrame:
    key = f"effects {checkpoint.sha256} {field} {cache.digest(windows)} {seed} {against_lowest}"
    model = checkpoint.model
    return with_progress(
        f"Reading {len(windows)} windows with each choice: {QUESTIONS[field].lower()}",
        lambda tell: cache.measured(key, lambda: unsaid.effects(model, field, windows, seed, tell, against_lowest)),
    )


def _shown(found: pd.DataFrame) -> pd.DataFrame:
    words = [
        "read now" if row.chosen else f"{row.change:+.4f} ({row.change_low:+.4f} to {row.change_high:+.4f})"
        for row in found.itertuples()
    ]
    return pd.DataFrame({"choice": found.choice, "nats": found.nats.round(4), "change": words})


def _remember(name: str, answers: dict[str, Any]) -> None:
    kept = st.session_state.setdefault(session.ANSWERS, {})
    kept[name] = {**kept.get(name, {}), **answers}
    session.forget_head()
    st.rerun()


def _plain(name: str) -> str:
    return name.removesuffix(uploads.YOURS)
