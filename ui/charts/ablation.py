"""Ablation: a map of every part, a ranking with intervals, three ways side by side, pairs, and what breaks in a text."""

from collections.abc import Mapping

import altair as alt
import pandas as pd

from ui.charts.theme import FONT, themed

COSTLY, HELPFUL = "#D55E00", "#0072B2"  # what a part's absence costs; what it saves
WAYS = {"zero": "#D55E00", "mean": "#0072B2", "resample": "#009E73"}
HEIGHT = 380
CELLS = 32  # letters on a line of the text


def part_map(table: pd.DataFrame, selected: str, unit: str, dark: bool) -> alt.LayerChart:
    """Layers down, parts across; colour and number are the loss that the part's absence adds.

    Args:
        table: part, layer, column, effect, low, high.
        selected: the part whose cell is framed.
        unit: of the effect.
        dark: the background.
    """
    picked = alt.selection_point(name="picked", fields=["part"], on="click", clear=False)
    columns = list(dict.fromkeys(table["column"]))
    base = alt.Chart(table.assign(chosen=table["part"] == selected)).encode(
        x=alt.X(
            "column:N", sort=columns, title=None, axis=alt.Axis(orient="top", labelAngle=0, ticks=False, domain=False)
        ),
        y=alt.Y("layer:O", title=None, axis=alt.Axis(labelExpr="'layer ' + datum.value", ticks=False, domain=False)),
    )
    cells = base.mark_rect(cursor="pointer", cornerRadius=3).encode(
        color=alt.Color("effect:Q", scale=_diverging(table["effect"], dark), legend=alt.Legend(title=unit)),
        stroke=alt.condition("datum.chosen", alt.value("#E69F00"), alt.value("transparent")),
        strokeWidth=alt.value(4),
        tooltip=_tooltips(unit),
    )
    bright = f"abs(datum.effect) > {0.25 * float(table['effect'].abs().max())}"
    numbers = base.mark_text(fontSize=FONT, fontWeight="bold").encode(
        text=alt.Text("effect:Q", format="+.2f"),
        color=alt.condition(bright, alt.value("white"), alt.value("#cccccc" if dark else "#333333")),
    )
    return themed((cells.add_params(picked) + numbers).properties(height=HEIGHT))


def ranking(table: pd.DataFrame, selected: str, unit: str, lines: Mapping[str, float]) -> alt.LayerChart:
    """Every part by what its absence costs, with its interval; dashed lines are what the loss is compared with.

    Args:
        table: part, effect, low, high.
        selected: the part that is filled with colour.
        unit: of the effect.
        lines: name -> where it lies on the axis.
    """
    picked = alt.selection_point(name="picked", fields=["part"], on="click", clear=False)
    base = alt.Chart(table.assign(chosen=table["part"] == selected)).encode(
        y=alt.Y(
            "part:N",
            sort=alt.EncodingSortField("effect", order="descending"),
            title=None,
            axis=alt.Axis(labelOverlap=False),
        )
    )
    bars = base.mark_bar(cursor="pointer").encode(
        x=alt.X("effect:Q", title=f"loss added, {unit}"),
        color=alt.condition("datum.chosen", alt.value("#E69F00"), alt.value(HELPFUL)),
        tooltip=_tooltips(unit),
    )
    ends = base.mark_rule(strokeWidth=2, color="#888888").encode(x="low:Q", x2="high:Q")
    marks = alt.Chart(pd.DataFrame({"name": list(lines), "at": list(lines.values())}))
    rules = marks.mark_rule(strokeDash=[5, 4], color=COSTLY).encode(x="at:Q")
    height = max(HEIGHT, 20 * len(table))
    names = marks.mark_text(align="left", dx=4, dy=-6, baseline="bottom", fontSize=FONT, color=COSTLY).encode(
        x="at:Q", y=alt.value("height"), text="name:N"
    )
    return themed((bars.add_params(picked) + ends + rules + names).properties(height=height))


def three_ways(table: pd.DataFrame, unit: str) -> alt.LayerChart:
    """Each part taken away by zero, by its mean, and by another window's. Columns: part, mode, effect, low, high."""
    base = alt.Chart(table).encode(
        y=alt.Y("part:N", sort=list(dict.fromkeys(table["part"])), title=None),
        yOffset=alt.YOffset("mode:N", sort=list(WAYS)),
        color=alt.Color("mode:N", title=None, scale=alt.Scale(domain=list(WAYS), range=list(WAYS.values()))),
    )
    points = base.mark_point(filled=True, size=60, opacity=1).encode(
        x=alt.X("effect:Q", title=f"loss added, {unit}"), tooltip=[alt.Tooltip("mode:N"), *_tooltips(unit)]
    )
    ends = base.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q")
    return themed((ends + points).properties(height=max(HEIGHT, 30 * table["part"].nunique())))


def pair_map(table: pd.DataFrame, selected: tuple[str, str] | None, unit: str, dark: bool) -> alt.Chart:
    """Heads against heads; colour is what both cost together beyond the sum. Columns: first, second, effect, low, high."""
    names = list(dict.fromkeys([*table["first"], *table["second"]]))
    chosen = (table["first"] == (selected or ("", ""))[0]) & (table["second"] == (selected or ("", ""))[1])
    picked = alt.selection_point(name="picked", fields=["first", "second"], on="click", clear=False)
    return themed(
        alt.Chart(table.assign(chosen=chosen))
        .mark_rect(cursor="pointer")
        .encode(
            x=alt.X("first:N", sort=names, title=None, axis=alt.Axis(labelAngle=-90)),
            y=alt.Y("second:N", sort=names, title=None),
            color=alt.Color("effect:Q", scale=_diverging(table["effect"], dark), legend=alt.Legend(title=unit)),
            stroke=alt.condition("datum.chosen", alt.value("#E69F00"), alt.value("transparent")),
            strokeWidth=alt.value(3),
            tooltip=[alt.Tooltip("first:N"), alt.Tooltip("second:N"), *_tooltips(unit)[1:]],
        )
        .add_params(picked)
        .properties(height=HEIGHT + 40)
    )


def broken_text(table: pd.DataFrame, dark: bool) -> alt.LayerChart:
    """A text, each token coloured by the change of its loss. Columns: token, intact, ablated, change (nats)."""
    cells_of_line = CELLS // min(8, int(table["token"].str.len().max()))  # fewer of pieces than of characters
    places = pd.DataFrame({"line": table.index // cells_of_line, "column": table.index % cells_of_line})
    base = alt.Chart(pd.concat([table.reset_index(drop=True), places], axis=1)).encode(
        x=alt.X("column:O", axis=None), y=alt.Y("line:O", axis=None)
    )
    cells = base.mark_rect().encode(
        color=alt.Color("change:Q", scale=_diverging(table["change"], dark), legend=alt.Legend(title="nats")),
        tooltip=[
            alt.Tooltip("token:N"),
            *(alt.Tooltip(f"{c}:Q", format=".2f") for c in ("intact", "ablated", "change")),
        ],
    )
    letters = base.mark_text(fontSize=FONT + 2, font="monospace").encode(
        text="token:N", color=alt.value("#eeeeee" if dark else "#111111")
    )
    lines = int(places["line"].max()) + 1
    return themed((cells + letters).properties(height=34 * lines))


def _diverging(values: pd.Series, dark: bool) -> alt.Scale:
    """Blue, background, orange, centred on zero; compressed, so that a small effect shows beside a large one."""
    most = max(float(values.abs().max()), 1e-6)
    middle = "#22262b" if dark else "#f4f4f4"
    colours = [HELPFUL, middle, COSTLY]
    return alt.Scale(type="symlog", constant=most / 20, domain=[-most, 0, most], range=colours, interpolate="rgb")


def _tooltips(unit: str) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("part:N"),
        alt.Tooltip("effect:Q", format="+.3f", title=unit),
        alt.Tooltip("low:Q", format="+.3f", title="95% from"),
        alt.Tooltip("high:Q", format="+.3f", title="to"),
    ]
