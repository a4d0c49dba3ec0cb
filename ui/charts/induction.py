"""Induction: loss by position, heads on a plane, attention around the match, interventions, natural text, emergence."""

from typing import Any

import altair as alt
import pandas as pd

from ui.charts.theme import FONT, rules, themed

CONDITIONS = {"same": "#0072B2", "shuffled": "#E69F00", "unrelated": "#999999"}
ROLES = {"previous-token": "#D55E00", "matching": "#009E73", "neither": "#999999"}
LINE = "#CC79A7"
HEIGHT = 350
WIDE = 0.6  # share of attention that the plane shows at least


def by_position(table: pd.DataFrame, uniform: float, unit: str = "nats") -> alt.LayerChart:
    """Loss of every target of the last copy after each context.

    Args:
        table: condition, position, loss, low, high.
        uniform: the loss of somebody who guesses.
        unit: of the loss.
    """
    order = [name for name in CONDITIONS if name in set(table["condition"])]
    scale = alt.Scale(domain=order, range=[CONDITIONS[name] for name in order])
    colour = alt.Color("condition:N", scale=scale, title="earlier tokens", legend=_top(symbolOpacity=1))
    base = alt.Chart(table).encode(
        x=alt.X(
            "position:Q",
            title="position in the last copy (0 does not count)",
            scale=alt.Scale(nice=False),
            axis=alt.Axis(tickMinStep=1),
        ),
        color=colour,
    )
    y = alt.Y("loss:Q", title=f"loss, {unit}", scale=alt.Scale(zero=True))
    band = base.mark_area(opacity=0.25).encode(y=alt.Y("low:Q", title=f"loss, {unit}"), y2="high:Q")
    lines = base.mark_line(strokeWidth=3, point=alt.OverlayMarkDef(size=30)).encode(
        y=y,
        tooltip=[
            alt.Tooltip("condition:N"),
            alt.Tooltip("position:Q"),
            *(alt.Tooltip(f"{name}:Q", format=".3f") for name in ("loss", "low", "high")),
        ],
    )
    guessing = rules({f"guessing, ln V = {uniform:.2f}": uniform})
    return themed((band + lines + guessing).properties(height=HEIGHT))


def plane(table: pd.DataFrame, joins: pd.DataFrame, selected: str | None) -> alt.LayerChart:
    """Heads on a plane of matching and copying; lines join previous-token heads to matching ones by composition.

    Args:
        table: head, role, matched_score with _low and _high, copying_score, previous_token_score.
        joins: lower, upper, x, y, x2, y2, k_composition, random_high.
        selected: the head whose point is framed.
    """
    least, most = min(-0.05, table["matched_score_low"].min()), max(WIDE, table["matched_score_high"].max())
    x = alt.X(
        "matched_score:Q",
        title="matching: attention to what followed earlier, above an unrelated context's",
        scale=alt.Scale(domain=[float(least), float(most)], nice=False),  # noise is not blown up to fill the plane
    )
    y = alt.Y("copying_score:Q", title="copying score of the OV circuit", scale=alt.Scale(domain=[-1.05, 1.05]))
    named_last = table.sort_values("role", key=lambda roles: roles != "neither")  # what has a role lies on top
    base = alt.Chart(named_last.assign(chosen=named_last["head"] == selected))
    picked = alt.selection_point(name="picked", fields=["head"], on="click", clear=False)
    points = (
        base.mark_point(filled=True, opacity=1, cursor="pointer")
        .encode(
            x=x,
            y=y,
            color=alt.Color("role:N", title=None, scale=_scale(ROLES, table["role"]), legend=alt.Legend(orient="top")),
            size=alt.condition("datum.chosen", alt.value(320), alt.value(150)),
            stroke=alt.condition("datum.chosen", alt.value("#0072B2"), alt.value("transparent")),
            strokeWidth=alt.value(4),
            tooltip=[
                alt.Tooltip("head:N"),
                alt.Tooltip("role:N"),
                *(
                    alt.Tooltip(f"{name}:Q", format=".2f")
                    for name in ("matched_score", "copying_score", "previous_token_score")
                ),
            ],
        )
        .add_params(picked)
    )
    ends = base.mark_rule(color="#999999").encode(x=alt.X("matched_score_low:Q"), x2="matched_score_high:Q", y=y)
    names = (
        base.transform_filter("datum.chosen || datum.role != 'neither'")
        .mark_text(dx=12, dy=-10, align="left", fontSize=FONT, fontWeight="bold", color="#888888")
        .encode(x=x, y=y, text="head:N")
    )
    lines = _joining(joins)
    layers = (lines + ends + points + names) if len(joins) else (ends + points + names)
    return themed(layers.properties(height=HEIGHT))


def _joining(joins: pd.DataFrame) -> alt.Chart:
    """Lines between heads: thicker is more composition, dashed is no more than random."""
    return (
        alt.Chart(joins)
        .mark_rule(color=ROLES["previous-token"])
        .encode(
            x="x:Q",
            y="y:Q",
            x2="x2:Q",
            y2="y2:Q",
            strokeWidth=alt.StrokeWidth("k_composition:Q", scale=alt.Scale(range=[1, 5]), legend=None),
            strokeDash=alt.condition("datum.k_composition > datum.random_high", alt.value([1, 0]), alt.value([4, 4])),
            tooltip=[
                alt.Tooltip("lower:N", title="from"),
                alt.Tooltip("upper:N", title="to"),
                alt.Tooltip("k_composition:Q", format=".3f"),
                alt.Tooltip("random_high:Q", format=".3f", title="97.5% of random matrices"),
            ],
        )
    )


def around_match(table: pd.DataFrame) -> alt.LayerChart:
    """Attention to places around the earlier occurrence. Columns: head, offset, attention, low, high."""
    heads = list(dict.fromkeys(table["head"]))
    palette = ["#0072B2", "#D55E00", "#009E73", "#E69F00"]
    scale = alt.Scale(domain=heads, range=palette[: len(heads)])
    base = alt.Chart(table).encode(
        x=alt.X(
            "offset:O",
            title="place, counted from the earlier occurrence (0); an induction head looks at 1",
            axis=alt.Axis(labelAngle=0),
        ),
        xOffset=alt.XOffset("head:N", sort=heads),
        color=alt.Color("head:N", title=None, scale=scale, legend=alt.Legend(orient="top")),
    )
    bars = base.mark_bar().encode(
        y=alt.Y("attention:Q", title="attention above an unrelated context's"),
        tooltip=[
            alt.Tooltip("head:N"),
            alt.Tooltip("offset:O"),
            *(alt.Tooltip(f"{name}:Q", format="+.3f") for name in ("attention", "low", "high")),
        ],
    )
    ends = base.mark_rule(strokeWidth=2).encode(y="low:Q", y2="high:Q", color=alt.value("#888888"))
    return themed((bars + ends).properties(height=HEIGHT))


def without(table: pd.DataFrame, intact: float) -> alt.LayerChart:
    """What is left of the copying gain without a head. Columns: name, kind, gain, low, high."""
    kinds = {"candidate": "#D55E00", "control": "#0072B2"}
    base = alt.Chart(table).encode(
        y=alt.Y("name:N", sort=list(table["name"]), title=None, axis=alt.Axis(labelLimit=360))
    )
    points = base.mark_point(filled=True, size=160, opacity=1).encode(
        x=alt.X("gain:Q", title="copying gain that is left, nats"),
        color=alt.Color("kind:N", title=None, scale=_scale(kinds, table["kind"]), legend=alt.Legend(orient="top")),
        tooltip=[alt.Tooltip("name:N"), *(alt.Tooltip(f"{c}:Q", format="+.3f") for c in ("gain", "low", "high"))],
    )
    ends = base.mark_rule(strokeWidth=3).encode(
        x="low:Q", x2="high:Q", color=alt.Color("kind:N", scale=_scale(kinds, table["kind"]))
    )
    rule = alt.Chart(pd.DataFrame({"at": [intact]})).mark_rule(strokeDash=[5, 4], color=LINE, strokeWidth=2)
    zero = alt.Chart(pd.DataFrame({"at": [0.0]})).mark_rule(color="#888888")
    return themed((zero.encode(x="at:Q") + rule.encode(x="at:Q") + ends + points).properties(height=HEIGHT))


def differences(table: pd.DataFrame) -> alt.LayerChart:
    """Measurements in natural text. Columns: name, effect, low, high (nats)."""
    base = alt.Chart(table).encode(
        y=alt.Y("name:N", sort=list(table["name"]), title=None, axis=alt.Axis(labelLimit=420, labelFontSize=FONT))
    )
    points = base.mark_point(filled=True, size=160, opacity=1, color="#0072B2").encode(
        x=alt.X("effect:Q", title="nats"),
        tooltip=[alt.Tooltip("name:N"), *(alt.Tooltip(f"{c}:Q", format="+.3f") for c in ("effect", "low", "high"))],
    )
    ends = base.mark_rule(strokeWidth=3, color="#0072B2").encode(x="low:Q", x2="high:Q")
    zero = alt.Chart(pd.DataFrame({"at": [0.0]})).mark_rule(color="#888888").encode(x="at:Q")
    return themed((zero + ends + points).properties(height=70 * len(table) + 60))


def emergence(table: pd.DataFrame) -> alt.LayerChart:
    """Copying and the heads for it over training steps.

    Args:
        table: step, copying_gain_nats with _low and _high, best_match, best_previous.
    """
    names = {"best_previous": "previous-token score (best head)", "best_match": "matching score (best head)"}
    scores = table.rename(columns=names).melt("step", list(names.values()), "score", "share")
    x = alt.X("step:Q", title="training step", scale=alt.Scale(type="log", nice=False))
    gain = alt.Chart(table).encode(x=x)
    y = alt.Y("copying_gain_nats:Q", title="copying gain, nats")
    band = gain.mark_area(opacity=0.25, color="#0072B2").encode(
        y=alt.Y("copying_gain_nats_low:Q", title="copying gain, nats"), y2="copying_gain_nats_high:Q"
    )
    line = gain.mark_line(strokeWidth=4, color="#0072B2", point={"size": 60}).encode(
        y=y,
        tooltip=[alt.Tooltip("step:Q"), alt.Tooltip("copying_gain_nats:Q", format=".2f", title="copying gain, nats")],
    )
    colours = dict(zip(names.values(), (ROLES["previous-token"], ROLES["matching"]), strict=True))
    shares = (
        alt.Chart(scores)
        .mark_line(strokeWidth=3, strokeDash=[6, 3], point={"size": 40})
        .encode(
            x=x,
            y=alt.Y("share:Q", title="share of attention", scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("score:N", title=None, scale=_scale(colours, scores["score"]), legend=_top()),
            tooltip=[alt.Tooltip("step:Q"), alt.Tooltip("score:N"), alt.Tooltip("share:Q", format=".2f")],
        )
    )
    layers = alt.layer(band + line, shares).resolve_scale(y="independent")
    return themed(layers.properties(height=HEIGHT))


def _scale(colours: dict[str, str], present: pd.Series) -> alt.Scale:
    """Colours of the values that occur."""
    domain = [name for name in colours if name in set(present)]
    return alt.Scale(domain=domain, range=[colours[name] for name in domain])


def _top(**also: Any) -> alt.Legend:
    place: dict[str, Any] = {"orient": "top", "labelLimit": 320}
    return alt.Legend(**place, **also)
