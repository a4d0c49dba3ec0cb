"""Sparse autoencoders: training, the frontier of sparsity and loss, features at a glance, one feature's activations."""

import altair as alt
import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from ui.charts.theme import BLUE, GREEN, GREY, ORANGE, PINK, SKY, VERMILION, themed

HEIGHT = 310
BINS = 40
COLOURS = (BLUE, GREEN, ORANGE, VERMILION, SKY, PINK, GREY)


def curves(table: pd.DataFrame, column: str, title: str) -> alt.Chart:
    """A figure of the autoencoders that are trained, over their steps. Columns: part, step, and the figure."""
    parts = list(dict.fromkeys(table["part"]))
    scale = alt.Scale(domain=parts, range=[COLOURS[i % len(COLOURS)] for i in range(len(parts))])
    return themed(
        alt.Chart(table)
        .mark_line(strokeWidth=3, point={"size": 50})
        .encode(
            x=alt.X("step:Q", title="step"),
            y=alt.Y(f"{column}:Q", title=title, scale=alt.Scale(zero=False)),
            color=alt.Color(
                "part:N", scale=scale, title=None, legend=alt.Legend(orient="top", symbolOpacity=1, columns=2)
            ),
            tooltip=["part:N", "step:Q", alt.Tooltip(f"{column}:Q", format=".4f")],
        )
        .properties(height=HEIGHT)
    )


def frontier(table: pd.DataFrame, title: str) -> alt.LayerChart:
    """What each number of active parts buys. Columns: name, active, value, low, high."""
    names = list(dict.fromkeys(table["name"]))
    scale = alt.Scale(domain=names, range=[COLOURS[i % len(COLOURS)] for i in range(len(names))])
    base = alt.Chart(table).encode(
        x=alt.X("active:Q", title="active parts a token (L0)", scale=alt.Scale(type="log", nice=False)),
        color=alt.Color("name:N", scale=scale, title=None, legend=alt.Legend(orient="top", symbolOpacity=1, columns=3)),
    )
    y_scale = alt.Scale(domain=[min(0.0, float(table["value"].min())), 1.0], nice=False)
    ends = base.mark_rule(strokeWidth=3, opacity=0.6).encode(y=alt.Y("low:Q", title=title, scale=y_scale), y2="high:Q")
    lines = base.mark_line(strokeWidth=3, point={"size": 90}).encode(
        y=alt.Y("value:Q", title=title, scale=y_scale),
        tooltip=["name:N", *(alt.Tooltip(f"{n}:Q", format=".3f") for n in ("active", "value", "low", "high"))],
    )
    return themed((ends + lines).properties(height=HEIGHT))


def features(table: pd.DataFrame, selected: int) -> alt.LayerChart:
    """All features: how often they fire and how well a category explains them; a click selects one.

    Args:
        table: feature, density, f1, explanation, kind (its colour).
        selected: the feature that is marked.
    """
    picked = alt.selection_point(name="picked", fields=["feature"], on="click", clear=False)
    kinds = list(dict.fromkeys(table["kind"]))
    base = alt.Chart(table).encode(
        x=alt.X("density:Q", title="share of tokens at which it fires", scale=alt.Scale(type="log", nice=False)),
        y=alt.Y("f1:Q", title="F1 of its best category", scale=alt.Scale(domain=[0, 1])),
    )
    points = (
        base.mark_point(filled=True, size=45)
        .encode(
            color=alt.Color(
                "kind:N", scale=alt.Scale(domain=kinds, range=list(COLOURS[: len(kinds)])), title=None,
                legend=alt.Legend(orient="top", symbolOpacity=1),
            ),
            opacity=alt.value(0.55),
            tooltip=["feature:Q", "explanation:N", alt.Tooltip("f1:Q", format=".2f"), alt.Tooltip("density:Q", format=".4f")],
        )
        .add_params(picked)
    )  # fmt: skip
    ring = base.transform_filter(f"datum.feature == {selected}").mark_point(
        size=320, strokeWidth=3, color=PINK, filled=False
    )
    return themed((points + ring).properties(height=HEIGHT))


def activations(values: Float[ndarray, "row"]) -> alt.Chart:
    """A feature's activations where it fires."""
    on = values[values > 0]
    counts, edges = np.histogram(on, BINS)
    table = pd.DataFrame({"activation": edges[:-1], "end": edges[1:], "tokens": counts})
    return themed(
        alt.Chart(table)
        .mark_bar(color=BLUE, binSpacing=0)
        .encode(
            x=alt.X("activation:Q", title="activation, where it fires", bin="binned"),
            x2="end:Q",
            y=alt.Y("tokens:Q", title="tokens"),
            tooltip=["tokens:Q", alt.Tooltip("activation:Q", format=".2f")],
        )
        .properties(height=150)
    )
