"""Training: learning curves, how heads form, bits a character."""

from collections.abc import Mapping

import altair as alt
import pandas as pd

from ui.charts.theme import BLUE, FONT, GREEN, GREY, ORANGE, PINK, SKY, VERMILION, rules, themed

LINES = {"validation": VERMILION, "training": BLUE, "training batches": GREY}
LAYERS = (BLUE, VERMILION, GREEN, ORANGE, PINK, SKY)
HEIGHT = 340
NAMED = 0.3  # score from which a head's line carries its name
PANELS = {
    "previous_token_score": "previous token, attention",
    "matched_score": "prefix matching, attention",
    "copying_score": "copying score of the OV circuit",
}


ROOM = 1.3  # times the largest reference: what a diverged loss may take of the axis
ATTENTION = (
    "previous_token_score",
    "matched_score",
)  # whose best head is named; most copying scores lie on one another


def curves(table: pd.DataFrame, references: Mapping[str, float], unit: str) -> alt.LayerChart:
    """Losses over steps, with bands for the two that are measured on fixed windows.

    Args:
        table: step, batch_loss, training_loss and validation_loss with _low and _high, in `unit`.
        references: losses that anything must beat, by name.
        unit: nats, or bits/char.
    """
    parts = [
        table.rename(columns={f"{name}_loss{end}": short for end, short in (("", "loss"), ("_low", "low"), ("_high", "high"))})
        .assign(curve=name)[["step", "curve", "loss", "low", "high"]]
        for name in ("validation", "training")
    ]  # fmt: skip
    batches = table.rename(columns={"batch_loss": "loss"}).assign(curve="training batches")[["step", "curve", "loss"]]
    scale = alt.Scale(domain=list(LINES), range=list(LINES.values()))
    base = alt.Chart(pd.concat([batches, *parts])).encode(
        x=alt.X("step:Q", title="training step", scale=alt.Scale(type="log", nice=False)),
        color=alt.Color("curve:N", title=None, scale=scale, legend=alt.Legend(orient="top", symbolOpacity=1)),
    )
    measured = base.transform_filter("datum.curve != 'training batches'")
    title = f"loss, {unit}"
    measured_columns = ["validation_loss", "training_loss"]
    lowest = min([table[measured_columns].min().min(), *references.values()])
    top = min(table[[*measured_columns, "batch_loss"]].max().max(), ROOM * max(references.values()))
    frame = alt.Scale(domain=[0.95 * float(lowest), max(float(top), 1.03 * max(references.values()))], nice=False)
    band = measured.mark_area(opacity=0.2, clip=True).encode(y=alt.Y("low:Q", title=title, scale=frame), y2="high:Q")
    lines = base.mark_line(clip=True).encode(
        y=alt.Y("loss:Q", title=title, scale=frame),
        strokeWidth=alt.condition("datum.curve == 'training batches'", alt.value(1.5), alt.value(3)),
        tooltip=[
            alt.Tooltip("curve:N"),
            alt.Tooltip("step:Q", format=","),
            *(alt.Tooltip(f"{name}:Q", format=".3f") for name in ("loss", "low", "high")),
        ],
    )
    return themed((rules(references, frame) + band + lines).properties(height=HEIGHT))


def formation(table: pd.DataFrame, score: str, framed: bool = True) -> alt.LayerChart:
    """One score of every head over steps; a line a head, coloured by layer, the best one named where it ends high.

    Args:
        table: step, head, layer, and the score, with _low and _high where it has them.
        score: one of `PANELS`.
        framed: whether it stands alone.
    """
    layers = sorted(table["layer"].unique())
    scale = alt.Scale(domain=layers, range=[LAYERS[layer % len(LAYERS)] for layer in layers])
    low = -1.0 if score == "copying_score" else min(-0.05, float(table[score].min()))
    base = alt.Chart(table).encode(
        x=alt.X("step:Q", title="training step", scale=alt.Scale(type="log", nice=False), axis=alt.Axis(tickCount=4)),
        y=alt.Y(f"{score}:Q", title=None, scale=alt.Scale(domain=[low, 1.0])),
        color=alt.Color(
            "layer:N", title="layer", scale=scale, legend=alt.Legend(orient="top", titleOrient="left", symbolOpacity=1)
        ),
        detail="head:N",
    )
    ends = [f"{score}_low", f"{score}_high"]
    shown = [score, *(end for end in ends if end in table)]
    lines = base.mark_line(strokeWidth=2.5, point={"size": 25}).encode(
        tooltip=[
            alt.Tooltip("head:N"),
            alt.Tooltip("step:Q", format=","),
            *(alt.Tooltip(f"{name}:Q", format=".2f") for name in shown),
        ]
    )
    last = table[(table["step"] == table["step"].max()) & (table[score] > NAMED)].nlargest(
        int(score in ATTENTION), score
    )
    names = (
        alt.Chart(last)
        .mark_text(align="right", dx=-6, dy=-10, fontSize=FONT, fontWeight="bold", color="#888888")
        .encode(x="step:Q", y=f"{score}:Q", text="head:N")
    )
    layered = lines + names
    if ends[0] in table:
        layered = base.mark_area(opacity=0.12).encode(y=alt.Y(f"{ends[0]}:Q", title=None), y2=f"{ends[1]}:Q") + layered
    title = alt.TitleParams(PANELS[score], fontSize=FONT, anchor="start")
    titled = layered.properties(height=HEIGHT, title=title)
    return themed(titled) if framed else titled


def formations(table: pd.DataFrame) -> alt.HConcatChart:
    """All panels side by side, as one figure to carry home."""
    return themed(alt.hconcat(*(formation(table, score, framed=False) for score in PANELS)))


def bits(table: pd.DataFrame) -> alt.LayerChart:
    """Bits a character of each predictor. Columns: name, bits, low, high, kind, shown (the words beside a bar)."""
    colours = {"counts": GREY, "MLP": ORANGE, "GPT": BLUE}
    present = [kind for kind in colours if kind in set(table["kind"])]
    base = alt.Chart(table).encode(
        y=alt.Y("name:N", sort=list(table["name"]), title=None, axis=alt.Axis(labelLimit=260))
    )
    bars = base.mark_bar(height={"band": 0.6}).encode(
        x=alt.X("bits:Q", title="bits a character on held-out text (lower is better)", axis=alt.Axis(tickCount=6)),
        color=alt.Color("kind:N", title=None, scale=alt.Scale(domain=present, range=[colours[k] for k in present]), legend=None),
        tooltip=["name:N", *(alt.Tooltip(f"{name}:Q", format=".3f") for name in ("bits", "low", "high"))],
    )  # fmt: skip
    ends = base.mark_rule(strokeWidth=3, color=VERMILION).encode(x="low:Q", x2="high:Q")
    numbers = base.mark_text(align="left", dx=8, fontSize=FONT, color="#888888").encode(x="high:Q", text="shown:N")
    return themed((bars + ends + numbers).properties(height=46 * len(table) + 50))
