"""GED: projections of both categories, the spectrum, the trap of few samples, layers, what the component says."""

import altair as alt
import pandas as pd

from ui.charts.theme import BLUE, FONT, GREEN, GREY, PINK, VERMILION, themed

HEIGHT = 320
SHIFTED = "GED, shifted labels"
METHODS = {"GED": BLUE, "LDA": VERMILION, "mean difference": GREEN, SHIFTED: GREY}
WHERE = alt.Scale(domain=["in sample", "held out"], range=[[1, 0], [6, 4]])
DASHES = alt.Legend(orient="top", symbolStrokeColor=GREY, symbolFillColor=GREY)
TIMES = alt.Scale(type="log", nice=False)


def spectrum(table: pd.DataFrame) -> alt.LayerChart:
    """Variance ratios of the components, in sample, above the band of shifted labels. Columns: component, ratio, low, high."""
    base = alt.Chart(table).encode(x=alt.X("component:O", title="component", axis=alt.Axis(labelAngle=0)))
    y = alt.Y("ratio:Q", title="variance ratio, in sample", scale=alt.Scale(type="log", nice=False, zero=False))
    band = base.mark_bar(color=GREY, opacity=0.5, width={"band": 0.8}).encode(y=alt.Y("low:Q", title=""), y2="high:Q")
    points = base.mark_point(filled=True, size=110, opacity=1, color=BLUE).encode(
        y=y, tooltip=["component:O", *(alt.Tooltip(f"{name}:Q", format=".2f") for name in ("ratio", "low", "high"))]
    )
    return themed((band + points).properties(height=HEIGHT))


def trap(table: pd.DataFrame, figure: str, size: int, dimensions: int) -> alt.LayerChart:
    """What a direction from few samples seems to be worth, and what it is worth elsewhere.

    Args:
        table: size, method, where (in sample, held out), value, low, high.
        figure: title of the values, with the unit.
        size: the number of samples to mark.
        dimensions: of a vector: below it the covariance has no inverse.
    """
    present = [method for method in METHODS if method in set(table["method"])]
    scale = alt.Scale(domain=present, range=[METHODS[method] for method in present])
    base = alt.Chart(table).encode(
        x=alt.X("size:Q", title="samples of each category", scale=TIMES),
        color=alt.Color("method:N", scale=scale, title=None, legend=alt.Legend(orient="top", symbolOpacity=1)),
    )
    logarithmic = figure.startswith("variance")
    y_scale = alt.Scale(type="log", nice=False) if logarithmic else alt.Scale(type="symlog", nice=False)
    band = base.mark_area(opacity=0.18).encode(
        y=alt.Y("low:Q", title=figure, scale=y_scale), y2="high:Q", detail="where:N"
    )
    lines = base.mark_line(strokeWidth=3, point={"size": 40}).encode(
        y=alt.Y("value:Q", title=figure, scale=y_scale),
        strokeDash=alt.StrokeDash("where:N", title=None, legend=DASHES, scale=WHERE),
        tooltip=["method:N", "where:N", "size:Q", alt.Tooltip("value:Q", format=".2f")],
    )  # fmt: skip
    marks = pd.DataFrame({"at": [size, dimensions], "words": ["", f"dimensions: {dimensions}"]})
    rules = alt.Chart(marks).mark_rule(strokeDash=[5, 4], strokeWidth=2, color=PINK).encode(x="at:Q")
    names = (
        alt.Chart(marks)
        .mark_text(align="right", dx=-6, fontSize=FONT, color=PINK)
        .encode(x="at:Q", y=alt.value(12), text="words:N")
    )
    return themed((band + lines + rules + names).properties(height=HEIGHT))


def profile(table: pd.DataFrame, figure: str) -> alt.LayerChart:
    """A figure at every layer with its interval, and the band of shifted labels.

    Args:
        table: site, value, low, high, null_low, null_high.
        figure: title of the values.
    """
    x = alt.X("site:N", sort=list(table["site"]), title=None, axis=alt.Axis(labelAngle=-20))
    base = alt.Chart(table).encode(x=x)
    scale = alt.Scale(type="log", nice=False) if figure.startswith("variance") else alt.Scale()
    band = base.mark_bar(color=GREY, opacity=0.5, width={"band": 0.7}).encode(
        y=alt.Y("null_low:Q", title=figure, scale=scale), y2="null_high:Q"
    )
    ends = base.mark_rule(strokeWidth=4, color=BLUE).encode(y="low:Q", y2="high:Q")
    points = base.mark_point(filled=True, size=150, opacity=1, color=BLUE).encode(
        y=alt.Y("value:Q", title=figure, scale=scale),
        tooltip=[
            "site:N",
            *(alt.Tooltip(f"{n}:Q", format=".2f") for n in ("value", "low", "high", "null_low", "null_high")),
        ],
    )
    line = base.mark_line(strokeWidth=2, color=BLUE).encode(y="value:Q")
    return themed((band + line + ends + points).properties(height=HEIGHT))
