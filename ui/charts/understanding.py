"""Figures about what a file does not say."""

import altair as alt
import pandas as pd

from ui.charts.theme import BLUE, GREY, themed


def losses(found: pd.DataFrame, best: str) -> alt.LayerChart:
    """The loss under each choice, with its interval; the lowest stands out.

    Args:
        found: choice, nats, low, high.
        best: the choice that is suggested.
    """
    base = alt.Chart(found).encode(
        x=alt.X("choice:N", sort=list(found["choice"]), title="heads in a layer", axis=alt.Axis(labelAngle=0)),
        color=alt.condition(alt.datum.choice == best, alt.value(BLUE), alt.value(GREY)),
    )
    scale = alt.Scale(zero=False)
    ends = base.mark_rule(strokeWidth=3).encode(y=alt.Y("low:Q", title="loss, nats a token", scale=scale), y2="high:Q")
    points = base.mark_point(filled=True, size=160, opacity=1).encode(
        y=alt.Y("nats:Q", title="loss, nats a token", scale=scale),
        tooltip=["choice:N", *(alt.Tooltip(f"{name}:Q", format=".3f") for name in ("nats", "low", "high"))],
    )
    return themed((ends + points).properties(height=320, width="container"))
