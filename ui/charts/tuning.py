"""Figures of the Tuning page."""

import altair as alt
import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from ui.charts.theme import BLUE, FONT, GREEN, GREY, ORANGE, PINK, VERMILION, themed

KINDS = {"low rank": BLUE, "full": VERMILION, "frozen A": ORANGE, "head only": GREEN, "dense": PINK}


def quality(table: pd.DataFrame, column: str, title: str, seeds: bool) -> alt.LayerChart:
    """A change of loss against the numbers that are learned, with intervals.

    Args:
        table: variant, kind, parameters, lr, and `column` with _low and _high; `gain_seeds`, a list, where `seeds`.
        column: what is shown, in nats; 0 is the base model.
        title: of it.
        seeds: whether each seed is marked.
    """
    scale = alt.Scale(domain=list(KINDS), range=list(KINDS.values()))
    x = alt.X("parameters:Q", scale=alt.Scale(type="log", nice=False, padding=20), title="numbers that are learned")
    zero = alt.Chart(pd.DataFrame({"at": [0.0], "words": ["base model"]})).encode(y="at:Q")
    words = zero.mark_text(align="right", dx=-4, dy=-8, fontSize=FONT, color=GREY).encode(
        x=alt.value("width"), text="words:N"
    )
    colour = alt.Color("kind:N", scale=scale, title=None, legend=alt.Legend(orient="top"))
    chart = alt.Chart(table.drop(columns="gain_seeds")).encode(x=x, color=colour)
    y = alt.Y(f"{column}:Q", title=title)
    line = chart.transform_filter("datum.kind == 'low rank'").mark_line(strokeWidth=2).encode(y=y)
    ends = chart.mark_rule(strokeWidth=3).encode(y=alt.Y(f"{column}_low:Q", title=title), y2=f"{column}_high:Q")
    numbers = [alt.Tooltip(f"{column}{end}:Q", format="+.4f") for end in ("", "_low", "_high")]
    points = chart.mark_point(filled=True, size=150, opacity=1).encode(
        y=y, tooltip=["variant:N", "parameters:Q", alt.Tooltip("lr:Q", format=".0e", title="learning rate"), *numbers]
    )
    layers = zero.mark_rule(strokeDash=[5, 4], color=GREY, strokeWidth=2) + words + line + ends + points
    if seeds:
        each = table.explode("gain_seeds").assign(gain_seeds=lambda rows: rows["gain_seeds"].astype(float))
        ticks = alt.Chart(each).mark_tick(orient="horizontal", size=22, thickness=2, opacity=0.8)
        layers += ticks.encode(
            x=x, y=alt.Y("gain_seeds:Q", title=title), color=colour, tooltip=["variant:N", "gain_seeds:Q"]
        )
    return themed(layers.properties(height=330))


def spectra(table: pd.DataFrame, ranks: list[int]) -> alt.LayerChart:
    """How much of the full update's size the first directions of each matrix hold.

    Args:
        table: matrix, rank, held (cumulative share); the median over matrices under the name `median`.
        ranks: of the sweep, marked.
    """
    x = alt.X("rank:Q", scale=alt.Scale(type="log", base=2), title="singular directions of ΔW")
    y = alt.Y("held:Q", title="share of ‖ΔW‖² held", scale=alt.Scale(domain=[0, 1]))
    base = alt.Chart(table).encode(
        x=x, y=y, detail="matrix:N", tooltip=["matrix:N", "rank:Q", alt.Tooltip("held:Q", format=".0%")]
    )
    single = base.transform_filter("datum.matrix != 'median'").mark_line(color=GREY, opacity=0.35)
    median = base.transform_filter("datum.matrix == 'median'").mark_line(color=VERMILION, strokeWidth=4)
    marks = alt.Chart(pd.DataFrame({"rank": ranks})).mark_rule(strokeDash=[5, 4], color=BLUE).encode(x="rank:Q")
    return themed((marks + single + median).properties(height=330))


def heads(changes: Float[ndarray, "layer head"], name: str) -> alt.LayerChart:
    """How far each head moved, as a share of its size."""
    layers, count = changes.shape
    table = pd.DataFrame({
        "layer": np.repeat(np.arange(layers), count), "head": np.tile(np.arange(count), layers), "change": changes.ravel(),
    })  # fmt: skip
    base = alt.Chart(table).encode(
        x=alt.X("head:O", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("layer:O"),
        tooltip=["layer", "head", alt.Tooltip("change:Q", format=".3f")],
    )
    cells = base.mark_rect().encode(
        color=alt.Color("change:Q", scale=alt.Scale(scheme="blues", zero=True), title=f"‖ΔW‖ / ‖W‖, {name}")
    )
    numbers = base.mark_text(fontSize=FONT).encode(
        text=alt.Text("change:Q", format=".2f"),
        color=alt.condition(alt.datum.change > 0.6 * float(changes.max()), alt.value("white"), alt.value("#111111")),
    )
    return themed((cells + numbers).properties(height=60 * layers + 40, width=90 * count))


def frontier(best: pd.DataFrame, tilted: pd.DataFrame, chosen: int, reference: float) -> alt.LayerChart:
    """Reward against what it costs: best of n with intervals, and the frontier of all policies.

    Args:
        best: n, reward and kl with _low and _high, bound.
        tilted: reward, kl, effective, trusted.
        chosen: the n that stands out.
        reference: mean reward of the pool.
    """
    x = alt.X("kl:Q", title="KL from the reference, nats a text")
    y = alt.Y("reward:Q", title="expected reward", scale=alt.Scale(zero=False))
    most = float(best["kl"].max()) * 1.3
    shown = tilted[tilted["kl"] <= most]
    legend = alt.Color("kind:N", title=None, legend=alt.Legend(orient="top"), scale=alt.Scale(
        domain=["exp(r/β), the frontier", "best of n", "n, by the bound"], range=[GREEN, BLUE, GREY]))  # fmt: skip
    tooltip = [alt.Tooltip(f"{name}:Q", format=".3g") for name in ("beta", "reward", "kl", "effective")]
    curve = alt.Chart(shown.assign(kind="exp(r/β), the frontier")).encode(x=x, y=y, color=legend, tooltip=tooltip)
    line = curve.mark_line(strokeWidth=2, strokeDash=[4, 4])
    line += curve.transform_filter("datum.trusted").mark_line(strokeWidth=4)
    points = alt.Chart(best.assign(kind="best of n")).encode(x=x, color=legend)
    ends = points.mark_rule(strokeWidth=3).encode(
        y=alt.Y("reward_low:Q", title="expected reward", scale=alt.Scale(zero=False)), y2="reward_high:Q"
    )
    dots = points.mark_point(filled=True, opacity=1).encode(
        y=y, size=alt.condition(alt.datum.n == chosen, alt.value(320), alt.value(110)),
        tooltip=["n:Q", *(alt.Tooltip(f"{n}:Q", format=".3f") for n in ("reward", "reward_low", "reward_high", "kl", "bound"))],
    )  # fmt: skip
    bound = (
        alt.Chart(best.assign(kind="n, by the bound", kl=best["bound"]))
        .mark_point(size=60)
        .encode(x=x, y=y, color=legend)
    )
    zero = alt.Chart(pd.DataFrame({"at": [reference]})).mark_rule(strokeDash=[5, 4], color=GREY).encode(y="at:Q")
    return themed((zero + line + bound + ends + dots).properties(height=340))


def price(table: pd.DataFrame) -> alt.HConcatChart:
    """Entropy and sameness against n. Columns: n, entropy (nats a text), distinct."""
    x = alt.X("n:Q", scale=alt.Scale(type="log", base=2), title="n")
    parts = []
    for name, title in (("entropy", "entropy, nats a text"), ("distinct", "share of distinct trigrams")):
        y = alt.Y(f"{name}:Q", title=title, scale=alt.Scale(zero=False))
        line = alt.Chart(table).mark_line(point=alt.OverlayMarkDef(size=80), color=BLUE)
        tooltip = ["n:Q", alt.Tooltip(f"{name}:Q", format=".3f")]
        parts.append(line.encode(x=x, y=y, tooltip=tooltip).properties(height=300, width=330))
    return themed(alt.hconcat(*parts))


def grams(table: pd.DataFrame) -> alt.Chart:
    """Stretches that preferred texts have more often than typical ones. Columns: gram (as shown), z, preferred, typical."""
    return themed(
        alt.Chart(table)
        .mark_bar(color=BLUE)
        .encode(
            x=alt.X("z:Q", title="z of the log-odds, best against typical"),
            y=alt.Y("gram:N", sort=list(table["gram"]), title=None),
            tooltip=["gram:N", "preferred:Q", "typical:Q", alt.Tooltip("z:Q", format=".1f")],
        )
        .properties(height=26 * len(table) + 20)
    )
