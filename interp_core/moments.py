"""Numbers, sums and sums of squares of rows: from those of the parts follow the covariances of every union of them."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from interp_core.statistics import block_folds


@dataclass(frozen=True, eq=False)
class Moments:
    """Number, sum and sum of squares of rows: covariances of unions are sums of these."""

    count: int
    total: Float[ndarray, "dim"]
    square: Float[ndarray, "dim dim"]

    @staticmethod
    def of(rows: Float[ndarray, "row dim"]) -> "Moments":
        """Of these rows."""
        return Moments(len(rows), rows.sum(0), rows.T @ rows)

    def __add__(self, other: "Moments") -> "Moments":
        return Moments(self.count + other.count, self.total + other.total, self.square + other.square)

    def __sub__(self, other: "Moments") -> "Moments":
        return Moments(self.count - other.count, self.total - other.total, self.square - other.square)

    @property
    def mean(self) -> Float[ndarray, "dim"]:
        """Of the rows."""
        return self.total / self.count

    @property
    def covariance(self) -> Float[ndarray, "dim dim"]:
        """Of the rows, unbiased."""
        return (self.square - np.outer(self.total, self.total) / self.count) / (self.count - 1)

    @property
    def spread(self) -> float:
        """Mean variance of a dimension, of these rows themselves."""
        mean = self.mean
        return max(float(np.trace(self.square)) / self.count - float(mean @ mean), 0.0) / len(mean)

    def along(self, w: Float[ndarray, "dim"]) -> tuple[float, float]:
        """Mean and variance of the projections."""
        mean = float(self.total @ w) / self.count
        return mean, max(float(w @ self.square @ w) / self.count - mean * mean, 0.0)


@dataclass(frozen=True, eq=False)
class FoldMoments:
    """The moments of all rows in every fold, and the rows themselves."""

    rows: Float[ndarray, "row dim"]
    fold: Int[ndarray, "row"]
    moments: tuple[Moments, ...]

    @staticmethod
    def of(rows: Float[ndarray, "row dim"], windows: Int[ndarray, "row"], folds: int) -> "FoldMoments":
        """Of these rows."""
        fold = block_folds(windows, folds)
        return FoldMoments(rows, fold, tuple(Moments.of(rows[fold == f]) for f in range(folds)))

    def part(self, mask: Bool[ndarray, "row"]) -> tuple[Moments, ...]:
        """Of some of the rows."""
        return tuple(Moments.of(self.rows[(self.fold == f) & mask]) for f in range(len(self.moments)))
