"""Induction: is it a circuit of two heads that copies?

The textbook circuit (Elhage et al. 2021; Olsson et al. 2022): a *previous-token head* writes into every position which token
came before it, and in a later layer a *matching head* looks for the position whose predecessor is the current token, reads
the token there, and raises its logit. `measure_heads` looks for both, `intervene` takes them away;
`copying_verdict.py` says what can be concluded.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from interp_core import copying, edits, head_scores
from interp_core.copying import Behaviour, Protocol
from interp_core.model import GPT, Edits, forward
from interp_core.statistics import Interval, interval, mean_interval

OFFSETS = range(-6, 7)  # places around the earlier occurrence; 0 is the occurrence, 1 the token after it
PRESENT = 0.3  # share of attention from which a head counts as a previous-token or a matching head
LENGTHS = 4  # different repeats, so that a head that looks a fixed distance back does not pass for a matching one
SEQUENCES = 128
RANDOM_DRAWS = 200  # of composition between random matrices
BATCH_TOKENS = 1024  # read at once
Progress = Callable[[float], None]


@dataclass(frozen=True, eq=False)
class Circuit:
    """What every head does on repeated random tokens, how heads are joined, and which two would be the textbook's.

    Heads and places are chosen on the even sequences; `match`, `previous` and `around` report the odd ones.
    """

    table: pd.DataFrame  # a row a head: see `measure_heads`
    profiles: Float[np.ndarray, "sequence flat_head offset"]  # attention around the match, above an unrelated context's
    offsets: tuple[int, ...]
    previous_scores: Float[np.ndarray, "sequence flat_head"]
    composition: pd.DataFrame  # lower, upper, k_composition; random_mean and random_high (97.5%) of random matrices
    candidate: str | None  # the head above layer 0 that looks most at what followed the earlier occurrence
    feeder: str | None  # the head below the candidate with the largest previous-token score
    peak: tuple[str, int]  # the head, and its place around the match, that gets most attention of all
    seed: int

    def around(self, head: str, offset: int) -> Interval:
        """Attention of a head to a place around the match, above what the place gets after an unrelated context. Share."""
        return interval(self.profiles[1::2, self._row(head), self.offsets.index(offset)], self.seed)

    def match(self, head: str) -> Interval:
        """Attention to the token after the earlier occurrence, above an unrelated context's. Share."""
        return self.around(head, 1)

    def previous(self, head: str) -> Interval:
        """Previous-token score. Share."""
        return interval(self.previous_scores[1::2, self._row(head)], self.seed)

    def profile(self, head: str) -> pd.DataFrame:
        """A row a place around the match: offset, attention, attention_low, attention_high."""
        ends = mean_interval(self.profiles[:, self._row(head)], self.seed)
        return pd.DataFrame({"offset": self.offsets, **dict(zip(_ends("attention"), ends, strict=True))})

    def place(self, head: str) -> tuple[int, int]:
        """Layer and index of a head."""
        row = self.table.iloc[self._row(head)]
        return int(row["layer"]), int(row["index"])

    def _row(self, head: str) -> int:
        return int(self.table.index[self.table["head"] == head][0])


@dataclass(frozen=True, eq=False)
class Interventions:
    """What is left of copying when heads are taken away."""

    table: pd.DataFrame  # a row a head: see `intervene`
    changes: Float[np.ndarray, "head sequence"]  # of the copying gain, nats
    seed: int

    def against_control(self, head: str) -> Interval | None:
        """Change of the gain without a head, minus that without its control head, sequence by sequence. Nats."""
        row = self.table.index[self.table["head"] == head]
        control = self.table.index[self.table["control_for"].map(lambda heads: head in heads)]
        if row.empty or control.empty:
            return None
        return interval(self.changes[row[0]] - self.changes[control[0]], self.seed)


@torch.no_grad()
def measure_heads(
    model: GPT, longest: int, sequences: int = SEQUENCES, seed: int = 0, progress: Progress | None = None
) -> Circuit:
    """Measures every head on random tokens that repeat once, after several lengths up to `longest`.

    The table has for each head: head, layer, index; prefix_matching_score (attention to the token after the earlier
    occurrence), matched_score (the same above what that place gets after an unrelated context) and previous_token_score,
    each with _low and _high over sequences; copying_score of its OV circuit; output_norm.

    Raises:
        ValueError: a repeat of fewer than two tokens, or one that does not fit the context twice.
    """
    halves = sorted({int(half) for half in np.linspace(max(copying.SHORTEST, longest / 2), longest, LENGTHS)})
    offsets = tuple(offset for offset in OFFSETS if 1 - halves[0] < offset < halves[0])
    found: list[tuple[np.ndarray, ...]] = []
    for done, half in enumerate(halves):
        protocol = Protocol(half, 2, max(2, sequences // len(halves)), seed + done)
        made = copying.conditions(model.config.d_vocab, protocol)
        same, unrelated = (_read(model, made[name][:, :-1], half, offsets) for name in ("same", "unrelated"))
        found.append((same.around[..., offsets.index(1)], same.around - unrelated.around, same.previous, same.norms))
        if progress:
            progress((done + 1) / len(halves))
    mixed = np.random.default_rng(seed).permutation(sum(len(part[0]) for part in found))  # all lengths in both halves
    raw, profiles, previous, norms = (np.concatenate(parts)[mixed] for parts in zip(*found, strict=True))
    table = _table(model, raw, profiles[..., offsets.index(1)], previous, seed).assign(output_norm=norms.mean(0))
    chosen = profiles[0::2].mean(0)  # [flat_head offset]
    candidate = _best(table, chosen[:, offsets.index(1)], range(1, model.config.layers))
    below = range(0 if candidate is None else int(table.set_index("head")["layer"][candidate]))
    peak = np.unravel_index(chosen.argmax(), chosen.shape)
    return Circuit(
        table=table,
        profiles=profiles,
        offsets=offsets,
        previous_scores=previous,
        composition=_composition(model, seed),
        candidate=candidate,
        feeder=_best(table, previous[0::2].mean(0), below),
        peak=(str(table["head"][int(peak[0])]), offsets[int(peak[1])]),
        seed=seed,
    )


@torch.no_grad()
def intervene(
    model: GPT,
    circuit: Circuit,
    behaviour: Behaviour,
    protocol: Protocol,
    frequencies: Float[Tensor, "d_vocab"] | None = None,
    progress: Progress | None = None,
) -> Interventions:
    """Takes the circuit's heads and control heads away and measures what is left of copying.

    A head is replaced by its mean at each position over unrelated sequences, which knows nothing of the context at hand. A
    control head is neither a matching nor a previous-token head, as loud as the head it controls, and of its layer if
    there is one.

    The table has for each head: head, role, control_for; gain_nats (what is left of the copying gain), change_nats (below
    zero: copying suffers) and match_left (matched attention of the candidate without this head), each with _low and _high.
    """
    roles, controls = _roles(circuit), _controls(circuit)
    heads = [*roles, *dict.fromkeys(controls.values())]
    sites = {f"z.{circuit.place(head)[0]}" for head in heads}
    unrelated = copying.conditions(model.config.d_vocab, protocol, frequencies)["unrelated"][:, :-1]
    means, intact = _means(model, unrelated, sites), behaviour.gain("shuffled")
    rows, changes = [], []
    for done, head in enumerate(heads):
        layer, index = circuit.place(head)
        without = {f"z.{layer}": edits.on_heads([index], edits.put(means[f"z.{layer}"]))}
        gain = copying.gain_under(model, protocol, frequencies, without)
        measured = {"gain_nats": gain, "change_nats": gain - intact}
        if circuit.candidate is not None:
            measured["match_left"] = _match_left(model, circuit, protocol, without)
        controlled = tuple(other for other, control in controls.items() if control == head)
        row: dict[str, object] = {"head": head, "role": roles.get(head, "control"), "control_for": controlled}
        for name, values in measured.items():
            ends = interval(values, circuit.seed)
            row |= dict(zip(_ends(name), (ends.estimate, ends.low, ends.high), strict=True))
        rows.append(row)
        changes.append(gain - intact)
        if progress:
            progress((done + 1) / len(heads))
    return Interventions(pd.DataFrame(rows), np.stack(changes), circuit.seed)


def emergence(
    models: Iterable[tuple[int, GPT]], protocol: Protocol, progress: Callable[[int], None] | None = None
) -> pd.DataFrame:
    """How copying and the heads for it came about, over the snapshots of a training run (step and model).

    `progress` is told how many are done.

    Returns:
        A row a snapshot: step, copying_gain_nats with _low and _high, best_match and best_previous (the largest matched and
        previous-token score of any head, shares of attention).
    """
    rows = []
    for step, model in models:
        gain = copying.measure(model, protocol).copying_gain
        table = measure_heads(model, protocol.half, SEQUENCES // 4, protocol.seed).table
        ends = dict(zip(_ends("copying_gain_nats"), (gain.estimate, gain.low, gain.high), strict=True))
        best = {"best_match": table["matched_score"].max(), "best_previous": table["previous_token_score"].max()}
        rows.append({"step": step, **ends, **best})
        if progress:
            progress(len(rows))
    return pd.DataFrame(rows)


@dataclass(frozen=True, eq=False)
class _Reading:
    """Of one batch of sequences: attention around the match, previous-token scores, output norms."""

    around: Float[np.ndarray, "sequence flat_head offset"]
    previous: Float[np.ndarray, "sequence flat_head"]
    norms: Float[np.ndarray, "sequence flat_head"]


def _read(model: GPT, tokens: Tensor, half: int, offsets: Sequence[int], edit: Edits | None = None) -> _Reading:
    layers, found = range(model.config.layers), []
    taps = [f"{name}.{layer}" for layer in layers for name in ("pattern", "z")]
    for part in _batches(tokens):
        trace = forward(model, part, taps, edit, stop_early=True)
        patterns = [trace[f"pattern.{layer}"] for layer in layers]
        around = [head_scores.matching_profile(pattern, half, offsets) for pattern in patterns]
        previous = [head_scores.previous_token_score(pattern) for pattern in patterns]
        norms = [head_scores.output_norms(model, layer, trace[f"z.{layer}"]).mean(1) for layer in layers]
        found.append([torch.cat(values, dim=1) for values in (around, previous, norms)])
    return _Reading(*(torch.cat(parts).numpy() for parts in zip(*found, strict=True)))


def _match_left(model: GPT, circuit: Circuit, protocol: Protocol, edit: Edits) -> Float[np.ndarray, "sequence"]:
    """Matched attention of the candidate under an edit, on sequences that repeat once."""
    assert circuit.candidate is not None
    row = int(circuit.table.index[circuit.table["head"] == circuit.candidate][0])
    once = Protocol(protocol.half, 2, SEQUENCES, protocol.seed)
    made = copying.conditions(model.config.d_vocab, once)
    same, unrelated = (_read(model, made[n][:, :-1], once.half, (1,), edit).around for n in ("same", "unrelated"))
    return (same - unrelated)[:, row, 0]


def _roles(circuit: Circuit) -> dict[str, str]:
    """The heads to take away, and why."""
    found: dict[str, str] = {}
    if circuit.candidate is not None:
        present = circuit.match(circuit.candidate).low > PRESENT
        found[circuit.candidate] = "matching" if present else "best at matching, too weak"
    if circuit.feeder is not None:
        present = circuit.previous(circuit.feeder).low > PRESENT
        found[circuit.feeder] = "previous-token" if present else "best at the previous token, too weak"
    if circuit.peak[1] != 1:
        found[circuit.peak[0]] = "looks most around the match"
    return found


def _controls(circuit: Circuit) -> dict[str, str]:
    """For each head that is taken away, the nearest in loudness that neither matches nor looks one back."""
    table = circuit.table.set_index("head")
    table = table[~table.index.isin(_roles(circuit))]
    strength, layers = (
        table[["matched_score", "previous_token_score"]].max(axis=1),
        circuit.table.set_index("head")["layer"],
    )
    found, loud = {}, circuit.table.set_index("head")["output_norm"]
    for head in _roles(circuit):
        others = table[strength < PRESENT]
        near = others[others["layer"] == layers[head]]
        pool = others if near.empty else near
        if not pool.empty:
            found[head] = str((pool["output_norm"] - loud[head]).abs().idxmin())
        elif not table.empty:  # all are of the kind: the weakest, which makes the comparison harder to pass
            found[head] = str(strength.idxmin())
    return found


def _table(model: GPT, raw: np.ndarray, matched: np.ndarray, previous: np.ndarray, seed: int) -> pd.DataFrame:
    config = model.config
    places = [(layer, index) for layer in range(config.layers) for index in range(config.heads)]
    columns: dict[str, object] = {
        "head": [f"L{layer}H{index}" for layer, index in places],
        "layer": [layer for layer, _ in places],
        "index": [index for _, index in places],
    }
    scores = {"prefix_matching_score": raw, "matched_score": matched, "previous_token_score": previous}
    for name, values in scores.items():
        columns |= dict(zip(_ends(name), mean_interval(values, seed), strict=True))
    copies = [head_scores.copying_scores(model, layer) for layer in range(config.layers)]
    return pd.DataFrame({**columns, "copying_score": torch.cat(copies).numpy()})


def _composition(model: GPT, seed: int) -> pd.DataFrame:
    """Every head with every head of every later layer."""
    rows = []
    for lower in range(model.config.layers):
        for upper in range(lower + 1, model.config.layers):
            found = head_scores.k_composition(model, lower, upper)
            rows += [(f"L{lower}H{i}", f"L{upper}H{j}", found[i, j].item()) for i, j in np.ndindex(*found.shape)]
    chance = head_scores.random_composition(model.config, RANDOM_DRAWS, seed).numpy()
    table = pd.DataFrame(rows, columns=["lower", "upper", "k_composition"])
    return table.assign(random_mean=float(chance.mean()), random_high=float(np.quantile(chance, 0.975)))


def _best(table: pd.DataFrame, scores: np.ndarray, layers: range) -> str | None:
    """The head of some layers with the largest score."""
    among = table.index[table["layer"].isin(layers)]
    return None if among.empty else str(table["head"].iloc[int(among[int(scores[among].argmax())])])


def _means(model: GPT, tokens: Tensor, sites: set[str]) -> dict[str, Tensor]:
    """What heads write on average at each position."""
    traces = [forward(model, part, sites, stop_early=True) for part in _batches(tokens)]
    return {site: torch.cat([trace[site] for trace in traces]).mean(0, keepdim=True) for site in sites}


def _batches(tokens: Tensor) -> tuple[Tensor, ...]:
    return tokens.split(max(1, BATCH_TOKENS // tokens.shape[1]))


def _ends(name: str) -> tuple[str, str, str]:
    return name, f"{name}_low", f"{name}_high"
