"""The SAE page's pictures: all features, one feature, the visitor's text, its cause, the frontier."""

import html
from collections.abc import Callable, Sequence

import altair as alt
import numpy as np
import pandas as pd
import streamlit as st

from interp_core import features, head_scores, samples
from interp_core.tokenizers import UnknownCharacters
from ui import session, wording
from ui.charts import sae as charts
from ui.charts import shared
from ui.sections.sae import REPLICATES, Lens, from_card

TOP, BANDS, EACH = 5, 4, 3  # contexts: the highest, and of each band of activations
BEFORE, AFTER = 26, 10  # tokens around
ENDS = 8  # tokens promoted, and suppressed
NEAR = 5
SENTENCE = "ROMEO:\nBut soft, what light through yonder window breaks?"
DRAWN = 160  # characters of a steered text
AMOUNTS = ("-2", "-1", "-0.5", "0", "0.5", "1", "2", "4")  # times the largest activation
COMES_BACK, ALONE, UNKNOWN = "comes back from another seed", "this seed only", "another seed not trained"
Chart = alt.Chart | alt.LayerChart | None


def chosen_feature(lens: Lens) -> int:
    """The selected feature; at first the one whose explanation fits best among those that come back."""
    table = lens.table()
    best = table["f1"].where((table["replication"] > REPLICATES) | table["replication"].isna(), 0.0)
    if st.session_state.get(session.FEATURE, 0) >= len(table):  # of a larger dictionary
        del st.session_state[session.FEATURE]
    number = st.number_input("Feature", 0, len(table) - 1, int(best.argmax()), key=session.FEATURE, bind="query-params")
    return int(number)


def all_features(lens: Lens, feature: int) -> Chart:
    """Every feature in a plane, and the list that can be searched."""
    table = lens.table()
    kinds = np.where(table["replication"] > REPLICATES, COMES_BACK, ALONE)
    table = table.assign(kind=UNKNOWN if lens.trained.replication is None else kinds)
    first, second = st.columns([3, 2], vertical_alignment="bottom")
    with first:
        asked = st.text_input("Search explanations", key=session.SEARCH, bind="query-params", max_chars=60)
    with second:
        only = st.toggle(
            "Only those that come back", key=session.REPLICATED, bind="query-params",
            disabled=lens.trained.replication is None,
        )  # fmt: skip
    shown = table[table["density"] > 0]
    if only:
        shown = shown[shown["kind"] == COMES_BACK]
    if asked:
        shown = shown[shown["explanation"].str.contains(asked, case=False, regex=False)]
    chart = charts.features(shown, feature)
    st.altair_chart(
        chart, key="feature_plane", on_select=lambda: session.take_feature("feature_plane"), selection_mode="picked",
        alt="All features: how often they fire and how well a category explains them.",
    )  # fmt: skip
    chance = lens.random_f1()
    st.caption(
        f"A point is a feature: {len(shown):,} of {len(table):,}, {int((table['density'] == 0).sum())} never fire here. Up: "
        f"a category explains it (chosen on the first half of the windows, shown on the second). Random directions reach "
        f"{np.median(chance):.2f}, one in twenty {np.quantile(chance, 0.95):.2f}. **Click a point.**"
    )
    columns = ["feature", "explanation", "f1", "precision", "recall", "density", "largest", "replication"]
    st.dataframe(shown.sort_values("f1", ascending=False)[columns].round(3), hide_index=True, row_height=28, height=260)
    return chart


def one_feature(lens: Lens, feature: int) -> Chart:
    """When a feature fires, what it promotes, and what explains it."""
    values = lens.fired().of(feature)
    row = lens.table().iloc[feature]
    if not (values > 0).any():
        st.info(f"Feature {feature} does not fire on these windows: read more tokens, or choose another.")
        return None
    if row["explanation"]:
        st.markdown(
            f"**{row['explanation']}**: F1 {row['f1']:.2f} on windows that did not choose it (precision "
            f"{row['precision']:.2f}, recall {row['recall']:.2f}, firing from {row['from_share']:.0%} of its largest activation)."
        )
    found = features.examples(values, BANDS, EACH, lens.bench.seed)
    names = ["The highest", *(f"{part} fourth" for part in ("Upper", "Second", "Third", "Faintest"))]
    for name, rows in zip(names, [found[0][:TOP], *found[1:]], strict=True):
        st.html(_examples(lens, name, values, rows))
    chart = charts.activations(values)
    st.altair_chart(chart, alt="Histogram of the feature's activations where it fires.")
    st.caption(
        "Shade: activation as a share of the largest. The highest flatter a feature; the fourths below are drawn at random "
        "from all tokens where it fires."
    )
    return chart


def beside(lens: Lens, feature: int) -> None:
    """The numbers of the selected feature, what it promotes, and what lies near."""
    row = lens.table().iloc[feature]
    back = "" if np.isnan(row["replication"]) else f" · comes back with cosine {row['replication']:.2f}"
    st.caption(f"fires at {row['density']:.2%} of the tokens · largest activation {row['largest']:.1f}{back}")
    if lens.site.split(".")[0] in ("embed", "resid_post", "attn_out", "resid_pre", "resid_mid", "mlp_out"):
        direction = lens.sae.decoder[feature].detach()
        effects = head_scores.direct_logits(lens.bench.checkpoint.model, direction).numpy()
        ends = np.argsort(effects)[[*range(-1, -ENDS // 2 - 1, -1), *range(ENDS // 2 - 1, -1, -1)]]
        label = lens.bench.checkpoint.tokenizer.label
        table = pd.DataFrame({"token": [label(int(t)) for t in ends], "effect": effects[ends]})
        st.altair_chart(
            shared.logits(table, "feature", 260), alt="Tokens that the feature promotes and suppresses most."
        )
        st.caption("Through the final norm's gain and the unembedding: the direct path, later layers ignored.")
    near = features.nearest(lens.sae, feature, NEAR)
    near["explanation"] = lens.table()["explanation"].to_numpy()[near["feature"]]
    st.dataframe(near.round(2), hide_index=True, row_height=28)
    st.caption("Features in the most similar directions.")


def your_text(lens: Lens, feature: int) -> Chart:
    """Which features fire on a text of the visitor's."""
    checkpoint = lens.bench.checkpoint
    typed = st.text_area(
        "Your text", SENTENCE, key=session.SAE_TEXT, max_chars=400, height=80, label_visibility="collapsed"
    )
    try:
        tokens = checkpoint.tokenizer.encode(typed or "", "drop")[: lens.bench.context]
    except (UnknownCharacters, ValueError) as error:
        st.error(f"{error}")
        return None
    if len(tokens) < 2:
        st.info(f"Type at least two {lens.bench.token_word}s that the checkpoint knows.")
        return None
    codes = features.fire(checkpoint.model, lens.sae, tokens[None], lens.site).codes.toarray()  # [pos feature]
    pieces = [checkpoint.tokenizer.label(int(token)) for token in tokens]
    st.html(_shaded(pieces, codes[:, feature], float(lens.fired().largest[feature])))
    st.caption(
        f"Feature {feature} on your text; below, all that fire, by their largest activation. One text, no interval."
    )
    order = np.argsort(-codes.max(0))
    order = order[codes.max(0)[order] > 0][:30]
    explained = lens.table()["explanation"].to_numpy()
    st.dataframe(
        pd.DataFrame(
            {
                "feature": order, "explanation": explained[order], "largest": codes.max(0)[order].round(2),
                "at": [f"{''.join(pieces[max(0, p - 8) : p])}[{pieces[p]}]" for p in codes.argmax(0)[order]],
                "tokens": (codes[:, order] > 0).sum(0),
            }
        ),
        hide_index=True, row_height=28, height=300,
    )  # fmt: skip
    return None


def cause(lens: Lens, feature: int) -> Chart:
    """The loss without a feature, and text with more of it."""
    try:
        found = lens.cause(feature)
    except ValueError as error:
        st.info(f"{error}.".replace("..", "."))
        return None
    good, words = wording.feature_verdict(found)
    st.badge(
        words, icon=":material/check:" if good else ":material/question_mark:", color="green" if good else "orange"
    )
    where = [f"where {feature} fires", "elsewhere"]
    parts = zip(where, (found.fires, found.silent), strict=True)
    table = pd.DataFrame(
        [(name, v.estimate, v.low, v.high) for name, v in parts], columns=["where", "value", "low", "high"]
    )
    chart = shared.effects(table, pd.DataFrame({"where": where[0], "value": found.others}), 170)
    st.altair_chart(chart, alt="Loss added without the feature, beside other features of the same density.")
    st.caption(
        f"Blue: only this feature's part of {lens.site} is taken away; loss added, 95% over windows. Grey: "
        f"{len(found.others)} features that fire about as often, each where it fires itself."
    )
    largest = float(lens.fired().largest[feature])
    session.keep_choice(session.STRENGTH_OF, AMOUNTS)
    amount = float(
        st.select_slider(
            "Steer: add, times its largest activation", AMOUNTS, "1", key=session.STRENGTH_OF, bind="query-params"
        )
    )
    left, right = st.columns(2)
    for place, name, strength in (
        (left, "As it is", 0.0),
        (right, f"With {amount:g} × feature {feature} everywhere", amount),
    ):
        place.caption(f"{name}, same seed:")
        place.code(_drawn(lens, feature, strength * largest), language=None, wrap_lines=True)
    return chart


def frontier(lens: Lens, feature: int) -> Chart:
    """What each number of active parts buys: this dictionary, its sparser and denser kin, and other parts."""
    card = lens.trained.card
    figures = {"cross-entropy recovered": "recovered", "variance explained": "explained"}
    title = st.segmented_control(
        "Figure", list(figures), default="cross-entropy recovered", key=session.SAE_FIGURE, bind="query-params",
        required=True, label_visibility="collapsed",
    ) or "cross-entropy recovered"  # fmt: skip
    rows = [from_card(f"{entry['kind']} autoencoders", entry) for entry in card.get("frontier", [])]
    if "untrained" in card:
        rows.append(from_card("on an untrained model", card["untrained"]))
    table = pd.concat([pd.DataFrame(rows), lens.baselines()]).sort_values("active")
    name = figures[title]
    shown = table.rename(columns={name: "value", f"{name}_low": "low", f"{name}_high": "high"})
    order = list(dict.fromkeys([row["name"] for row in rows] + list(lens.baselines()["name"])))
    shown = shown.assign(order=shown["name"].map(order.index)).sort_values(["order", "active"])
    chart = charts.frontier(shown[["name", "active", "value", "low", "high"]], title)
    st.altair_chart(chart, alt=f"{title} against the number of active parts a token.")
    short = (
        ""
        if len(rows) < 3
        else " The others of its kind are a quick sweep, trained for less than a third of the steps."
    )
    st.caption(
        f"To the left fewer parts, up better; 95% intervals over windows. Autoencoders as their training measured them.{short} "
        "*Principal components* are the same for every token, *neurons* and *random directions* are chosen anew for each."
    )
    return chart


VIEWS: dict[str, Callable[[Lens, int], Chart]] = {
    "features": all_features, "one feature": one_feature, "your text": your_text, "cause": cause, "frontier": frontier,
}  # fmt: skip


def _examples(lens: Lens, name: str, values: np.ndarray, rows: np.ndarray) -> str:
    length, largest = lens.fired().length, float(values.max())
    label, windows, lines = lens.bench.checkpoint.tokenizer.label, lens.bench.windows, []
    for row in rows.tolist():
        window, position = divmod(row, length)
        part = slice(max(0, position - BEFORE), min(length, position + AFTER))
        pieces = [label(int(token)) for token in windows[window, part]]
        here = values[window * length : (window + 1) * length][part]
        lines.append(f"{_shaded(pieces, here, largest)}")
    return f"<div style='font-size: 13px; opacity: 0.75; margin-top: 4px'>{name}</div>{''.join(lines)}"


def _shaded(pieces: Sequence[str], values: np.ndarray, largest: float) -> str:
    """Tokens on one line, each shaded by its activation."""
    spans = []
    for piece, value in zip(pieces, values.tolist(), strict=True):
        share = min(1.0, value / largest) if largest > 0 else 0.0
        style = f"background: rgba(230, 159, 0, {0.15 + 0.85 * share:.2f})" if value > 0 else ""
        spans.append(f"<span style='{style}' title='{value:.2f}'>{html.escape(piece)}</span>")
    frame = "font-family: monospace; font-size: 14px; line-height: 1.5; overflow-wrap: anywhere"
    return f"<div style='{frame}'>{''.join(spans)}</div>"


def _drawn(lens: Lens, feature: int, amount: float) -> str:
    checkpoint, seed = lens.bench.checkpoint, lens.bench.seed
    prompt = lens.bench.windows[:1, :8]
    edits = {} if amount == 0 else {lens.site: features.steer(lens.sae, feature, amount)}
    with st.spinner("Drawing text"):
        tokens = samples.generate(checkpoint.model, prompt, DRAWN, seed=seed, edits=edits)
    return checkpoint.tokenizer.decode(tokens[0].tolist())


def code(lens: Lens, feature: int, path: str) -> str:
    """The Python that gives the same numbers, after the lines that load checkpoint, text and windows."""
    return f"""from pathlib import Path

from interp_core import features, sae_files, sae_quality

trained = sae_files.load(Path({path!r}))
site = sae_quality.Site.of(checkpoint.model, windows, {lens.site!r})
print(sae_quality.of_autoencoder(site, trained.sae, seed={lens.bench.seed}))
fired = features.fire(checkpoint.model, trained.sae, windows[:, :-1], {lens.site!r})
print(fired.density[{feature}], fired.largest[{feature}])"""
