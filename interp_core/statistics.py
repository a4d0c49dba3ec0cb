"""Intervals for numbers that were measured on disjoint windows.

The unit of resampling is the *cluster*: a window, a sequence, a block. Positions inside one window share characters and
are not independent, so they are never resampled one by one.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.special import ndtr, stdtrit

DRAWS = 1000  # an end of an interval then moves by 4% of its half-width between seeds
LEVEL = 0.95
FEW = 12  # clusters below which percentiles are not trusted


@dataclass(frozen=True)
class Interval:
    """An estimate and the ends of its confidence interval, in the unit of the estimate."""

    estimate: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the length of the interval: what follows the sign ±."""
        return (self.high - self.low) / 2


def bootstrap_means(
    values: Float[ndarray, "cluster *statistic"], seed: int, draws: int = DRAWS
) -> Float[ndarray, "draw *statistic"]:
    """Means of `values` over clusters drawn with replacement; all statistics see the same draws, so they stay paired.

    Raises:
        ValueError: fewer than two clusters.
    """
    clusters = len(values)
    if clusters < 2:
        raise ValueError(f"{clusters} cluster: an interval needs at least 2 windows")
    rng = np.random.default_rng(seed)
    chosen = rng.integers(clusters, size=(draws, clusters)) + clusters * np.arange(draws)[:, None]
    weights = np.bincount(chosen.ravel(), minlength=draws * clusters).reshape(draws, clusters) / clusters
    flat = torch.from_numpy(values.reshape(clusters, -1).astype(np.float64))
    means = torch.from_numpy(weights) @ flat  # by torch: numpy's idle BLAS threads would slow the next forward pass
    return means.numpy().reshape(draws, *values.shape[1:])


def mean_interval(
    values: Float[ndarray, "cluster *statistic"], seed: int, draws: int = DRAWS, level: float = LEVEL
) -> tuple[Float[ndarray, "*statistic"], Float[ndarray, "*statistic"], Float[ndarray, "*statistic"]]:
    """Means over clusters with the low and high ends of their intervals.

    From `FEW` clusters on, bootstrap percentiles, expanded (`percentile_interval`). Below, Student's t on the cluster
    means: percentiles of so few clusters cannot reach beyond what they have seen, and cover far too seldom.
    """
    clusters, mean = len(values), np.asarray(values.mean(0))
    if clusters < FEW:
        bootstrap_means(values, seed, 1)  # refuses fewer than two
        error = values.std(0, ddof=1) / np.sqrt(clusters)
        reach = -stdtrit(clusters - 1, (1 - level) / 2) * error
        return mean, np.asarray(mean - reach), np.asarray(mean + reach)
    return mean, *percentile_interval(bootstrap_means(values, seed, draws), clusters, level)


def percentile_interval(
    means: Float[ndarray, "draw *statistic"], clusters: int, level: float = LEVEL
) -> tuple[Float[ndarray, "*statistic"], Float[ndarray, "*statistic"]]:
    """Ends of the interval from bootstrap draws, expanded for the number of clusters.

    A plain percentile interval is too narrow by sqrt((n - 1) / n) and by the normal's thinner tails (Hesterberg 2015,
    "What teachers should know about the bootstrap", section 5.3).
    """
    student = stdtrit(clusters - 1, (1 - level) / 2)
    tail = ndtr(np.sqrt(clusters / (clusters - 1)) * student)
    low, high = np.quantile(np.ascontiguousarray(np.moveaxis(means, 0, -1)), [tail, 1 - tail], axis=-1)
    return np.asarray(low), np.asarray(high)


def interval(values: Float[ndarray, "cluster"], seed: int, draws: int = DRAWS, level: float = LEVEL) -> Interval:
    """`mean_interval` of a single statistic."""
    return Interval(*(float(v) for v in mean_interval(values, seed, draws, level)))


def upper_bound(values: Float[ndarray, "cluster"], seed: int, draws: int = DRAWS, level: float = LEVEL) -> float:
    """One-sided upper bound of the mean: with this level of confidence the mean is no larger.

    An absence is shown when it lies below the smallest effect that would matter (a one-sided equivalence test: Lakens 2017,
    "Equivalence tests"). "Not significant" shows nothing of the kind.
    """
    return float(mean_interval(values, seed, draws, 2 * level - 1)[2])


def block_folds(windows: Int[ndarray, "row"], folds: int) -> Int[ndarray, "row"]:
    """The fold of each row: runs of neighbouring windows, so that no window stands on both sides of a split."""
    return windows * folds // (int(windows.max()) + 1)


def shift_labels(positive: Bool[ndarray, "row"], windows: Int[ndarray, "row"], seed: int) -> Bool[ndarray, "row"]:
    """Labels that say nothing: shifted in a circle within each window, by a number of places drawn anew for each.

    Unlike a permutation that keeps the runs in which categories of text come.
    """
    rng, shifted = np.random.default_rng(seed), positive.copy()
    edges = np.flatnonzero(np.diff(windows)) + 1
    for part in np.split(np.arange(len(positive)), edges):
        if len(part) > 1:
            shifted[part] = np.roll(positive[part], rng.integers(1, len(part)))
    return shifted
