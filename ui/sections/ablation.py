"""The Ablation page's figures: the map, the ranking, three ways, pairs, and what breaks."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import altair as alt
import pandas as pd
import streamlit as st
import torch

from interp_core import ablation, samples
from interp_core.ablation import Donors, Mode, Part, Sweep
from interp_core.tokenizers import UnknownCharacters
from ui import session, wording
from ui.bench import Bench
from ui.charts import ablation as charts

DRAWN = 200  # tokens of text drawn from the intact and the ablated model
SENTENCE = "KING RICHARD:\nNow is the winter of our discontent\n"


@dataclass(frozen=True, eq=False)
class View:
    """What the page's figures need to know."""

    bench: Bench
    found: Sweep
    donors: Donors
    part: Part
    mode: Mode
    unit: str

    @property
    def scale(self) -> float:
        """Nats to the shown unit."""
        return 1.0 if self.unit == wording.NATS else 1 / math.log(2)

    def rows(self) -> pd.DataFrame:
        """The sweep in the shown mode and unit: part, layer, column, effect, low, high."""
        table = self.found.table[self.found.table["mode"] == self.mode]
        return self.shown(table, "effect_nats").assign(
            layer=table["layer"],
            column=[
                f"H{row.head}" if row.kind == "head" else "MLP" if row.kind == "mlp" else "attention"
                for row in table.itertuples()
            ],
        )

    def shown(self, table: pd.DataFrame, name: str) -> pd.DataFrame:
        """A table's numbers under the names that the charts use."""
        kept = table[[column for column in ("part", "mode", "first", "second") if column in table]]
        ends = {"effect": name, "low": f"{name}_low", "high": f"{name}_high"}
        return kept.assign(**{short: self.scale * table[column] for short, column in ends.items()})


def the_map(view: View) -> alt.LayerChart:
    """Layers × parts; click one."""
    chart = charts.part_map(view.rows(), view.part.name, view.unit, session.is_dark())
    _selectable(chart, "part_map", session.take_part, "Loss added by taking each part away, layers down, parts across.")
    st.caption(
        "A cell is a part taken away: orange costs, blue helps, the number is the loss that is added. The colour scale is "
        "compressed. *attention* and *MLP* take the whole of a layer's. **Click a cell.**"
    )
    return chart


def the_ranking(view: View) -> alt.LayerChart:
    """Every part in order, with intervals and reference lines."""
    losses = view.bench.preflight().losses.set_index("predictor")["nats"]
    names = [name for name in losses.index if name != "this model"]
    lines = {name: view.scale * (losses[name] - losses["this model"]) for name in names}
    chart = charts.ranking(view.rows(), view.part.name, view.unit, lines)
    _selectable(
        chart, "ranking", session.take_part, "Parts ranked by the loss that their absence adds, with intervals."
    )
    st.caption(
        "A bar is a part, the rule its 95% interval. Dashed: where the loss would be that of pair counts, frequencies, guessing."
    )
    return chart


def the_three_ways(view: View) -> alt.LayerChart:
    """Zero, mean and resample side by side."""
    table = view.found.table
    if not st.toggle("Whole layers too", key=session.LAYERS):
        table = table[table["kind"] == "head"]
    chart = charts.three_ways(view.shown(table, "effect_nats"), view.unit)
    st.altair_chart(chart, alt="Each part taken away in three ways, with intervals.")
    st.caption(
        "The same part, three questions. *Zero*: without it. *Mean*: without what it says of this text in particular. "
        "*Resample*: with what it says of another text, which misleads the layers above as well."
    )
    return chart


def the_pairs(view: View) -> alt.Chart | None:
    """What two heads cost together beyond the sum of what each costs alone."""
    try:
        table = view.bench.ablation_pairs(view.mode)
    except ValueError as error:
        st.info(f"{error}")
        return None
    couples = list(zip(table["first"], table["second"], strict=True))
    names = [f"{first} + {second}" for first, second in couples]
    largest = int(table["choosing_nats"].abs().argmax())
    session.default_to(session.PAIR, names, names[largest])
    place = names.index(st.selectbox("Pair", names, key=session.PAIR) or names[largest])
    joint, total = (view.scale * float(table[column].iloc[place]) for column in ("joint_nats", "sum_nats"))
    row = view.shown(table, "held_out_nats" if place == largest else "interaction_nats").iloc[place]
    where = "on the windows that did not choose this pair" if place == largest else "on all windows"
    st.markdown(
        f"Together {joint:+.3f}, alone in sum {total:+.3f} {view.unit}. Beyond the sum: **{row['effect']:+.3f}** "
        f"[{row['low']:+.3f}, {row['high']:+.3f}], {where}. {_interaction(row['low'], row['high'])}"
    )
    shown = view.shown(table, "interaction_nats")
    chart = charts.pair_map(shown, couples[place], view.unit, session.is_dark())
    _selectable(chart, "pair_map", session.take_pair, "Interaction of every two heads.")
    st.caption(
        "Orange: the two back each other up, either one hides the loss. Blue: they serve one path, which either one breaks."
    )
    return chart


def what_breaks(view: View) -> alt.LayerChart | None:
    """A text coloured by each character's change of loss, and text drawn from both models."""
    checkpoint = view.bench.checkpoint
    typed = st.text_area(
        "Your text", SENTENCE, key=session.BROKEN, max_chars=400, height=80, label_visibility="collapsed"
    )
    try:
        tokens = checkpoint.tokenizer.encode(typed or "", "drop")
    except (UnknownCharacters, ValueError) as error:
        st.error(f"{error}")
        tokens = view.bench.windows[0]
    tokens, word = tokens[: view.bench.context + 1], view.bench.token_word
    if len(tokens) < 2:
        st.info(f"Type at least two {word}s that the checkpoint knows.")
        return None
    intact, ablated = ablation.token_effects(checkpoint.model, tokens, view.part, view.mode, view.donors).tolist()
    labels = [checkpoint.tokenizer.label(int(t)) for t in tokens[1:]]
    table = pd.DataFrame({"token": labels, "intact": intact, "ablated": ablated})
    table["change"] = table["ablated"] - table["intact"]
    chart = charts.broken_text(table, session.is_dark())
    st.altair_chart(chart, alt=f"Your text, each {word} coloured by the change of its loss without {view.part.name}.")
    st.caption(
        f"Each {word} from the second on, by what predicting it costs more (orange) or less (blue) without {view.part.name}. "
        f"The first {view.bench.context} {word}s are read. One text, no interval."
    )
    left, right = st.columns(2)
    for column, name, edits in ((left, "Intact", {}), (right, f"Without {view.part.name}", _edits(view))):
        column.caption(f"{name}, same seed:")
        column.code(_drawn(view, tokens[:1], edits, name), language=None, wrap_lines=True)
    return chart


VIEWS: dict[str, Callable[[View], alt.Chart | alt.LayerChart | None]] = {
    "map": the_map,
    "ranking": the_ranking,
    "three ways": the_three_ways,
    "pairs": the_pairs,
    "what breaks": what_breaks,
}


def _edits(view: View) -> ablation.Edits:
    return ablation.edits_for([view.part], view.mode, view.donors, torch.zeros(1, dtype=torch.long))


def _drawn(view: View, prompt: torch.Tensor, edits: ablation.Edits, name: str) -> str:
    model, seed, room = view.bench.checkpoint.model, view.bench.seed, view.bench.context
    length = DRAWN if room == model.config.context else min(DRAWN, room - 1)  # donors are as long as the windows
    with st.spinner(f"Drawing text: {name}"):
        tokens = samples.generate(model, prompt[None], length, seed=seed, edits=edits)
    return view.bench.checkpoint.tokenizer.decode(tokens[0].tolist())


def _interaction(low: float, high: float) -> str:
    if low > 0:
        return "They back each other up."
    if high < 0:
        return "They serve one path."
    return "No interaction that can be measured here."


def _selectable(chart: alt.Chart | alt.LayerChart, key: str, take: Callable[[str], None], alt_text: str) -> None:
    st.altair_chart(chart, key=key, on_select=lambda: take(key), selection_mode="picked", alt=alt_text)


def choose_part(bench: Bench, default: str) -> Part:
    """The selected part; a head goes along from and to the other pages."""
    chosen = {part.name: part for part in ablation.parts(bench.checkpoint.model.config)}
    names = list(chosen)
    head = st.session_state.get(session.HEAD)
    if head in names and head != st.session_state.get(session.SEEN_HEAD):  # chosen on another page since
        st.session_state[session.PART] = head
    session.default_to(session.PART, names, default)
    part = chosen[st.selectbox("Part", names, key=session.PART, bind="query-params") or default]
    if part.kind == "head":
        st.session_state[session.HEAD] = part.name
    st.session_state[session.SEEN_HEAD] = st.session_state.get(session.HEAD)
    return part
