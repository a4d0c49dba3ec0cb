"""Probing: figures against sparsity, controls, stability, layers, what the model loses, one neuron."""

import altair as alt
import pandas as pd

from ui.charts.theme import BLUE, FONT, GREEN, GREY, ORANGE, PINK, SKY, VERMILION, themed

HEIGHT = 310
PROBE, MEANS, RANDOM = "sparse probe", "largest mean difference", "random neurons"
TASK, SURFACE, UNTRAINED, SHIFTED = "control task", "surface", "untrained model", "shifted labels"
COLOURS = {
    PROBE: BLUE, MEANS: GREEN, RANDOM: GREY, TASK: VERMILION, SURFACE: ORANGE, UNTRAINED: SKY, SHIFTED: GREY,
}  # fmt: skip


def sparsity(table: pd.DataFrame, figure: str, marks: dict[str, int], unit: str = "neurons") -> alt.LayerChart:
    """A figure against how many neurons a probe reads, with intervals.

    Args:
        table: name, neurons (at least 1), value, low, high.
        figure: title of the values.
        marks: numbers of neurons to be marked, by their names.
        unit: what is counted.
    """
    present = [name for name in COLOURS if name in set(table["name"])]
    scale = alt.Scale(domain=present, range=[COLOURS[name] for name in present])
    least = min(0.5, float(table["low"].min()))
    y_scale = alt.Scale(domain=[least, 1.0], zero=False, nice=False)
    base = alt.Chart(table).encode(
        x=alt.X("neurons:Q", title=f"{unit} that the probe reads", scale=alt.Scale(type="log", nice=False)),
        color=alt.Color("name:N", scale=scale, title=None, legend=alt.Legend(orient="top", symbolOpacity=1)),
    )
    band = base.mark_area(opacity=0.2).encode(y=alt.Y("low:Q", title=figure, scale=y_scale), y2="high:Q")
    lines = base.mark_line(strokeWidth=3, point={"size": 60}).encode(
        y=alt.Y("value:Q", title=figure, scale=y_scale),
        tooltip=["name:N", "neurons:Q", *(alt.Tooltip(f"{n}:Q", format=".3f") for n in ("value", "low", "high"))],
    )
    chart = band + lines
    for i, (words, at) in enumerate(sorted(marks.items(), key=lambda mark: mark[1])):
        spot = alt.Chart(pd.DataFrame({"at": [at], "words": [words]})).encode(x="at:Q")
        chart += spot.mark_rule(strokeDash=[5, 4], strokeWidth=2, color=PINK)
        chart += spot.mark_text(
            align="left" if i else "right", baseline="bottom", dx=5 if i else -5, dy=-4, fontSize=FONT, color=PINK
        ).encode(y=alt.datum(least), text="words:N")
    return themed(chart.properties(height=HEIGHT))


def stability(table: pd.DataFrame, threshold: float) -> alt.LayerChart:
    """How often subsamples keep each neuron, the most frequent first; a click selects one. Columns: neuron, frequency, weight."""
    picked = alt.selection_point(name="picked", fields=["neuron"], on="click", empty=False)
    ordered = table.assign(neuron=table["neuron"].astype(str))
    bars = (
        alt.Chart(ordered)
        .mark_bar()
        .encode(
            x=alt.X("neuron:N", sort=list(ordered["neuron"]), title="neuron", axis=alt.Axis(labelOverlap=True)),
            y=alt.Y("frequency:Q", title="share of subsamples that keep it", scale=alt.Scale(domain=[0, 1])),
            color=alt.condition(alt.datum.frequency >= threshold, alt.value(BLUE), alt.value(GREY)),
            tooltip=["neuron:N", alt.Tooltip("frequency:Q", format=".2f"), alt.Tooltip("weight:Q", format="+.3f")],
        )
        .add_params(picked)
    )
    rule = alt.Chart(pd.DataFrame({"at": [threshold]})).mark_rule(strokeDash=[5, 4], strokeWidth=2, color=PINK)
    return themed((bars + rule.encode(y="at:Q")).properties(height=HEIGHT))


def layers(table: pd.DataFrame, figure: str) -> alt.LayerChart:
    """A figure at every layer, of the model and of its controls. Columns: site, name, value, low, high."""
    present = [name for name in COLOURS if name in set(table["name"])]
    scale = alt.Scale(domain=present, range=[COLOURS[name] for name in present])
    y_scale = alt.Scale(zero=False, nice=True)
    base = alt.Chart(table).encode(
        x=alt.X("site:N", sort=list(dict.fromkeys(table["site"])), title=None, axis=alt.Axis(labelAngle=-20)),
        color=alt.Color("name:N", scale=scale, title=None, legend=alt.Legend(orient="top", symbolOpacity=1)),
    )
    ends = base.mark_rule(strokeWidth=3, opacity=0.7).encode(y=alt.Y("low:Q", title=figure, scale=y_scale), y2="high:Q")
    lines = base.mark_line(strokeWidth=3, point={"size": 110}).encode(
        y=alt.Y("value:Q", title=figure, scale=y_scale),
        tooltip=["site:N", "name:N", *(alt.Tooltip(f"{n}:Q", format=".3f") for n in ("value", "low", "high"))],
    )
    return themed((ends + lines).properties(height=HEIGHT))
