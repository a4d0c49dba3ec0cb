"""What all charts share."""

from collections.abc import Mapping
from typing import TypeVar

import altair as alt
import pandas as pd

C = TypeVar("C", alt.Chart, alt.LayerChart, alt.HConcatChart)

# Okabe and Ito's palette, distinct to all kinds of colour vision.
BLUE, ORANGE, GREEN, VERMILION, PINK, SKY, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#999999",
)  # fmt: skip

FONT = 14  # readable from the back of a lecture hall


def themed(chart: C) -> C:
    """Fonts and frames of every chart; colours of text follow the page."""
    return (
        chart.configure_axis(labelFontSize=FONT, titleFontSize=FONT, grid=False)
        .configure_legend(labelFontSize=FONT, titleFontSize=FONT, labelLimit=200)
        .configure_view(strokeWidth=0)
    )


def rules(marks: Mapping[str, float], scale: alt.Scale | None = None) -> alt.LayerChart:
    """Dashed horizontal lines with their names, on the scale of the chart that they are laid under."""
    table = pd.DataFrame({"words": list(marks), "at": list(marks.values())})
    base = alt.Chart(table).encode(y=alt.Y("at:Q", scale=scale or alt.Scale(zero=True)))
    names = base.mark_text(align="right", baseline="top", dx=-4, dy=4, fontSize=FONT, color=PINK).encode(
        x=alt.value("width"), text="words:N"
    )
    return base.mark_rule(strokeDash=[5, 4], color=PINK, strokeWidth=2) + names


def svg(chart: alt.LayerChart | alt.Chart | alt.HConcatChart) -> str:
    """The chart as a picture that needs no browser."""
    import vl_convert

    return vl_convert.vegalite_to_svg(chart.to_json())
