"""The Induction page's study of a checkpoint, and its figures."""

from collections.abc import Callable
from dataclasses import dataclass

import altair as alt
import pandas as pd
import streamlit as st
import torch
from torch import Tensor

from interp_core import baselines, checkpoints, copying, copying_verdict, corpora, induction, run_files
from interp_core.copying import Behaviour, Protocol
from interp_core.copying_verdict import Verdict
from interp_core.induction import PRESENT, Circuit, Interventions
from interp_core.model import GPT
from interp_core.statistics import Interval
from ui import cache, effort, session, wording
from ui.bench import Bench
from ui.charts import induction as charts
from ui.progress import with_progress

CONTROL = "induction"  # the shipped checkpoint that is known to copy
UNIFORM, AS_TEXT = "uniform", "as in the text"
SEQUENCES, FEW_SEQUENCES, MOST_SEQUENCES = 300, 50, 1000  # few of a large model
SHORTEST = 4  # tokens of a repeat where there is room: a shuffle of fewer leaves too much of their order
TEXT_WINDOWS, FEW_TEXT_WINDOWS = 256, 32  # of natural text


@dataclass(frozen=True, eq=False)
class Study:
    """One checkpoint under one protocol: every measurement of the page, each made once and cached."""

    bench: Bench
    protocol: Protocol
    source: str
    margin: float

    @property
    def model(self) -> GPT:
        """The visitor's model."""
        return self.bench.checkpoint.model

    @property
    def frequencies(self) -> Tensor | None:
        """How likely each token is drawn; None is uniform."""
        if self.source == UNIFORM:
            return None
        return torch.bincount(self.bench.text.train, minlength=self.model.config.d_vocab).float()

    @property
    def provenance(self) -> str:
        """Where the numbers come from, in one line."""
        p, drawn = self.protocol, "drawn uniformly" if self.source == UNIFORM else f"drawn as in {self.bench.text.name}"
        return (
            f"checkpoint {self.bench.checkpoint.name} ({self.bench.checkpoint.short_hash}) · {p.sequences} sequences of "
            f"{p.copies} copies of {p.half} random tokens, {drawn} · seed {p.seed}"
        )

    def behaviour(self) -> Behaviour:
        """How well the last copy is predicted after each context."""
        return self._measured(self.bench.checkpoint.sha256, self.model, self.protocol, self._drawn, self.frequencies)

    @property
    def head_sequences(self) -> int:
        """How many sequences heads are measured on."""
        return FEW_SEQUENCES if effort.is_large(self.model) else induction.SEQUENCES

    def circuit(self) -> Circuit:
        """What every head does on repeats."""
        key, p = self.bench.checkpoint.sha256, self.protocol
        return with_progress(
            "Looking for the heads of the circuit",
            lambda tell: cache.circuit(key, p.half, p.seed, self.head_sequences, self.model, tell),
        )

    def interventions(self) -> Interventions:
        """What is left of copying without the heads of the circuit, and without control heads."""
        key = f"{self.bench.checkpoint.sha256} {self.protocol} {self._drawn}"
        given = (self.model, self.circuit(), self.behaviour(), self.protocol, self.frequencies)
        return with_progress(
            "Taking heads away and measuring what is left of copying",
            lambda tell: cache.interventions(key, given, tell),
        )

    def positive_control(self) -> tuple[Interval, Protocol, bool] | None:
        """Copying gain of the model known to copy, by the protocol as far as it fits, and whether the tokens fit."""
        path = session.FOLDER / f"{CONTROL}.pt"
        try:
            known = cache.checkpoint_of(path)
        except (checkpoints.CheckpointError, OSError):
            return None
        longest = copying.longest_half(known.model.config.context, self.protocol.copies)
        if longest < copying.SHORTEST:
            return None
        p = self.protocol
        protocol = Protocol(min(p.half, longest), p.copies, p.sequences, p.seed)
        alike = known.model.config.d_vocab == self.model.config.d_vocab  # else the frequencies do not fit it
        drawn = (self._drawn, self.frequencies) if alike else ("", None)
        return self._measured(known.sha256, known.model, protocol, *drawn).copying_gain, protocol, alike

    def untrained(self) -> Interval:
        """The copying gain of an untrained model of the same shape."""
        config = self.model.config
        model = GPT(config, self.protocol.seed)
        return self._measured(f"untrained {config}", model, self.protocol, self._drawn, self.frequencies).copying_gain

    def verdict(self) -> Verdict:
        """What can be concluded; heads are taken away only where there is copying to lose."""
        behaviour, control = self.behaviour(), self.positive_control()
        copies = behaviour.copying_gain.low > self.margin
        interventions = self.interventions() if copies else None
        known = None if control is None else control[0]
        return copying_verdict.judge(behaviour, self.circuit(), interventions, known, self.margin)

    def emergence(self) -> pd.DataFrame | None:
        """Copying and its heads over the snapshots of the training; None where none were kept."""
        if self.bench.path is None:
            return None
        whole = run_files.run_of(self.bench.path)
        steps = checkpoints.history(whole)
        if not steps:
            return None
        key = cache.checkpoint_of(whole).sha256
        return with_progress(
            f"Measuring {len(steps)} snapshots of the training",
            lambda tell: cache.emergence(key, str(self.protocol), steps, self.protocol, tell),
        )

    @property
    def _drawn(self) -> str:
        """Names the frequencies in a cache's key."""
        return "" if self.source == UNIFORM else self.bench.text.sha256

    def _measured(self, name: str, model: GPT, protocol: Protocol, drawn: str, frequencies: Tensor | None) -> Behaviour:
        return with_progress(
            f"Reading {protocol.sequences} sequences in three contexts",
            lambda tell: cache.behaviour(name, str(protocol), drawn, (model, protocol, frequencies), tell),
        )


def choose_protocol(bench: Bench) -> Study | None:
    """The page's own part of the sidebar; None, with a word, where the context has no room for a repeat."""
    context = bench.checkpoint.model.config.context
    most_copies = min(4, (context + 1) // copying.SHORTEST)
    copies = 2
    if most_copies > 2:
        copies = st.slider("Copies", 2, most_copies, 2, key=session.COPIES, bind="query-params")
    longest = min(128, copying.longest_half(context, copies))
    if longest < copying.SHORTEST:
        st.error(f"A context of {context} tokens has no room for a repeat: 3 are the least.")
        return None
    half = longest
    if longest > SHORTEST:
        half = st.slider(
            "Repeat, tokens", SHORTEST, longest, min(32, longest), key=session.HALF, bind="query-params",
            help=f"Up to {longest}: {copies} copies must fit the context of {context}.",
        )  # fmt: skip
    usual = FEW_SEQUENCES if effort.is_large(bench.checkpoint.model) else SEQUENCES
    sequences = st.slider("Sequences", 50, MOST_SEQUENCES, usual, 50, key=session.SEQUENCES, bind="query-params")
    margin = st.slider(
        "Margin, nats", 0.01, 1.0, copying_verdict.MARGIN, 0.01, key=session.MARGIN, bind="query-params",
        help="A copying gain below it does not matter to you. An absence is shown when the gain's upper bound is below.",
    )  # fmt: skip
    source = st.segmented_control(
        "Tokens", [UNIFORM, AS_TEXT], default=UNIFORM, key=session.SOURCE, bind="query-params", required=True,
        help="How the random tokens are drawn: all equally often, or as often as in the chosen text.",
    )  # fmt: skip
    return Study(bench, Protocol(half, copies, sequences, bench.seed), source or UNIFORM, margin)


def by_position(study: Study, head: str) -> alt.LayerChart:
    """Loss of the last copy, position by position."""
    table = study.behaviour().table()
    uniform = baselines.uniform_loss(study.model.config.d_vocab)
    names = {"loss_nats": "loss", "loss_nats_low": "low", "loss_nats_high": "high"}
    chart = charts.by_position(table.rename(columns=names), uniform)
    st.altair_chart(chart, alt="Loss of each position of the last copy after the same, shuffled and unrelated tokens.")
    st.caption(
        "The same targets after three contexts, with 95% bands. Only *order* tells copying: look at the gap between "
        "**shuffled** and **same**. Between unrelated and shuffled lies what it is worth that the tokens are around."
    )
    return chart


def heads(study: Study, head: str) -> alt.LayerChart:
    """Matching against copying, a point a head."""
    circuit = study.circuit()
    table = circuit.table.assign(role=[_role(row) for row in circuit.table.to_dict("records")])
    chart = charts.plane(table, _joins(table, circuit), head)
    st.altair_chart(
        chart, key="plane", on_select=lambda: session.take_head("plane"), selection_mode="picked",
        alt="Heads by matching and copying score; lines join previous-token heads to matching heads.",
    )  # fmt: skip
    st.caption(
        f"An induction head lies top right; a head counts from {PRESENT} of its attention on. Lines go from previous-token "
        "heads to matching heads: thicker is more K-composition, dashed is no more than random matrices of the same shape. "
        "**Click a head.** The copying score follows the direct path from embedding to unembedding and ignores MLPs and heads "
        "below. Heads are measured on uniform tokens that repeat once."
    )
    return chart


def around(study: Study, head: str) -> alt.LayerChart:
    """Where the selected head, the candidate and the head with the largest match look, relative to the match."""
    circuit = study.circuit()
    shown = dict.fromkeys(name for name in (head, circuit.candidate, circuit.peak[0]) if name is not None)
    names = {"attention_low": "low", "attention_high": "high"}
    table = pd.concat([circuit.profile(name).rename(columns=names).assign(head=name) for name in shown])
    chart = charts.around_match(table)
    st.altair_chart(chart, alt=f"Attention of {', '.join(shown)} to places around the earlier occurrence.")
    st.caption(
        "0 is where the current token stood earlier, 1 the token that followed it. A bar at 1 is induction, at 0 a "
        "duplicate-token match, elsewhere a shifted match. What the place gets after an unrelated context is taken off, and "
        "repeats of several lengths are mixed, so a head that looks a fixed distance back shows nothing."
    )
    return chart


def interventions(study: Study, head: str) -> alt.LayerChart:
    """What is left of copying without each head of the circuit, and without its control."""
    found = study.interventions()
    gain = study.behaviour().copying_gain
    table = found.table.assign(
        name=[_described(row) for row in found.table.to_dict("records")],
        kind=["control" if role == "control" else "candidate" for role in found.table["role"]],
    ).rename(columns={"gain_nats": "gain", "gain_nats_low": "low", "gain_nats_high": "high"})
    chart = charts.without(table[["name", "kind", "gain", "low", "high"]], gain.estimate)
    st.altair_chart(chart, alt="The copying gain that is left without each head, with intervals.")
    st.caption(
        "Each head is replaced by its mean over unrelated sequences. Dashed: the intact model. A head that copying needs "
        "moves the gain towards 0; a control head, the nearest in loudness, should move it less."
        " Where it does not, copying needs other heads than the textbook's."
    )
    return chart


def natural_text(study: Study, head: str) -> alt.LayerChart | None:
    """Repeats in the chosen text, and what replacing one character of them does."""
    bench, context = study.bench, study.bench.windows.shape[1] - 1
    most = FEW_TEXT_WINDOWS if effort.is_large(bench.checkpoint.model) else TEXT_WINDOWS
    count = min(most, corpora.count_windows(bench.text.validation, context))
    windows = corpora.windows(bench.text.validation, context, count, bench.seed)
    repeated, replaced = cache.copying_in_text(
        bench.checkpoint.sha256, cache.digest(windows), bench.seed, study.model, windows
    )
    rows = []
    if repeated is not None:
        rows.append(("better predicted with an earlier copy", repeated.gain))
    if replaced is not None:
        rows.append(("harder when the earlier copy is changed", replaced.after_copy))
        rows.append(("control: same token changed elsewhere", replaced.elsewhere))
        rows.append(("difference: what the copy is worth", replaced.difference))
    if not rows:
        st.info(f"No trigram is repeated in {count} windows of {bench.text.name}: choose a longer or another text.")
        return None
    table = pd.DataFrame(
        [(name, i.estimate, i.low, i.high) for name, i in rows], columns=["name", "effect", "low", "high"]
    )
    chart = charts.differences(table)
    st.altair_chart(chart, alt="Effects of an earlier copy in natural text, with intervals.")
    counts = (
        []
        if repeated is None
        else [f"{repeated.occurrences} repeats of {repeated.types} trigrams that occur both ways"]
    )
    counts += [] if replaced is None else [f"one repeat in each of {replaced.windows} windows is changed"]
    st.caption(
        f"{bench.text.name}, {count} disjoint windows: {'; '.join(counts)}. The first row is a correlation, the last one is "
        "not: the copy's last token is replaced, and so is, as a control, the same token where it stood in other company."
    )
    return chart


def emergence(study: Study, head: str) -> alt.LayerChart | None:
    """Copying and its heads over the training."""
    table = study.emergence()
    if table is None:
        st.info(
            f"No snapshots of {study.bench.checkpoint.name}'s training were kept. The checkpoint {CONTROL} has them: "
            "choose it in the sidebar and watch its circuit form."
        )
        return None
    chart = charts.emergence(table)
    st.altair_chart(chart, alt="Copying gain, previous-token and matching score over training steps.")
    st.caption(
        "Blue: the copying gain (left). Dashed: the best head's scores (right). Do the previous-token head, the matching "
        "head and copying appear together, as in the phase change of Olsson et al.? Steps are on a logarithmic axis."
    )
    return chart


VIEWS: dict[str, Callable[[Study, str], alt.Chart | alt.LayerChart | None]] = {
    "loss by position": by_position,
    "heads": heads,
    "around the match": around,
    "without a head": interventions,
    "in the text": natural_text,
    "emergence": emergence,
}


def gains(behaviour: Behaviour) -> pd.DataFrame:
    """The four gains with their intervals, in words."""
    named = {
        "order (copying): shuffled − same": behaviour.copying_gain,
        "tokens around: unrelated − shuffled": behaviour.vocabulary_gain,
        "both: unrelated − same": behaviour.context_gain,
        "the course's: first − last copy": behaviour.course_gain,
    }
    return pd.DataFrame([(name, wording.plus_minus(value)) for name, value in named.items()], columns=["gain", "nats"])


def choose_head(circuit: Circuit) -> str:
    """The selected head with its scores; it goes along to the other pages."""
    names = list(circuit.table["head"])
    session.default_to(session.HEAD, names, circuit.candidate or names[0])
    head = st.selectbox("Head", names, key=session.HEAD, bind="query-params") or names[0]
    row = circuit.table.set_index("head").loc[head]
    shown = {
        "previous token": "previous_token_score",
        "prefix matching": "prefix_matching_score",
        "matching": "matched_score",
    }
    words = [f"{name} {wording.plus_minus(_interval(row, column))}" for name, column in shown.items()]
    st.caption(" · ".join([*words, f"copying {row['copying_score']:+.2f}"]))
    left, right = st.columns(2)
    left.page_link("pages/atlas.py", label=f"{head} in the Atlas", icon=":material/arrow_forward:")
    right.page_link("pages/ablation.py", label=f"{head} in Ablation", icon=":material/arrow_forward:")
    return head


def _interval(row: pd.Series, column: str) -> Interval:
    return Interval(*(float(row[f"{column}{end}"]) for end in ("", "_low", "_high")))


def _role(row: dict) -> str:
    if row["matched_score_low"] > PRESENT:
        return "matching"
    return "previous-token" if row["previous_token_score_low"] > PRESENT else "neither"


def _joins(table: pd.DataFrame, circuit: Circuit) -> pd.DataFrame:
    """Lines on the plane from each previous-token head to each matching head of a later layer, or to the candidate."""
    to = set(table.loc[table["role"] == "matching", "head"]) or {circuit.candidate}
    sources = set(table.loc[table["role"] == "previous-token", "head"])
    joins = circuit.composition
    joins = joins[joins["lower"].isin(sources) & joins["upper"].isin(to)]
    place = table.set_index("head")[["matched_score", "copying_score"]]
    ends = {"x": ("lower", "matched_score"), "y": ("lower", "copying_score")}
    ends |= {"x2": ("upper", "matched_score"), "y2": ("upper", "copying_score")}
    return joins.assign(**{name: joins[end].map(place[score]) for name, (end, score) in ends.items()})


def _described(row: dict) -> str:
    if row["role"] != "control":
        return f"{row['head']}: {row['role']}"
    return f"{row['head']}: control for {', '.join(row['control_for'])}"
