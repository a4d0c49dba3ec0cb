"""Ablation: what does the loss cost when a part of the model is taken away?

A *part* is a head, a layer's attention, or an MLP. It is taken away in one of three ways, which disagree and should be
seen side by side: by zero, by its mean at each position over training windows, or by what it wrote in another training
window. The effect is the increase of the loss on validation windows, paired with the intact model on the same windows.

A sweep never computes below the part that it takes away: the change of what a head writes is added to the cached residual
stream behind its attention (contributions of heads are additive), and the forward pass goes on from there.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_core import edits
from interp_core.head_scores import output_weights
from interp_core.model import GPT, Edits, ModelConfig, Trace, batch_of, forward, next_token_losses
from interp_core.statistics import Interval, interval, mean_interval

Mode = Literal["zero", "mean", "resample"]
MODES: tuple[Mode, ...] = ("zero", "mean", "resample")
MOST_PAIRED_HEADS = 32
BATCH_TOKENS = 1024  # read at once: what a layer writes then stays in the processor's cache
Progress = Callable[[float], None]


@dataclass(frozen=True, order=True)
class Part:
    """Something that can be taken away."""

    layer: int
    kind: Literal["head", "attention", "mlp"]
    head: int = -1  # of a head only

    @property
    def name(self) -> str:
        """`L0H3`, `L0 attention`, `L0 MLP`."""
        if self.kind == "head":
            return f"L{self.layer}H{self.head}"
        return f"L{self.layer} {'MLP' if self.kind == 'mlp' else 'attention'}"

    @property
    def site(self) -> str:
        """Where its output is edited: a head's before the output projection, the others' where they join the stream."""
        return f"{SITES[self.kind]}.{self.layer}"


SITES = {"head": "z", "attention": "attn_out", "mlp": "mlp_out"}


@dataclass(frozen=True, eq=False)
class Donors:
    """What every site of a part holds on training windows: what takes the place of what is taken away."""

    samples: dict[str, Tensor]  # site -> [window pos ...]
    means: dict[str, Tensor]  # site -> [1 pos ...]


@dataclass(frozen=True, eq=False)
class Sweep:
    """Every part taken away, one at a time, in every asked way."""

    table: pd.DataFrame  # a row a part and mode: part, kind, layer, head, mode; effect_nats, kl_nats, each _low, _high
    effects: Float[np.ndarray, "row window"]  # increase of each window's mean loss, nats; rows as the table's
    intact: Float[np.ndarray, "window"]  # mean loss of each window, nats
    seed: int


@dataclass(frozen=True)
class Strongest:
    """The head that costs most."""

    head: str
    effect: Interval  # nats
    windows: int  # on which it was measured


def parts(config: ModelConfig, kinds: Iterable[str] = ("head", "attention", "mlp")) -> tuple[Part, ...]:
    """All parts of a model, layer by layer."""
    wanted, found = set(kinds), []
    for layer in range(config.layers):
        if "head" in wanted:
            found += [Part(layer, "head", head) for head in range(config.heads)]
        if "attention" in wanted:
            found.append(Part(layer, "attention"))
        if "mlp" in wanted and config.d_mlp:
            found.append(Part(layer, "mlp"))
    return tuple(found)


@torch.no_grad()
def gather_donors(model: GPT, windows: Int[Tensor, "window pos_plus_1"]) -> Donors:
    """Runs the model on training windows and keeps what each part wrote, and its mean at each position."""
    taps = sorted({part.site for part in parts(model.config)})
    traces = [
        forward(model, batch[:, :-1], taps, stop_early=True) for batch in windows.split(_batch(model.config, windows))
    ]
    samples = {site: torch.cat([trace[site] for trace in traces]) for site in taps}
    return Donors(samples, {site: value.mean(0, keepdim=True) for site, value in samples.items()})


def edits_for(
    ablated: Iterable[Part], mode: Mode, donors: Donors | None = None, rows: Int[Tensor, "window"] | None = None
) -> Edits:
    """The edits that take a set of parts away, for `forward`.

    Args:
        ablated: the parts.
        mode: how.
        donors: for the modes mean and resample.
        rows: for resample, which donor window each window gets.

    Raises:
        ValueError: a mode that needs donors without them.
    """
    by_site: dict[str, list[Part]] = {}
    for part in ablated:
        by_site.setdefault(part.site, []).append(part)
    made: dict[str, edits.Edit] = {}
    for site, group in by_site.items():
        edit = edits.zero if mode == "zero" else edits.put(_donated(site, mode, donors, rows))
        heads = [part.head for part in group if part.kind == "head"]
        made[site] = edits.on_heads(heads, edit) if heads else edit
    return made


@torch.no_grad()
def sweep(
    model: GPT,
    windows: Int[Tensor, "window pos_plus_1"],
    donors: Donors | None = None,
    modes: Sequence[Mode] = ("zero",),
    ablated: Sequence[Part] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Sweep:
    """Takes every part away, one at a time, in every mode.

    Args:
        model: the model.
        windows: disjoint validation windows.
        donors: from `gather_donors`, for the modes mean and resample.
        modes: how to take away.
        ablated: which parts; all by default.
        seed: of the donors' assignment and the bootstrap.
        progress: told the share that is done.
    """
    chosen = parts(model.config) if ablated is None else ablated
    plan = [(part, mode) for mode in modes for part in chosen]
    size, rows = _batch(model.config, windows), assign(donors, len(windows), seed)
    effects, divergences, intact = [], [], []
    for batch, donor_rows in zip(windows.split(size), rows.split(size), strict=True):
        base = forward(model, batch[:, :-1], _cached_sites(model.config))
        losses, log_p = _window_losses(base.logits, batch), base.logits.log_softmax(-1)
        for part, mode in plan:
            site, change = _change(model, base, part, _value(part, mode, donors, donor_rows))
            logits = _from(model, base, site, change)
            effects.append(_window_losses(logits, batch) - losses)
            divergences.append(_divergence(log_p, logits))
            if progress:
                progress(len(effects) / len(plan) / math.ceil(len(windows) / size))
        intact.append(losses)
    joined, kl = (_by_row(values, len(plan)) for values in (effects, divergences))
    return Sweep(_table(plan, joined, kl, seed), joined, torch.cat(intact).numpy(), seed)


def assign(donors: Donors | None, count: int, seed: int) -> Int[Tensor, "window"]:
    """Which donor window each of `count` windows gets, seeded; zeros without donors."""
    if donors is None:
        return torch.zeros(count, dtype=torch.long)
    available = len(next(iter(donors.samples.values())))
    return torch.randint(available, (count,), generator=torch.Generator().manual_seed(seed))


def effect_of(found: Sweep, part: str, mode: Mode) -> Interval:
    """The effect of one part on all windows. Nats."""
    return interval(found.effects[_row(found, part, mode)], found.seed)


def strongest_head(found: Sweep, mode: Mode) -> Strongest:
    """The head that costs most, chosen on the even windows and measured on the odd ones: the best of many flatters."""
    rows = found.table.index[(found.table["kind"] == "head") & (found.table["mode"] == mode)]
    choosing, reporting = found.effects[rows, 0::2], found.effects[rows, 1::2]
    best = int(choosing.mean(1).argmax())
    return Strongest(
        str(found.table.loc[rows[best], "part"]), interval(reporting[best], found.seed), reporting.shape[1]
    )


def against_other_heads(found: Sweep, part: str, mode: Mode) -> tuple[int, int, Interval]:
    """The control of a claim: rank of a part's effect among all heads, their number, and its difference to the median one.

    The difference is taken window by window, so that what makes a window hard for all cancels.
    """
    heads = (found.table["kind"] == "head") & (found.table["mode"] == mode) & (found.table["part"] != part)
    others = found.effects[found.table.index[heads]]
    effect = found.effects[_row(found, part, mode)]
    rank = int((others.mean(1) > effect.mean()).sum()) + 1
    median = np.argsort(others.mean(1))[len(others) // 2] if len(others) else None
    difference = effect if median is None else effect - others[median]
    return rank, len(others) + 1, interval(difference, found.seed)


@torch.no_grad()
def token_effects(
    model: GPT, tokens: Int[Tensor, "pos_plus_1"], part: Part, mode: Mode, donors: Donors | None = None
) -> Float[Tensor, "2 pos"]:
    """Loss of each token of one window given all before it, intact and without a part. Nats."""
    made = edits_for([part], mode, donors, torch.zeros(1, dtype=torch.long))
    window = tokens[None]
    losses = [next_token_losses(forward(model, window[:, :-1], edits=e).logits, window[:, 1:])[0] for e in ({}, made)]
    return torch.stack(losses)


def _row(found: Sweep, part: str, mode: Mode) -> int:
    return int(found.table.index[(found.table["part"] == part) & (found.table["mode"] == mode)][0])


def _change(model: GPT, base: Trace, part: Part, value: Tensor) -> tuple[str, Tensor]:
    """The site behind a part, and what is added to the stream there when the part writes `value` instead."""
    if part.kind == "mlp":
        return f"resid_post.{part.layer}", value - base[part.site]
    if part.kind == "attention":
        return f"resid_mid.{part.layer}", value - base[part.site]
    mixed = value - base[part.site][:, :, part.head]
    return f"resid_mid.{part.layer}", mixed @ output_weights(model, part.layer)[part.head]


def _from(model: GPT, base: Trace, site: str, change: Tensor, later: Edits | None = None) -> Tensor:
    """Logits when the stream at `site` is changed; nothing below it is computed again."""
    return forward(model, None, edits=later, start=(site, base[site] + change)).logits


def _value(part: Part, mode: Mode, donors: Donors | None, rows: Tensor) -> Tensor:
    """What a part writes instead, over windows and positions; of a head, its own values only."""
    if mode == "zero":
        return torch.zeros(())
    value = _donated(part.site, mode, donors, rows)
    return value[:, :, part.head] if part.kind == "head" else value


def _donated(site: str, mode: Mode, donors: Donors | None, rows: Tensor | None) -> Tensor:
    if donors is None or (mode == "resample" and rows is None):
        raise ValueError(f"the mode {mode} needs donors: run gather_donors on training windows first")
    return donors.means[site] if mode == "mean" else donors.samples[site][rows]


def _cached_sites(config: ModelConfig) -> list[str]:
    names = ["z", "attn_out", "resid_mid", "resid_post", *(["mlp_out"] if config.d_mlp else [])]
    return [f"{name}.{layer}" for layer in range(config.layers) for name in names]


def _window_losses(logits: Tensor, windows: Tensor) -> Float[Tensor, "window"]:
    return next_token_losses(logits, windows[:, 1:]).mean(1)


def _divergence(log_p: Float[Tensor, "window pos d_vocab"], logits: Tensor) -> Float[Tensor, "window"]:
    """KL divergence from the intact to the ablated model, mean over positions. Nats."""
    return (log_p.exp() * (log_p - logits.log_softmax(-1))).sum(-1).mean(1)


def _by_row(values: list[Tensor], rows: int) -> Float[np.ndarray, "row window"]:
    """Values that came batch by batch, row by row within each, as one array."""
    return np.concatenate([torch.stack(values[i : i + rows]).numpy() for i in range(0, len(values), rows)], axis=1)


def _batch(config: ModelConfig, windows: Tensor) -> int:
    """Windows read at once: what stays in the processor's cache, and a fourth of the logits that memory has room for."""
    length = windows.shape[1] - 1
    return max(1, min(BATCH_TOKENS // length, batch_of(config, 4 * length)))


def _table(plan: Sequence[tuple[Part, Mode]], effects: np.ndarray, kl: np.ndarray, seed: int) -> pd.DataFrame:
    columns: dict[str, object] = {
        "part": [part.name for part, _ in plan],
        "kind": [part.kind for part, _ in plan],
        "layer": [part.layer for part, _ in plan],
        "head": [part.head for part, _ in plan],
        "mode": [mode for _, mode in plan],
    }
    for name, values in (("effect_nats", effects), ("kl_nats", kl)):
        ends = mean_interval(values.T, seed)
        columns |= {name + end: part for end, part in zip(("", "_low", "_high"), ends, strict=True)}
    return pd.DataFrame(columns)


@torch.no_grad()
def set_effect(
    model: GPT,
    windows: Int[Tensor, "window pos_plus_1"],
    ablated: Iterable[Part],
    mode: Mode = "zero",
    donors: Donors | None = None,
    seed: int = 0,
) -> Float[np.ndarray, "window"]:
    """Increase of each window's mean loss when a whole set of parts is taken away together. Nats."""
    size, rows, chosen, found = _batch(model.config, windows), assign(donors, len(windows), seed), list(ablated), []
    for batch, donor_rows in zip(windows.split(size), rows.split(size), strict=True):
        made = edits_for(chosen, mode, donors, donor_rows)
        intact = _window_losses(forward(model, batch[:, :-1]).logits, batch)
        found.append(_window_losses(forward(model, batch[:, :-1], edits=made).logits, batch) - intact)
    return torch.cat(found).numpy()


@torch.no_grad()
def pairs(
    model: GPT,
    windows: Int[Tensor, "window pos_plus_1"],
    mode: Mode = "zero",
    donors: Donors | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """For every two heads: what both cost together, minus the sum of what each costs alone.

    Positive: they back each other up, so that one alone hides the loss. Negative: they serve the same path, which either
    one breaks.

    Returns:
        A row a pair: first, second, joint_nats, sum_nats, interaction_nats with _low and _high. For a pair that is chosen
        as the largest: choosing_nats (its interaction on the even windows) and held_out_nats, _low, _high (on the odd).

    Raises:
        ValueError: more than `MOST_PAIRED_HEADS` heads.
    """
    heads = parts(model.config, ("head",))
    couples = list(combinations(range(len(heads)), 2))
    if len(heads) > MOST_PAIRED_HEADS:
        raise ValueError(
            f"{len(heads)} heads make {len(couples):,} pairs: at most {MOST_PAIRED_HEADS} heads are paired, "
            "choose a smaller model"
        )
    size, rows = _batch(model.config, windows), assign(donors, len(windows), seed)
    alone, joint = [], []
    for done, (batch, donor_rows) in enumerate(zip(windows.split(size), rows.split(size), strict=True)):
        base = forward(model, batch[:, :-1], _cached_sites(model.config))
        losses = _window_losses(base.logits, batch)
        changes = [_change(model, base, head, _value(head, mode, donors, donor_rows)) for head in heads]
        for site, change in changes:
            alone.append(_window_losses(_from(model, base, site, change), batch) - losses)
        for i, j in couples:
            site, change = changes[i]
            later: Edits = {}
            if heads[j].layer == heads[i].layer:
                change = change + changes[j][1]
            else:
                later = edits_for([heads[j]], mode, donors, donor_rows)
            joint.append(_window_losses(_from(model, base, site, change, later), batch) - losses)
        if progress:
            progress(min(1.0, (done + 1) * size / len(windows)))
    return _pair_table(heads, couples, _by_row(alone, len(heads)), _by_row(joint, len(couples)), seed)


def _pair_table(
    heads: Sequence[Part], couples: list[tuple[int, int]], alone: np.ndarray, joint: np.ndarray, seed: int
) -> pd.DataFrame:
    first, second = (np.array(ends) for ends in zip(*couples, strict=True))
    total = alone[first] + alone[second]
    names = np.array([head.name for head in heads])
    columns: dict[str, object] = {"first": names[first], "second": names[second]}
    columns |= {
        "joint_nats": joint.mean(1),
        "sum_nats": total.mean(1),
        "choosing_nats": (joint - total)[:, 0::2].mean(1),
    }
    for name, part in (("interaction_nats", slice(None)), ("held_out_nats", slice(1, None, 2))):
        ends = mean_interval((joint - total)[:, part].T, seed)
        columns |= {name + end: values for end, values in zip(("", "_low", "_high"), ends, strict=True)}
    return pd.DataFrame(columns)
