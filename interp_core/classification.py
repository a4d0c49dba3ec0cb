"""How well a number tells two classes of tokens apart, with intervals over windows and paired comparisons.

Numbers come from probes that saw other folds of the text, and folds differ by their intercepts. So the area under the curve
compares tokens of one fold only: put together, folds of useless probes would fall below one half (Airola et al. 2011).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.stats import rankdata

from interp_core.statistics import FEW, Interval, percentile_interval

Figure = Literal["AUC", "accuracy", "balanced accuracy"]
FIGURES: tuple[Figure, ...] = ("AUC", "accuracy", "balanced accuracy")
DRAWS = 1000  # of the bootstrap over windows


@dataclass(frozen=True, eq=False)
class Judged:
    """Each figure as measured and, after it, in draws of the windows; equal seeds draw the same windows."""

    draws: Mapping[Figure, Float[ndarray, "draw_plus_1"]]
    windows: int

    def figure(self, name: Figure) -> Interval:
        """A figure with its interval."""
        return _interval(self.draws[name], self.windows)

    def above(self, other: "Judged", name: Figure) -> Interval:
        """How much larger a figure is than another's on the same windows."""
        return _interval(self.draws[name] - other.draws[name], self.windows)


@dataclass(frozen=True, eq=False)
class Judge:
    """The rows to be told apart, prepared once for many probes."""

    positive: Bool[ndarray, "row"]
    windows: Int[ndarray, "row"]
    fold: Int[ndarray, "row"]
    weights: Float[ndarray, "draw_plus_1 window"]  # how often each draw takes a window; first all once

    @staticmethod
    def of(
        positive: Bool[ndarray, "row"], windows: Int[ndarray, "row"], fold: Int[ndarray, "row"], seed: int = 0
    ) -> "Judge":
        """A judge of probes for these labels.

        Raises:
            ValueError: a class that occurs in fewer windows than an interval needs.
        """
        for name, rows in (("in the category", positive), ("outside of it", ~positive)):
            if (found := len(np.unique(windows[rows]))) < FEW:
                raise ValueError(
                    f"Tokens {name} occur in {found} windows only, and {FEW} are the least for an interval: read more tokens."
                )
        count = int(windows.max()) + 1
        drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=DRAWS)
        return Judge(positive, windows, fold, np.concatenate([np.ones((1, count)), drawn]))

    def __call__(self, logits: Float[ndarray, "row"]) -> Judged:
        """Area under the curve (equal logits win half), accuracy and balanced accuracy of the sign."""
        positive, said = self.positive, logits > 0
        ups, downs = self._drawn(positive), self._drawn(~positive)
        up_hits, down_hits = self._drawn(positive & said), self._drawn(~positive & ~said)
        draws: dict[Figure, ndarray] = {
            "AUC": self._auc(logits),
            "accuracy": (up_hits + down_hits) / (ups + downs),
            "balanced accuracy": (up_hits / ups + down_hits / downs) / 2,
        }
        return Judged(draws, self.weights.shape[1])

    def _drawn(self, rows: Bool[ndarray, "row"]) -> Float[ndarray, "draw_plus_1"]:
        """How many of these rows each draw takes."""
        return np.maximum(self.weights @ np.bincount(self.windows, rows, self.weights.shape[1]), 1e-30)

    def _auc(self, logits: Float[ndarray, "row"]) -> Float[ndarray, "draw_plus_1"]:
        """From the number of pairs in order for every two windows of a fold: any draw's area is a quadratic form of it."""
        won, pairs = np.zeros(len(self.weights)), np.zeros(len(self.weights))
        for f in np.unique(self.fold):
            rows = np.flatnonzero(self.fold == f)
            names, window = np.unique(self.windows[rows], return_inverse=True)
            weights, positive = self.weights[:, names], self.positive[rows]
            wins = _wins(logits[rows], positive, window, len(names))
            won += ((weights @ wins) * weights).sum(1)
            up, down = (weights @ np.bincount(window, part, len(names)) for part in (positive, ~positive))
            pairs += up * down
        return won / np.maximum(pairs, 1e-30)


def figures(
    logits: Float[ndarray, "row problem"], positive: Bool[ndarray, "row problem"], fold: Int[ndarray, "row"]
) -> dict[Figure, Float[ndarray, "problem"]]:
    """The figures of many problems without intervals."""
    ups, downs = np.maximum(positive.sum(0), 1), np.maximum((~positive).sum(0), 1)
    up_hits, down_hits = (positive & (logits > 0)).sum(0), (~positive & (logits <= 0)).sum(0)
    won, pairs = np.zeros(logits.shape[1]), np.zeros(logits.shape[1])
    for f in np.unique(fold):
        rows = fold == f
        here, up = positive[rows], positive[rows].sum(0)
        won += np.where(here, rankdata(logits[rows], axis=0), 0).sum(0) - up * (up + 1) / 2
        pairs += up * (len(here) - up)
    return {
        "AUC": won / np.maximum(pairs, 1),
        "accuracy": (up_hits + down_hits) / len(logits),
        "balanced accuracy": (up_hits / ups + down_hits / downs) / 2,
    }


def _wins(
    logits: Float[ndarray, "row"], positive: Bool[ndarray, "row"], window: Int[ndarray, "row"], count: int
) -> Float[ndarray, "window window"]:
    """How many pairs of a positive of one window and a negative of another are in order; equal ones count half."""
    values, level = np.unique(logits, return_inverse=True)
    here = np.zeros((len(values), count))
    np.add.at(here, (level[~positive], window[~positive]), 1)
    below = (here.cumsum(0) - here / 2)[level[positive]]  # [positive window]
    wins = np.zeros((count, count))
    np.add.at(wins, window[positive], below)
    return wins


def _interval(draws: Float[ndarray, "draw_plus_1"], windows: int) -> Interval:
    low, high = percentile_interval(draws[1:], windows)
    return Interval(float(draws[0]), float(low), float(high))
