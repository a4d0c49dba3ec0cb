"""Figures that several pages draw: two classes along a line, effects beside those of random parts, tokens by their logits."""

import altair as alt
import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from numpy import ndarray

from ui.charts.theme import BLUE, GREY, ORANGE, VERMILION, themed

BINS = 60
TAILS = (0.002, 0.998)  # quantiles between which values are shown


def densities(
    values: Float[ndarray, "row"],
    positive: Bool[ndarray, "row"],
    names: tuple[str, str],
    title: str,
    height: int,
    zero: bool = False,
) -> alt.LayerChart:
    """Values at the tokens of two classes, as densities.

    Args:
        values: one for every token.
        positive: the first class.
        names: of the classes.
        title: of the values, with their unit.
        height: pixels.
        zero: whether zero is marked.
    """
    least, most = (float(np.quantile(values, share)) for share in TAILS)
    edges = np.linspace(least, max(most, least + 1e-6), BINS + 1)
    tables = []
    for name, mask in zip(names, (positive, ~positive), strict=True):
        counts, _ = np.histogram(values[mask], edges)
        density = counts / max(int(mask.sum()), 1) / (edges[1] - edges[0])
        tables.append(pd.DataFrame({"value": (edges[1:] + edges[:-1]) / 2, "density": density, "tokens": name}))
    scale = alt.Scale(domain=list(names), range=[BLUE, ORANGE])
    areas = (
        alt.Chart(pd.concat(tables))
        .mark_area(opacity=0.45, interpolate="step", line={"strokeWidth": 2})
        .encode(
            x=alt.X("value:Q", title=title),
            y=alt.Y("density:Q", stack=None, title="density"),
            color=alt.Color("tokens:N", scale=scale, title=None, legend=alt.Legend(orient="top", symbolOpacity=1)),
            tooltip=["tokens:N", alt.Tooltip("value:Q", format=".2f"), alt.Tooltip("density:Q", format=".3f")],
        )
    )
    at_zero = alt.Chart(pd.DataFrame({"at": [0.0]} if zero else {"at": []})).mark_rule(color=GREY).encode(x="at:Q")
    return themed((at_zero + areas).properties(height=height))


def effects(table: pd.DataFrame, others: pd.DataFrame, height: int) -> alt.LayerChart:
    """Loss added by taking something away, with intervals, above what as much of anything else costs.

    Args:
        table: where, value, low, high; in nats.
        others: where, value.
        height: pixels.
    """
    words = "loss added, nats a token"
    y = alt.Y("where:N", sort=list(table["where"]), title=None, axis=alt.Axis(labelLimit=220))
    x = alt.X("value:Q", title=words)
    base = alt.Chart(table).encode(y=y)
    ticks = alt.Chart(others).mark_tick(color=GREY, thickness=2, size=44, opacity=0.75).encode(x=x, y=y)
    ends = base.mark_rule(strokeWidth=4, color=BLUE).encode(x=alt.X("low:Q", title=words), x2="high:Q")
    points = base.mark_point(filled=True, size=180, opacity=1, color=BLUE).encode(
        x=x, tooltip=["where:N", *(alt.Tooltip(f"{n}:Q", format="+.4f") for n in ("value", "low", "high"))]
    )
    zero = alt.Chart(pd.DataFrame({"at": [0.0]})).mark_rule(color=GREY).encode(x="at:Q")
    return themed((zero + ticks + ends + points).properties(height=height))


def logits(table: pd.DataFrame, unit: str, height: int) -> alt.LayerChart:
    """The tokens whose logits a direction raises and lowers most.

    Args:
        table: token, effect; low and high where it is known how far it may be off.
        unit: of the direction.
        height: pixels.
    """
    shown = [name for name in ("effect", "low", "high") if name in table]
    known = table if "low" in table else table.assign(low=table["effect"], high=table["effect"])
    base = alt.Chart(known).encode(y=alt.Y("token:N", sort=list(table["token"]), title=None))
    bars = base.mark_bar().encode(
        x=alt.X("effect:Q", title=f"effect on the logit, a unit of the {unit}"),
        color=alt.condition("datum.effect > 0", alt.value(BLUE), alt.value(VERMILION)),
        tooltip=["token:N", *(alt.Tooltip(f"{name}:Q", format="+.3f") for name in shown)],
    )
    ends = base.mark_rule(strokeWidth=2 if "low" in table else 0, color=GREY).encode(x="low:Q", x2="high:Q")
    return themed((bars + ends).properties(height=height))
