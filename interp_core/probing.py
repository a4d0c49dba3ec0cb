"""Is a category readable from a few neurons of a site?

Sparse probes (L1 logistic regression) along a path of strengths, judged on folds of the text that they did not see, beside
probes on neurons that were chosen otherwise; and what the model itself loses without the neurons that a probe reads.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from interp_core import classification, sparse_logistic
from interp_core.classification import FIGURES, Figure, Judge, Judged
from interp_core.model import GPT, forward, token_losses
from interp_core.statistics import Interval, block_folds, interval

STRENGTHS = tuple(float(c) for c in np.logspace(-3.5, 0, 15))  # C; the companion's 0.001 to 1 lie within
FOLDS = 5
PLAIN = 0.1  # C of probes on neurons that were chosen otherwise: it lets nearly all of them in
RANDOM = 5  # random choices of each number of neurons
FEW_NEURONS = 0.1  # share of all up to which a category counts as concentrated
SETS = 20  # random sets of neurons that are ablated
Progress = Callable[[float], None]


@dataclass(frozen=True, eq=False)
class Probes:
    """Probes at every strength, judged out of fold with all folds together."""

    strengths: tuple[float, ...]
    weights: Float[ndarray, "strength dim"]  # on all rows, for columns of unit variance
    logits: Float[ndarray, "row strength"]  # out of fold
    judged: tuple[Judged, ...]  # a strength each
    majority: float  # accuracy of always saying the commoner class

    @property
    def neurons(self) -> Int[ndarray, "strength"]:
        """How many the probe on all rows keeps."""
        return (self.weights != 0).sum(1)

    @property
    def table(self) -> pd.DataFrame:
        """A row a strength: strength, neurons, and each figure with _low and _high."""
        columns: dict[str, object] = {"strength": self.strengths, "neurons": self.neurons}
        for name in FIGURES:
            found = [judged.figure(name) for judged in self.judged]
            for end, values in zip(("", "_low", "_high"), zip(*map(_ends, found), strict=True), strict=True):
                columns[column(name) + end] = values
        return pd.DataFrame(columns)


def column(figure: Figure) -> str:
    """A figure's name in tables."""
    return figure.lower().replace(" ", "_")


def path(
    rows: Float[ndarray, "row dim"],
    positive: Bool[ndarray, "row"],
    windows: Int[ndarray, "row"],
    strengths: Sequence[float] = STRENGTHS,
    seed: int = 0,
    progress: Progress | None = None,
) -> Probes:
    """Probes at every strength on all rows but a fold's, judged on the fold, and one on all rows; solved all at once.

    Raises:
        ValueError: a training split has rows of one class only, or a class occurs in too few windows.
    """
    fold, count = block_folds(windows, FOLDS), len(strengths)
    x = sparse_logistic.standardised(rows)
    splits = torch.from_numpy(np.stack([*(fold != f for f in range(FOLDS)), np.ones(len(rows), dtype=bool)])).float()
    found = sparse_logistic.fit(
        x,
        torch.from_numpy(positive),
        splits.repeat_interleave(count, 0),
        torch.tensor(strengths, dtype=torch.float32).repeat(FOLDS + 1),
        progress=progress,
    )
    said = found.logits(x).numpy().reshape(len(rows), FOLDS + 1, count)
    logits = said[np.arange(len(rows)), fold].astype(np.float64)  # [row strength]
    weights = found.weights.double().numpy().reshape(FOLDS + 1, count, -1)[-1]
    judge = Judge.of(positive, windows, fold, seed)
    judged = tuple(judge(logits[:, i]) for i in range(count))
    return Probes(tuple(strengths), weights, logits, judged, float(max(positive.mean(), 1 - positive.mean())))


def ranked(
    rows: Float[ndarray, "row dim"],
    positive: Bool[ndarray, "row"],
    windows: Int[ndarray, "row"],
    sizes: Sequence[int],
    seed: int = 0,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Probes on k neurons that were chosen otherwise: by the largest difference of means, or at random.

    Choices are made inside every training split. Columns: neurons, chosen (mean difference, random), and each figure with
    _low and _high: over windows for the mean difference, the least and the most of `RANDOM` choices for the random ones.
    """
    fold, rng, dim = block_folds(windows, FOLDS), np.random.default_rng(seed), rows.shape[1]
    orders = np.stack(
        [
            np.stack([_apart(rows[fold != f], positive[fold != f]).argsort()[::-1] for f in range(FOLDS)]),
            *(np.stack([rng.permutation(dim) for _ in range(FOLDS)]) for _ in range(RANDOM)),
        ]
    )  # [choice fold dim]
    places = orders.argsort(-1)
    columns = torch.from_numpy(np.stack([places < size for size in sizes])).flatten(0, 2)
    x, choices = sparse_logistic.standardised(rows), len(sizes) * len(orders)
    shares = torch.from_numpy(np.stack([fold != f for f in range(FOLDS)])).float().repeat(choices, 1)
    strengths = torch.full((len(shares),), PLAIN)
    found = sparse_logistic.fit(
        x,
        torch.from_numpy(positive),
        shares,
        strengths,
        columns=columns,
        tolerance=sparse_logistic.ROUGH,
        progress=progress,
    )
    said = found.logits(x).double().numpy().reshape(len(rows), len(sizes), len(orders), FOLDS)
    logits = said[np.arange(len(rows)), :, :, fold]  # [row size choice]
    table, judge = [], Judge.of(positive, windows, fold, seed)
    for i, size in enumerate(sizes):
        judged = judge(logits[:, i, 0])
        drawn = classification.figures(logits[:, i, 1:], np.repeat(positive[:, None], RANDOM, 1), fold)
        best: dict[str, object] = {"neurons": size, "chosen": "mean difference"}
        random: dict[str, object] = {"neurons": size, "chosen": "random"}
        for name in FIGURES:
            ends = ("", "_low", "_high")
            best |= {column(name) + end: value for end, value in zip(ends, _ends(judged.figure(name)), strict=True)}
            values = (drawn[name].mean(), drawn[name].min(), drawn[name].max())
            random |= {column(name) + end: float(value) for end, value in zip(ends, values, strict=True)}
        table += [best, random]
    return pd.DataFrame(table)


def elbow(table: pd.DataFrame, figure: Figure = "AUC") -> int:
    """The row of a path with the fewest neurons within one standard error of the best (Breiman et al. 1984, "one SE rule")."""
    name = column(figure)
    best = table.iloc[int(table[name].to_numpy().argmax())]
    enough = table[name] >= best[name] - (best[f"{name}_high"] - best[f"{name}_low"]) / (2 * 1.96)
    return int(np.where(enough, table["neurons"], np.inf).argmin())


def is_concentrated(table: pd.DataFrame, others: pd.DataFrame, dim: int, figure: Figure = "AUC") -> bool:
    """Whether few neurons are enough, and which ones matters.

    The elbow has at most a share of `FEW_NEURONS` of all, and its interval lies above every random choice of as many.

    Args:
        table: of the path.
        others: of `ranked`.
        dim: neurons of the site.
        figure: to judge by.
    """
    at, name = table.iloc[elbow(table, figure)], column(figure)
    random = others[others["chosen"] == "random"].sort_values("neurons")
    chance = np.interp(np.log(max(at["neurons"], 1)), np.log(random["neurons"]), random[f"{name}_high"])
    return bool(0 < at["neurons"] <= FEW_NEURONS * dim and at[f"{name}_low"] > chance)


@dataclass(frozen=True, eq=False)
class Causal:
    """Loss that a model adds without some neurons, at tokens of the category and at the others. Nats."""

    positive: Interval
    negative: Interval
    random: Float[ndarray, "set 2"]  # the same without as many random neurons
    over_random: Interval  # at tokens of the category, more than the mean of the random sets


@torch.no_grad()
def ablate(
    model: GPT,
    windows: Int[Tensor, "window pos_plus_1"],
    masks: tuple[Bool[ndarray, "window pos"], Bool[ndarray, "window pos"]],
    site: str,
    neurons: Sequence[int],
    seed: int = 0,
    sets: int = SETS,
    progress: Progress | None = None,
) -> Causal:
    """What a model loses without neurons: a probe that reads a category does not tell that the model does.

    Args:
        model: the weights.
        windows: what it reads, one more token than it has positions.
        masks: where the category's tokens are read, and where the others.
        site: of the neurons; heads are laid side by side.
        neurons: put to their means over these windows.
        seed: of the random sets and of the bootstrap.
        sets: random sets of as many neurons.
        progress: told how far it is.

    Raises:
        ValueError: no two windows have tokens of both kinds.
    """
    both = masks[0].any(1) & masks[1].any(1)
    if both.sum() < 2:
        raise ValueError("fewer than two windows have tokens of both kinds: read more tokens, or take another category")
    means = forward(model, windows[:, :-1], taps=(site,), stop_early=True)[site].mean((0, 1))
    intact, rng = token_losses(model, windows), np.random.default_rng(seed)
    chosen = [np.asarray(neurons, dtype=int), *(rng.permutation(means.numel())[: len(neurons)] for _ in range(sets))]
    added = np.empty((len(chosen), 2, int(both.sum())))
    for i, part in enumerate(chosen):
        taken = torch.zeros(means.numel(), dtype=torch.bool)
        taken[torch.from_numpy(part)] = True
        edit = _put(taken.view(means.shape), means)
        loss = (token_losses(model, windows, {site: edit}) - intact).double().numpy()[both]
        added[i] = [(loss * mask[both]).sum(1) / mask[both].sum(1) for mask in masks]
        if progress:
            progress((i + 1) / len(chosen))
    over = added[0, 0] - added[1:, 0].mean(0) if sets else added[0, 0]
    return Causal(interval(added[0, 0], seed), interval(added[0, 1], seed), added[1:].mean(-1), interval(over, seed))


def _put(taken: Tensor, means: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.where(taken, means, x)


def _ends(found: Interval) -> tuple[float, float, float]:
    return found.estimate, found.low, found.high


def _apart(rows: Float[ndarray, "row dim"], positive: Bool[ndarray, "row"]) -> Float[ndarray, "dim"]:
    """How far the classes' means lie apart in each column, in standard deviations."""
    return np.abs(rows[positive].mean(0) - rows[~positive].mean(0)) / np.maximum(rows.std(0), 1e-12)
