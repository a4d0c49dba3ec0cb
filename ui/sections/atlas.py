"""The Atlas page's figures: all heads, one head, sharpness against output, the visitor's sentence."""

from typing import Literal

import altair as alt
import numpy as np
import pandas as pd
import streamlit as st
from torch import Tensor

from interp_core import atlas
from interp_core.atlas import HeadAtlas, Labels
from interp_core.statistics import mean_interval
from interp_core.tokenizers import UnknownCharacters
from ui import session, wording
from ui.bench import Bench
from ui.charts import atlas as charts

CHARACTERS, POSITIONS = 32, 96  # that fit on the axes of one head
SENTENCE = "To be, or not to be: to be."
Width = Literal["content", "stretch"]
MEAN, SPREAD = "mean over windows", "spread between windows"


def all_heads(bench: Bench, measured: HeadAtlas, labels: Labels, head: str) -> alt.LayerChart:
    """The grid of every head, or of an untrained model's."""
    title = None
    if st.session_state.get(session.UNTRAINED):
        measured, title = bench.untrained_heads(), f"untrained model of the same shape, seed {bench.seed}"
        labels = atlas.label_heads(measured, st.session_state[session.THRESHOLD])
    st.caption("A square is a head: its row looks, its column is looked at, strong colour = much. **Click a head.**")
    chart = charts.head_grid(
        measured.patterns.numpy(), labels.table.merge(measured.table), head, session.is_dark(), title=title
    )
    _selectable(chart, "grid", "content", f"Mean attention patterns of {len(labels.table)} heads, layers down.")
    return chart


def one_head(bench: Bench, measured: HeadAtlas, labels: Labels, head: str) -> alt.Chart:
    """One head opened: its mean pattern, the spread between windows, or one window with its characters."""
    place = _place(measured, head)
    names = [f"window {i + 1}" for i in range(len(bench.windows))]
    left, right = st.columns(2)
    what = (
        left.selectbox(
            "Pattern", [MEAN, SPREAD, *names], key=session.PATTERN, bind="query-params", label_visibility="collapsed"
        )
        or MEAN
    )
    tokens = None if what in (MEAN, SPREAD) else bench.windows[names.index(what), :-1]
    shown = POSITIONS if tokens is None else CHARACTERS
    length = measured.patterns.shape[-1]
    first = 0
    if length > shown:
        first = right.slider(
            "From position", 0, length - shown, 0, key=session.FROM, bind="query-params", label_visibility="collapsed"
        )
    part = slice(first, first + shown)
    if tokens is None:
        pattern, unit = (measured.patterns, "attention") if what == MEAN else (measured.spread, "standard deviation")
        chart = charts.heat_map(pattern[place][part, part].numpy(), None, session.is_dark(), unit, first)
    else:
        chart = _on_characters(bench, tokens, atlas.patterns_of(bench.checkpoint.model, tokens)[place], part)
    st.caption("A row is a query and looks at columns, the keys; strong colour = much attention.")
    _show(chart, f"Attention of {head}, {what}.")
    return chart


def sharpness(bench: Bench, measured: HeadAtlas, labels: Labels, head: str) -> alt.LayerChart:
    """Pattern sharpness against what the head adds to the stream."""
    quiet = atlas.sharp_but_quiet(measured.table)
    chart = charts.sharpness(labels.table.merge(measured.table).assign(quiet=quiet), head)
    _selectable(chart, "sharpness_chart", "stretch", "Sharpness of each head's pattern against the norm of its output.")
    quiet_heads = ", ".join(measured.table["head"][quiet])
    st.caption(
        "To the right: sharp patterns. Low: little reaches the residual stream. A triangle is sharp *and* quiet: "
        "**the pattern alone would mislead you**. "
        + (f"Here: {quiet_heads}." if quiet_heads else "Here there is none.")
    )
    return chart


def sentence(bench: Bench, measured: HeadAtlas, labels: Labels, head: str) -> alt.Chart:
    """The selected head on a sentence of the visitor's, and all heads on it as a grid."""
    tokenizer, context = bench.checkpoint.tokenizer, bench.context
    typed = st.text_input(
        "Your sentence",
        SENTENCE,
        key=session.SENTENCE,
        bind="query-params",
        max_chars=400,
        label_visibility="collapsed",
    )
    try:
        tokens = tokenizer.encode(typed)
    except UnknownCharacters as error:
        st.warning(f"Left out: {' '.join(error.counts)} (the checkpoint does not know them).")
        tokens = tokenizer.encode(typed, "drop")
    except ValueError as error:
        st.error(f"{error}")
        st.stop()
    if len(tokens) < 2:
        st.info(f"Type at least two {bench.token_word}s that the checkpoint knows.")
        st.stop()
    if len(tokens) > context:
        st.caption(f"The first {context} of {len(tokens)} {bench.token_word}s: no more are read at once.")
        tokens = tokens[:context]
    patterns = atlas.patterns_of(bench.checkpoint.model, tokens)
    chart = _on_characters(bench, tokens, patterns[_place(measured, head)], slice(0, POSITIONS))
    _show(chart, f"Attention of {head} on your sentence.")
    st.caption(
        f"{head} on your sentence. Row = the {bench.token_word} that looks; column = the one looked at. One text, no interval."
    )
    return chart


VIEWS = {"all heads": all_heads, "one head": one_head, "sharp or loud": sharpness, "your sentence": sentence}


def selected_head(bench: Bench, measured: HeadAtlas, labels: Labels, default: str) -> str:
    """The choice of a head, its label, its numbers with intervals and ranks, and its profile over distances."""
    names = list(measured.table["head"])
    session.default_to(session.HEAD, names, default)
    head = st.selectbox("Head", names, key=session.HEAD, bind="query-params") or default
    place = names.index(head)
    label, stability = str(labels.table["label"].iloc[place]), float(labels.table["stability"].iloc[place])
    called = f"{label}: {measured.table['fixed_offset'].iloc[place]} back" if label == "fixed offset" else label
    colour = charts.LABEL_COLOURS[label]
    st.markdown(f":color[■]{{foreground='{colour}'}} **{called}** · keeps this name in {stability:.0%} of resamples")
    widths = {"score": 122, "value": 104, "rank": 56}
    columns = {name: st.column_config.TextColumn(width=width) for name, width in widths.items()}
    st.dataframe(
        _numbers(measured.table, head), hide_index=True, height="content", row_height=26, column_config=columns
    )
    mean, low, high = mean_interval(measured.profiles[:, place], measured.seed)
    profile = pd.DataFrame({"offset": np.arange(len(mean)), "attention": mean, "low": low, "high": high})
    _show(charts.offset_profile(profile), f"Mean attention of {head} by distance.", "stretch")
    left, right = st.columns(2)
    left.page_link("pages/ablation.py", label=f"{head} in Ablation", icon=":material/arrow_forward:")
    right.page_link("pages/induction.py", label=f"{head} in Induction", icon=":material/arrow_forward:")
    return head


def everything(bench: Bench, measured: HeadAtlas, labels: Labels, threshold: float) -> pd.DataFrame:
    """The table of all heads, with their label on the checkpoint's own samples beside the one on this text."""
    own = atlas.label_heads(bench.heads_on_own_samples(), threshold).table
    table = labels.table[["head", "label", "stability"]].assign(label_on_own_samples=own["label"]).merge(measured.table)
    return table.assign(sharp_but_quiet=atlas.sharp_but_quiet(measured.table))


def _place(measured: HeadAtlas, head: str) -> tuple[int, int]:
    """Layer and index of a head."""
    row = list(measured.table["head"]).index(head)
    return divmod(row, measured.patterns.shape[1])


def _numbers(table: pd.DataFrame, head: str) -> pd.DataFrame:
    row = table.set_index("head").loc[head]
    rows = []
    for name in wording.SCORE_NAMES:
        rank = int((table[name] > row[name]).sum()) + 1
        half = (row[f"{name}_high"] - row[f"{name}_low"]) / 2
        rows.append((wording.SCORE_NAMES[name], f"{row[name]:.3f} ±{half:.3f}", f"{rank}/{len(table)}"))
    return pd.DataFrame(rows, columns=["score", "value", "rank"])


def _on_characters(bench: Bench, tokens: Tensor, pattern: Tensor, part: slice) -> alt.Chart:
    labels = [bench.checkpoint.tokenizer.label(int(t)) for t in tokens[part]]
    return charts.heat_map(pattern[part, part].numpy(), labels, session.is_dark(), word=bench.token_word)


def _selectable(chart: alt.LayerChart, key: str, width: Width, alt_text: str) -> None:
    st.altair_chart(
        chart, width=width, key=key, on_select=lambda: session.take_head(key), selection_mode="picked", alt=alt_text
    )


def _show(chart: alt.Chart | alt.LayerChart, alt_text: str, width: Width = "content") -> None:
    st.altair_chart(chart, width=width, alt=alt_text)
