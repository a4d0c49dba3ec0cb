"""The sweep that answers whether an update is low rank: every rank at its own learning rate, and what it must be compared with.

For each variant the learning rate is chosen on the even windows of the target text's validation part, with one seed; two more
seeds are then trained with it, and all three are reported on the odd windows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_core import lora
from interp_core.lora import Tuning
from interp_core.model import GPT, token_losses
from interp_core.statistics import Interval, interval

RANKS = (1, 2, 4, 8, 16)
RATES = (3e-4, 1e-3, 3e-3, 1e-2)  # of all tunings but
FULL_RATES = (3e-5, 1e-4, 3e-4, 1e-3)  # those of all weights, which move as far with less
SEEDS = 3
FEWEST_WINDOWS = 16
BASE, FULL, HEAD, TIED_HEAD = (
    "base model",
    "all weights",
    "unembedding only",
    "embedding and unembedding, which are one",
)


@dataclass(frozen=True)
class Variant:
    """One way to tune, before its learning rate is known."""

    name: str
    tuning: Tuning
    rates: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Material:
    """The texts of a sweep as numbers."""

    train: Int[Tensor, "token"]  # of the target
    target: Int[Tensor, "window pos_plus_1"]  # held out
    source: Int[Tensor, "source_window pos_plus_1"]  # of what the model could before

    def batch(self, step: int, count: int, seed: int) -> Int[Tensor, "window pos_plus_1"]:
        """Windows at random places of the target's training part."""
        generator = torch.Generator().manual_seed(100_003 * seed + step)
        length = self.target.shape[1]
        starts = torch.randint(len(self.train) - length, (count, 1), generator=generator)
        return self.train[starts + torch.arange(length)]


@dataclass(frozen=True, eq=False)
class Outcome:
    """One finished tuning."""

    variant: str
    tuning: Tuning
    parameters: int
    target: Float[np.ndarray, "window"]  # mean loss of each held-out window, nats
    source: Float[np.ndarray, "source_window"]
    model: GPT | None = None


def variants(model: GPT, usual: Tuning, ranks: Sequence[int] = RANKS) -> list[Variant]:
    """All that are compared: ranks, all weights, and the controls."""
    middle = ranks[len(ranks) // 2]
    found = [Variant(f"rank {rank}", replace(usual, kind="low rank", rank=rank), RATES) for rank in ranks]
    found += [
        Variant(FULL, replace(usual, kind="full"), FULL_RATES),
        Variant(f"frozen A, rank {middle}", replace(usual, kind="frozen A", rank=middle), RATES),
        Variant(TIED_HEAD if model.config.tied_head else HEAD, replace(usual, kind="head only"), RATES),
    ]
    for layer in range(model.config.layers):
        dense = replace(usual, kind="dense", targets=usual.targets[-1:], layers=(layer,))
        found.append(Variant(f"dense {usual.targets[-1]} of layer {layer}", dense, RATES))
    return found


def count(variants: Sequence[Variant], seeds: int = SEEDS) -> int:
    """How many tunings a sweep of them takes."""
    return sum(len(variant.rates) + seeds - 1 for variant in variants)


@torch.no_grad()
def sweep(
    model: GPT,
    material: Material,
    chosen: Sequence[Variant],
    seeds: int = SEEDS,
    tell: Callable[[str, int], None] = lambda name, done: None,
) -> Iterator[Outcome]:
    """Tunes every variant and yields its outcomes at the chosen learning rate, seed by seed; the first has its model.

    Args:
        model: the base.
        material: texts.
        chosen: from `variants`.
        seeds: for each.
        tell: told the variant and how many tunings are done.

    Raises:
        ValueError: too few held-out windows.
    """
    for name, windows in (("target", material.target), ("source", material.source)):
        if len(windows) < FEWEST_WINDOWS:
            raise ValueError(
                f"The {name} text has {len(windows)} held-out windows, and {FEWEST_WINDOWS} are the least: take a longer one."
            )
    yield Outcome(BASE, Tuning(), 0, *_losses(model, material))
    done = 0
    for variant in chosen:
        tried = []
        for rate in variant.rates:
            tried.append(_run(model, material, variant.name, replace(variant.tuning, lr=rate)))
            done += 1
            tell(variant.name, done)
        best = min(tried, key=lambda outcome: float(outcome.target[0::2].mean()))
        yield best
        for seed in range(1, seeds):
            again = replace(best.tuning, seed=best.tuning.seed + seed)
            yield replace(_run(model, material, variant.name, again), model=None)
            done += 1
            tell(variant.name, done)


def table(outcomes: Sequence[Outcome], rates: dict[str, tuple[float, ...]], seed: int = 0) -> pd.DataFrame:
    """A row a variant: parameters, lr, whether it lies at the edge of those tried; losses in nats with _low and _high.

    The intervals are over held-out windows, each averaged over seeds. `gain_seeds` are the gains of the seeds, one by one, and
    `gain_seeds_low` and `_high` the interval over them (Student's t; of three seeds a wide one). Forgetting is the source's loss
    minus the base model's, window by window.
    """
    base, rows = outcomes[0], []
    ranked = [_held_out(outcomes, name) for name in _names(outcomes, "low rank")]
    best = min(ranked, key=lambda losses: float(losses.mean()), default=None)
    for name in _names(outcomes):
        mine = [outcome for outcome in outcomes if outcome.variant == name]
        target = _held_out(outcomes, name)
        source = np.mean([outcome.source for outcome in mine], axis=0)
        nats, gained = interval(target, seed), interval(base.target[1::2] - target, seed)
        forgotten = interval(source - base.source, seed)
        each = np.array([float((base.target - outcome.target)[1::2].mean()) for outcome in mine])
        seeds = interval(each, seed) if len(each) > 1 else Interval(float(each[0]), float("nan"), float("nan"))
        rate, tried = mine[0].tuning.lr, rates.get(name, ())
        rows.append({
            "variant": name, "kind": "base" if name == BASE else mine[0].tuning.kind, "rank": mine[0].tuning.rank,
            "parameters": mine[0].parameters, "lr": rate if name != BASE else float("nan"),
            "edge": bool(tried) and rate in (min(tried), max(tried)), "seeds": len(mine),
            "gain_seeds": each.tolist(), "gain_seeds_low": seeds.low,
            "gain_seeds_high": seeds.high,
            **_ends("target_nats", nats), **_ends("gain_nats", gained), **_ends("forgetting_nats", forgotten),
            **_ends("behind_nats", interval(target - (target if best is None else best), seed)),
        })  # fmt: skip
    return pd.DataFrame(rows)


def _names(outcomes: Sequence[Outcome], kind: str | None = None) -> list[str]:
    """The variants, in the order in which they were tuned."""
    kinds = {outcome.variant: "base" if outcome.variant == BASE else outcome.tuning.kind for outcome in outcomes}
    return [name for name, its in kinds.items() if kind in (None, its)]


def _held_out(outcomes: Sequence[Outcome], name: str) -> Float[np.ndarray, "window"]:
    """The loss of each window that did not choose a learning rate, mean over seeds."""
    return np.asarray(np.mean([outcome.target[1::2] for outcome in outcomes if outcome.variant == name], axis=0))


def elbow(found: pd.DataFrame) -> int:
    """The smallest rank that is not clearly worse than the best one on the same windows.

    Raises:
        ValueError: no low-rank variant.
    """
    low = found[found["kind"] == "low rank"].sort_values("rank")
    if low.empty:
        raise ValueError("no low-rank tuning is done yet")
    return int(low[low["behind_nats_low"] <= 0]["rank"].iloc[0])


def head_changes(base: GPT, tuned: GPT) -> Float[Tensor, "layer head"]:
    """How far each head's four matrices moved together, as a share of their size."""
    config, found = base.config, torch.zeros(base.config.layers, base.config.heads)
    for layer in range(config.layers):
        moved, size = torch.zeros(config.heads), torch.zeros(config.heads)
        for name in ("query", "key", "value", "proj"):
            before, after = (getattr(m.block(layer).attn, name).weight for m in (base, tuned))
            for part, total in ((after - before, moved), (before, size)):
                rows = part.T if name == "proj" else part
                total += rows.unflatten(0, (config.heads, config.d_head)).square().sum((1, 2))
        found[layer] = (moved / size.clamp(min=1e-30)).sqrt()
    return found


def described(outcome: Outcome) -> dict[str, object]:
    """An outcome as a file keeps it."""
    return {
        "variant": outcome.variant, "tuning": asdict(outcome.tuning), "parameters": outcome.parameters,
        "target": outcome.target.tolist(), "source": outcome.source.tolist(),
    }  # fmt: skip


def _run(model: GPT, material: Material, name: str, tuning: Tuning) -> Outcome:
    *_, (_progress, learner) = lora.tune(model, tuning, material.batch)
    tuned = lora.finished(learner)
    return Outcome(name, tuning, lora.trainable(model, tuning), *_losses(tuned, material), tuned)


def _losses(model: GPT, material: Material) -> tuple[np.ndarray, np.ndarray]:
    target, source = (token_losses(model, part).mean(1).numpy() for part in (material.target, material.source))
    return target, source


def _ends(name: str, value: Interval) -> dict[str, float]:
    return {name: value.estimate, f"{name}_low": value.low, f"{name}_high": value.high}
