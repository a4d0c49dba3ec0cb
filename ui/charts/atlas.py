"""The Atlas: a grid of heads, one head opened, its profile over distances, sharpness against output."""

import base64
import io
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray
from PIL import Image

from ui.charts.theme import FONT, themed

# Okabe and Ito's palette, distinct to all kinds of colour vision; grey for what has no name.
LABEL_COLOURS = {
    "previous-token": "#D55E00",
    "self": "#009E73",
    "fixed offset": "#56B4E9",
    "first-token sink": "#CC79A7",
    "induction": "#E69F00",
    "sharp, no name": "#0072B2",
    "diffuse": "#999999",
}
LIGHT_RAMP = ("#ffffff", "#c6dbef", "#6baed6", "#2171b5", "#08306b")
DARK_RAMP = ("#101418", "#12345c", "#1f66ab", "#6baed6", "#eaf3fb")
GRID = {"width": 490, "height": 360}  # pixels that a grid of heads may take
MARGIN = 56  # that the axes take
MAP, WIDEST = 320, 480  # pixels a side of one head opened, by positions and at most by characters
TILE = 128  # pixels that a head's pattern has at most in the grid
EDGE = 4  # pixels between tiles


def head_grid(
    patterns: Float[ndarray, "layer head query key"],
    table: pd.DataFrame,
    selected: str | None,
    dark: bool,
    scale: float = 1.0,
    title: str | None = None,
) -> alt.LayerChart:
    """One picture for each head under a clickable rectangle; the frame's colour is the head's label.

    Args:
        patterns: what to draw for each head.
        table: head, layer, index, label, score.
        selected: the head whose frame is thick.
        dark: the background.
        scale: of the whole grid.
        title: above the grid, when it shows something else than the page is about.
    """
    layers, heads = patterns.shape[:2]
    side = scale * min(GRID["width"] / heads, GRID["height"] / layers)
    data = table.assign(
        picture=[_tile(pattern, dark) for pattern in patterns.reshape(-1, *patterns.shape[2:])],
        chosen=table["head"] == selected,
    )
    picked = alt.selection_point(name="picked", fields=["head"], on="click", clear=False)
    bare: dict[str, Any] = {"labelAngle": 0, "ticks": False, "domain": False, "labelPadding": 2}
    x = alt.X("index:O", title=None, axis=alt.Axis(orient="top", labelExpr="'head ' + datum.value", **bare))
    y = alt.Y("layer:O", title=None, axis=alt.Axis(labelExpr="'layer ' + datum.value", **bare))
    base = alt.Chart(data).encode(x=x, y=y)
    pictures = base.mark_image(width=side - EDGE, height=side - EDGE, smooth=False).encode(url="picture:N")
    frames = (
        base.mark_rect(fill="transparent", width=side - EDGE, height=side - EDGE, cursor="pointer")
        .encode(
            stroke=_label_colour("stroke", table),
            strokeWidth=alt.condition("datum.chosen", alt.value(5), alt.value(2)),
            tooltip=[
                alt.Tooltip("head:N"),
                alt.Tooltip("label:N"),
                alt.Tooltip("score:Q", format=".2f", title="largest named score"),
            ],
        )
        .add_params(picked)
    )
    grid = (pictures + frames).properties(width=alt.Step(side), height=alt.Step(side))
    return themed(grid.properties(title=title) if title else grid)


def heat_map(
    pattern: Float[ndarray, "query key"],
    labels: list[str] | None,
    dark: bool,
    unit: str = "attention",
    first: int = 0,
    word: str = "character",
) -> alt.Chart:
    """One head opened: a cell for every query and key at or before it.

    Args:
        pattern: shares of attention, or their spread.
        labels: the tokens on both axes; None for positions.
        dark: the background.
        unit: what a cell's number is called.
        first: position of the first row and column.
        word: what a token is.
    """
    length = len(pattern)
    query, key = np.tril_indices(length)
    names = labels or [str(i) for i in range(first, first + length)]
    data = pd.DataFrame(
        {
            "query": query,
            "key": key,
            "query_place": query + first,
            "key_place": key + first,
            unit: pattern[query, key],
            "query_token": [names[i] for i in query],
            "key_token": [names[i] for i in key],
        }
    )
    expression = f"{_js(names)}[datum.value]"
    side = MAP if labels is None else min(max(MAP, FONT * length), WIDEST)
    thin = labels is None and length > 16
    axis = alt.Axis(
        labelExpr=expression,
        values=list(range(0, length, 8 if thin else 1)),
        labelAngle=0,
        labelOverlap=thin,
        labelFontSize=FONT if thin else max(8, min(FONT, side // length)),
        ticks=False,
    )
    upright = axis.copy()
    if labels is not None and max(map(len, labels)) > 2:  # pieces of text would lie over each other
        upright.labelAngle = -90
    what = "position" if labels is None else word
    return themed(
        alt.Chart(data)
        .mark_rect()
        .encode(
            x=alt.X("key:O", title=f"key: the {what} looked at", axis=upright),
            y=alt.Y("query:O", title=f"query: the {what} that looks", axis=axis),
            color=alt.Color(f"{unit}:Q", scale=_ramp(dark, float(pattern.max())), legend=None),
            tooltip=[
                alt.Tooltip("query_token:N", title="query"),
                alt.Tooltip("query_place:Q", title="at position"),
                alt.Tooltip("key_token:N", title="key"),
                alt.Tooltip("key_place:Q", title="at position"),
                alt.Tooltip(f"{unit}:Q", format=".3f"),
            ],
        )
        .properties(width=side + MARGIN, height=side + MARGIN)
    )


def offset_profile(profile: pd.DataFrame, most: int = 16) -> alt.LayerChart:
    """Attention by distance, with its interval. Columns: offset, attention, low, high."""
    near = profile[profile["offset"] < most]
    x = alt.X("offset:O", title="positions back", axis=alt.Axis(labelAngle=0, labelOverlap=True))
    bars = (
        alt.Chart(near)
        .mark_bar(color="#0072B2")
        .encode(
            x=x,
            y=alt.Y("attention:Q", title="attention", scale=alt.Scale(domainMin=0), axis=alt.Axis(tickCount=4)),
            tooltip=[
                alt.Tooltip("offset:Q", title="positions back"),
                *(alt.Tooltip(f"{name}:Q", format=".3f") for name in ("attention", "low", "high")),
            ],
        )
    )
    ends = alt.Chart(near).mark_rule(color="#999999", strokeWidth=2).encode(x=x, y="low:Q", y2="high:Q")
    return themed((bars + ends).properties(height=150))


def sharpness(table: pd.DataFrame, selected: str | None) -> alt.LayerChart:
    """Sharpness of the pattern against the share of the stream, a point a head, with both intervals."""
    data = table.assign(
        sharpness=1 - table["relative_entropy"],
        sharpness_low=1 - table["relative_entropy_high"],
        sharpness_high=1 - table["relative_entropy_low"],
        chosen=table["head"] == selected,
    )
    x = alt.X("sharpness:Q", title="sharpness of the pattern (1 − relative entropy)", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("output_share:Q", title="output norm, share of the stream", scale=alt.Scale(domainMin=0))
    picked = alt.selection_point(name="picked", fields=["head"], on="click", clear=False)
    base = alt.Chart(data)
    points = (
        base.mark_point(filled=True, size=140, cursor="pointer", opacity=1)
        .encode(
            x=x,
            y=y,
            color=_label_colour("fill", table),
            shape=alt.Shape(
                "quiet:N", scale=alt.Scale(domain=[False, True], range=["circle", "triangle-up"]), legend=None
            ),
            strokeWidth=alt.condition("datum.chosen", alt.value(4), alt.value(0)),
            stroke=alt.value("#0072B2"),
            tooltip=[
                alt.Tooltip("head:N"),
                alt.Tooltip("label:N"),
                alt.Tooltip("sharpness:Q", format=".2f"),
                alt.Tooltip("output_share:Q", format=".3f", title="share of the stream"),
                alt.Tooltip("output_norm:Q", format=".2f", title="output norm"),
            ],
        )
        .add_params(picked)
    )
    across = base.mark_rule(color="#999999").encode(x=alt.X("sharpness_low:Q"), x2="sharpness_high:Q", y=y)
    down = base.mark_rule(color="#999999").encode(x=x, y=alt.Y("output_share_low:Q"), y2="output_share_high:Q")
    spoken = base.transform_filter("datum.chosen || datum.quiet || datum.label != 'diffuse'")  # all names would overlap
    names = spoken.mark_text(dx=10, dy=-8, align="left", fontSize=FONT).encode(x=x, y=y, text="head:N")
    names = names.encode(color=alt.value("#888888"))
    return themed((across + down + points + names).properties(height=MAP))


def _label_colour(channel: str, table: pd.DataFrame) -> alt.Stroke | alt.Color:
    """Colour by label; the legend names those that occur."""
    present = [label for label in LABEL_COLOURS if label in set(table["label"])]
    scale = alt.Scale(domain=present, range=[LABEL_COLOURS[label] for label in present])
    place: dict[str, Any] = {"orient": "bottom", "direction": "horizontal", "columns": 4, "offset": 4}
    if channel == "stroke":
        legend = alt.Legend(**place, symbolType="square", symbolStrokeWidth=3)
        return alt.Stroke("label:N", title=None, scale=scale, legend=legend)
    return alt.Color("label:N", title=None, scale=scale, legend=alt.Legend(**place))


def _ramp(dark: bool, top: float) -> alt.Scale:
    """Zero is the background; the square root lets small shares be seen."""
    return alt.Scale(
        type="sqrt", domain=[0, max(top, 1e-9)], range=list(DARK_RAMP if dark else LIGHT_RAMP), interpolate="rgb"
    )


def _tile(pattern: Float[ndarray, "query key"], dark: bool) -> str:
    """A pattern as a PNG in a data URI; colours as `_ramp` with 1 at the top."""
    ramp = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in (DARK_RAMP if dark else LIGHT_RAMP)])
    if len(pattern) > TILE:  # a longer context is averaged down
        edges = np.linspace(0, len(pattern), TILE + 1).astype(int)[:-1]
        pattern = np.add.reduceat(np.add.reduceat(pattern, edges, 0), edges, 1) * (TILE / len(pattern)) ** 2
    place = np.sqrt(pattern.clip(0, 1)) * (len(ramp) - 1)
    pixels = np.stack([np.interp(place, np.arange(len(ramp)), channel) for channel in ramp.T], axis=-1)
    buffer = io.BytesIO()
    Image.fromarray(pixels.round().astype(np.uint8)).save(buffer, format="PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _js(names: list[str]) -> str:
    """The names as a list in vega's expression language."""
    quoted = (name.replace("\\", "\\\\").replace("'", "\\'") for name in names)
    return "[" + ",".join(f"'{name}'" for name in quoted) + "]"
