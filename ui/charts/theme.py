"""What all charts share."""

from typing import TypeVar

import altair as alt

C = TypeVar("C", alt.Chart, alt.LayerChart)

FONT = 14  # readable from the back of a lecture hall


def themed(chart: C) -> C:
    """Fonts and frames of every chart; colours of text follow the page."""
    return (
        chart.configure_axis(labelFontSize=FONT, titleFontSize=FONT, grid=False)
        .configure_legend(labelFontSize=FONT, titleFontSize=FONT, labelLimit=200)
        .configure_view(strokeWidth=0)
    )


def svg(chart: alt.LayerChart | alt.Chart) -> str:
    """The chart as a picture that needs no browser."""
    import vl_convert

    return vl_convert.vegalite_to_svg(chart.to_json())
