"""Is a category readable from a few neurons, and from which, stably?

Sparse probes (L1 logistic regression) along a path of strengths, judged on folds of the text that they did not see; which
neurons they keep is asked of many subsamples of the text (stability selection: Meinshausen & Bühlmann 2010; complementary
pairs: Shah & Samworth 2013).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from interp_core import sparse_logistic
from interp_core.model import GPT, forward, token_losses
from interp_core.statistics import Interval, block_folds, interval, percentile_interval

STRENGTHS = tuple(float(c) for c in np.logspace(-3.5, 0, 15))  # C; the companion's 0.001 to 1 lie within
FOLDS = 5
DRAWS = 400  # of the bootstrap over windows
Progress = Callable[[float], None]


@dataclass(frozen=True)
class Subsampling:
    """How subsamples of the text's windows are drawn."""

    count: int = 100
    share: float = 0.5  # of the windows in each; half for the bound to hold
    pairs: bool = False  # the two halves of each random split, instead of independent subsamples
    seed: int = 0

    def draw(self, windows: int) -> Bool[ndarray, "subsample window"]:
        """Which windows each subsample takes."""
        rng, taken = np.random.default_rng(self.seed), np.zeros((self.count, windows), dtype=bool)
        for i in range(self.count):
            if self.pairs and i % 2:
                taken[i] = ~taken[i - 1]
            else:
                taken[i, rng.permutation(windows)[: round(self.share * windows)]] = True
        return taken


HALVES = Subsampling()


@dataclass(frozen=True, eq=False)
class Probes:
    """Probes at every strength.

    The table has a row a strength: strength, neurons (kept on all rows), accuracy, balanced_accuracy and auc, each with
    _low and _high, of the out-of-fold predictions of all folds together.
    """

    table: pd.DataFrame
    weights: Float[ndarray, "strength dim"]  # on all rows, for columns of unit variance
    logits: Float[ndarray, "row strength"]  # out of fold
    majority: float  # accuracy of always saying the commoner class


@dataclass(frozen=True, eq=False)
class Stability:
    """How often each neuron is kept on subsamples of the text."""

    frequencies: Float[ndarray, "strength dim"]
    kept: Float[ndarray, "strength"]  # mean number of neurons that a subsample keeps: q
    how: Subsampling

    def selected(self, strength: int, threshold: float) -> Int[ndarray, "selected"]:
        """Neurons that at least this share of the subsamples keep."""
        return np.flatnonzero(self.frequencies[strength] >= threshold)

    def false_bound(self, strength: int, threshold: float) -> float | None:
        """Meinshausen and Bühlmann's bound on the expected number of falsely selected neurons, q² / ((2π − 1) p).

        It holds for a threshold above one half and subsamples of half of the text, where neurons that tell nothing are
        exchangeable; None elsewhere.
        """
        if threshold <= 0.5 or self.how.share != 0.5:
            return None
        return float(self.kept[strength] ** 2 / ((2 * threshold - 1) * self.frequencies.shape[1]))


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
        ValueError: a training split has rows of one class only.
    """
    fold, count = block_folds(windows, FOLDS), len(strengths)
    splits = np.stack([*(fold != f for f in range(FOLDS)), np.ones(len(rows), dtype=bool)])
    x, shares = _double(rows), _double(np.repeat(splits, count, axis=0))
    found = sparse_logistic.fit(
        x, torch.from_numpy(positive), shares, _double(np.tile(strengths, FOLDS + 1)), progress=progress
    )
    said = found.logits(x).numpy().reshape(len(rows), FOLDS + 1, count)
    logits = said[np.arange(len(rows)), fold]  # [row strength]
    weights = found.weights.numpy().reshape(FOLDS + 1, count, -1)[-1]
    measured = [_figures(logits[:, i], positive, windows, seed) for i in range(count)]
    columns: dict[str, object] = {"strength": list(strengths), "neurons": (weights != 0).sum(1)}
    for name in ("accuracy", "balanced_accuracy", "auc"):
        for end, attribute in (("", "estimate"), ("_low", "low"), ("_high", "high")):
            columns[name + end] = [getattr(figures[name], attribute) for figures in measured]
    return Probes(pd.DataFrame(columns), weights, logits, float(max(positive.mean(), 1 - positive.mean())))


def stability(
    rows: Float[ndarray, "row dim"],
    positive: Bool[ndarray, "row"],
    windows: Int[ndarray, "row"],
    strengths: Sequence[float] = STRENGTHS,
    how: Subsampling = HALVES,
    progress: Progress | None = None,
) -> Stability:
    """How often each neuron is kept by probes on subsamples of the windows.

    Args:
        rows: activations.
        positive: labels.
        windows: blocks of rows, which are taken or left whole.
        strengths: C's of the path, solved from the smallest up, each from the one before.
        how: the subsamples.
        progress: told how far it is.
    """
    taken = how.draw(int(windows.max()) + 1)
    x, shares, labels = _double(rows), _double(taken[:, windows]), torch.from_numpy(positive)
    frequencies, found = [], None
    for done, strength in enumerate(strengths):
        found = sparse_logistic.fit(x, labels, shares, torch.full((how.count,), strength, dtype=x.dtype), found)
        frequencies.append((found.weights != 0).double().mean(0).numpy())
        if progress:
            progress((done + 1) / len(strengths))
    table = np.stack(frequencies)
    return Stability(table, table.sum(1), how)


def ranked(
    rows: Float[ndarray, "row dim"],
    positive: Bool[ndarray, "row"],
    windows: Int[ndarray, "row"],
    sizes: Sequence[int],
    seed: int = 0,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Probes on k neurons that were chosen otherwise: by the largest difference of means, or at random.

    Both choices are made inside every training split. Columns: neurons, chosen (mean difference, random), and accuracy,
    balanced_accuracy and auc with _low and _high.
    """
    fold, rng, table = block_folds(windows, FOLDS), np.random.default_rng(seed), []
    for done, size in enumerate(sizes):
        for chosen in ("mean difference", "random"):
            logits = np.empty(len(rows))
            for f in range(FOLDS):
                train = fold != f
                columns = rng.permutation(rows.shape[1])[:size]
                if chosen == "mean difference":
                    columns = _apart(rows[train], positive[train]).argsort()[::-1][:size]
                x = _double(rows[:, columns])
                found = sparse_logistic.fit(x, torch.from_numpy(positive), _double(train[None]), _double(np.ones(1)))
                logits[fold == f] = found.logits(x[torch.from_numpy(fold == f)])[:, 0].numpy()
            ends: dict[str, object] = {"neurons": size, "chosen": chosen}
            for name, figure in _figures(logits, positive, windows, seed).items():
                ends |= {name: figure.estimate, f"{name}_low": figure.low, f"{name}_high": figure.high}
            table.append(ends)
        if progress:
            progress((done + 1) / len(sizes))
    return pd.DataFrame(table)


def elbow(table: pd.DataFrame, figure: str = "auc") -> int:
    """The smallest number of neurons within one standard error of the best of a path (Breiman et al. 1984, "one SE rule")."""
    best = int(table[figure].to_numpy().argmax())
    low, high = (float(table[f"{figure}_{end}"].iloc[best]) for end in ("low", "high"))
    enough = table[figure] >= float(table[figure].iloc[best]) - (high - low) / (2 * 1.96)
    return int(table["neurons"][enough].min())


@torch.no_grad()
def ablate(
    model: GPT,
    windows: Int[Tensor, "window pos_plus_1"],
    belongs: Bool[ndarray, "window pos"],
    site: str,
    neurons: Sequence[int],
    seed: int = 0,
) -> tuple[Interval, Interval]:
    """Loss that a model adds without some neurons of a site, from tokens of the category and from all others. Nats.

    Each neuron is put to its mean over these windows; a probe that reads a category tells not that the model does.

    Raises:
        ValueError: no window has tokens of both kinds.
    """
    means = forward(model, windows[:, :-1], taps=(site,), stop_early=True)[site].mean((0, 1))
    chosen = torch.zeros(means.numel(), dtype=torch.bool)
    chosen[list(neurons)] = True

    def without(x: Tensor) -> Tensor:
        return torch.where(chosen.view(means.shape), means, x)

    added = (token_losses(model, windows, {site: without}) - token_losses(model, windows)).double().numpy()
    both = belongs.any(1) & ~belongs.all(1)
    if both.sum() < 2:
        raise ValueError("fewer than two windows have tokens of both kinds: read more tokens, or take another category")
    parts = []
    for mask in (belongs[both], ~belongs[both]):
        parts.append(interval((added[both] * mask).sum(1) / mask.sum(1), seed))
    return parts[0], parts[1]


def control_task(tokens: Int[ndarray, "row"], share: float, seed: int) -> Bool[ndarray, "row"]:
    """A label that has nothing to do with anything but which token it is: drawn once for each, with the category's share.

    What a probe gains on it, it gains by heart; selectivity is the real accuracy minus this one's (Hewitt & Liang 2019).
    """
    drawn = np.random.default_rng(seed).random(int(tokens.max()) + 1) < share
    return drawn[tokens]


def surface(windows: Int[ndarray, "window pos"], d_vocab: int, back: int = 3) -> Float[ndarray, "row feature"]:
    """What can be read without a model: which tokens the last `back` are, and the position in the window, as ones and zeros."""
    count, length = windows.shape
    padded = np.concatenate([np.full((count, back - 1), -1), windows], axis=1)
    parts = [padded[:, back - 1 - i : back - 1 - i + length, None] == np.arange(d_vocab) for i in range(back)]
    places = np.broadcast_to(np.eye(length, dtype=bool), (count, length, length))
    return np.concatenate([*parts, places], axis=2).reshape(count * length, -1).astype(float)


def _figures(
    logits: Float[ndarray, "row"], positive: Bool[ndarray, "row"], windows: Int[ndarray, "row"], seed: int
) -> dict[str, Interval]:
    """Accuracy, balanced accuracy and area under the curve, with intervals over windows."""
    count = int(windows.max()) + 1
    rng = np.random.default_rng(seed)
    weights = np.stack(
        [np.ones(count), *(np.bincount(rng.integers(count, size=count), minlength=count) for _ in range(DRAWS))]
    )
    drawn = torch.from_numpy(weights.astype(np.float64))[:, torch.from_numpy(windows)]  # [draw row]
    truth, said = torch.from_numpy(positive), torch.from_numpy(logits > 0)
    ups, downs = drawn * truth, drawn * ~truth
    hits = [(part * (said == truth)).sum(1) / part.sum(1).clamp(min=1e-30) for part in (drawn, ups, downs)]
    scores, level = np.unique(logits, return_inverse=True)  # equal scores win half
    tied = [torch.zeros(len(drawn), len(scores), dtype=drawn.dtype) for _ in range(2)]
    up, down = (
        into.index_add_(1, torch.from_numpy(level), part) for into, part in zip(tied, (ups, downs), strict=True)
    )
    wins = (up * (down.cumsum(1) - down / 2)).sum(1)
    found = {
        "accuracy": hits[0],
        "balanced_accuracy": (hits[1] + hits[2]) / 2,
        "auc": wins / (ups.sum(1) * downs.sum(1)).clamp(min=1e-30),
    }
    figures = {}
    for name, values in found.items():
        low, high = percentile_interval(values[1:].numpy(), count)
        figures[name] = Interval(float(values[0]), float(low), float(high))
    return figures


def _apart(rows: Float[ndarray, "row dim"], positive: Bool[ndarray, "row"]) -> Float[ndarray, "dim"]:
    """How far the classes' means lie apart in each column, in standard deviations."""
    return np.abs(rows[positive].mean(0) - rows[~positive].mean(0)) / np.maximum(rows.std(0), 1e-12)


def _double(values: ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float64))
