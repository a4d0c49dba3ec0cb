"""Directions that set two categories apart, found from their moments in folds: GED, mean difference, shrinkage LDA."""

from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.linalg import cholesky, eigh, solve, solve_triangular

from interp_core.moments import FoldMoments, Moments

TRACE = 1e-9  # of shrinkage that is always there in cross-validation
FOLDS = 5
FEWEST = 8  # rows of each category in every training split
Method = Literal["GED", "mean difference", "LDA"]
METHODS: tuple[Method, ...] = ("GED", "mean difference", "LDA")
T = TypeVar("T", float, ndarray)


class TooFew(ValueError):
    """A category without enough rows; says how many there are and how many are needed."""


def shrink(covariance: Float[ndarray, "dim dim"], shrinkage: float) -> Float[ndarray, "dim dim"]:
    """The covariance with a share of it replaced by its mean variance in every direction."""
    size = len(covariance)
    return (1 - shrinkage) * covariance + shrinkage * np.trace(covariance) / size * np.eye(size)


def direction(a: Moments, b: Moments, method: Method, shrinkage: float) -> Float[ndarray, "dim"]:
    """A direction with A's mean on its positive side."""
    apart = a.mean - b.mean
    if method == "mean difference":
        return apart
    if method == "LDA":
        pooled = ((a.count - 1) * a.covariance + (b.count - 1) * b.covariance) / (a.count + b.count - 2)
        return solve(shrink(pooled, max(shrinkage, TRACE)), apart, assume_a="pos")
    lower, whitened = whiten(a, b, shrinkage)
    size = len(apart)
    _, vectors = eigh(whitened, subset_by_index=[size - 1, size - 1])
    w = solve_triangular(lower, vectors[:, 0], lower=True, trans="T")
    return w if apart @ w >= 0 else -w


def whiten(a: Moments, b: Moments, shrinkage: float) -> tuple[ndarray, ndarray]:
    """The Cholesky factor L of the shrunk C_B, and L⁻¹ C_A L⁻ᵀ, whose eigenvalues are the ratios.

    A trace of shrinkage is always there, so that constant dimensions, or too few rows, do not stop a whole null.
    """
    lower = cholesky(shrink(b.covariance, max(shrinkage, TRACE)), lower=True)
    half = solve_triangular(lower, a.covariance, lower=True)
    return lower, solve_triangular(lower, half.T, lower=True)


def spectrum(a: Moments, b: Moments, shrinkage: float) -> Float[ndarray, "component"]:
    """All ratios, the largest first."""
    return eigh(whiten(a, b, shrinkage)[1], eigvals_only=True)[::-1]


def worth(a: Moments, b: Moments, w: Float[ndarray, "dim"], shrinkage: float) -> tuple[float, float]:
    """Variance ratio and separation of means along a direction."""
    (mean_a, var_a), (mean_b, var_b) = a.along(w), b.along(w)
    return figures_of(mean_a, var_a, mean_b, var_b, b.spread * float(w @ w), shrinkage)


def figures_of(mean_a: T, var_a: T, mean_b: T, var_b: T, floor: T, shrinkage: float) -> tuple[T, T]:
    """Ratio over the shrunk variance of B, whose mean variance in every direction is `floor`; separation over the plain ones."""
    ratio = var_a / np.maximum((1 - shrinkage) * var_b + shrinkage * floor, 1e-300)
    return ratio, (mean_a - mean_b) / np.maximum(np.sqrt(var_a) + np.sqrt(var_b), 1e-300)


@dataclass(frozen=True, eq=False)
class Directions:
    """The direction found without each fold: all pointing the same way, and each with its training split's own sign."""

    aligned: Float[ndarray, "fold dim"]
    centres: Float[ndarray, "fold"]  # means of the training projections on the aligned ones
    signs: Float[ndarray, "fold"]  # turn an aligned direction so that its training split's A lies on the positive side
    agreement: float

    @property
    def signed(self) -> Float[ndarray, "fold dim"]:
        """With the signs of their training splits."""
        return self.signs[:, None] * self.aligned


@dataclass(frozen=True, eq=False)
class Split:
    """The moments of both categories in every fold."""

    fold: Int[ndarray, "row"]
    a: tuple[Moments, ...]
    b: tuple[Moments, ...]

    @staticmethod
    def of(whole: FoldMoments, positive: Bool[ndarray, "row"]) -> "Split":
        """The rarer category is summed up, the other is what is left of the whole."""
        rare = positive.mean() < 0.5
        some = whole.part(positive if rare else ~positive)
        rest = tuple(all_of_it - part for all_of_it, part in zip(whole.moments, some, strict=True))
        parts = (some, rest) if rare else (rest, some)
        for name, moments in zip(("the category", "what it is compared with"), parts, strict=True):
            counts = [m.count for m in moments]
            if sum(counts) - max(counts) < FEWEST or min(counts) < 2:
                raise TooFew(
                    f"{sum(counts)} tokens are in {name}, {min(counts)} of them in the poorest of {FOLDS} folds: read "
                    f"more tokens, or take a commoner category (at least 2 in every fold and {FEWEST} in every training split)"
                )
        return Split(whole.fold, *parts)

    def whole(self) -> tuple[Moments, Moments]:
        """Both categories, all folds together."""
        return sum(self.a[1:], self.a[0]), sum(self.b[1:], self.b[0])

    def directions(self, method: Method, shrinkage: float) -> "Directions":
        """The direction found without each fold."""
        found: list[ndarray] = []
        centres, signs = [], []
        whole = sum(self.b, sum(self.a[1:], self.a[0])).covariance
        for a, b in self.training():
            w = direction(a, b, method, shrinkage)
            w = w / max(b.along(w)[1], 1e-300) ** 0.5  # B's projections have unit variance: folds can be put together
            sign = 1.0 if not found or w @ whole @ found[0] >= 0 else -1.0
            found.append(sign * w)
            signs.append(sign)
            centres.append(float((a + b).mean @ found[-1]))
        aligned = np.array(found)
        together = aligned @ whole @ aligned.T
        sizes = np.sqrt(np.maximum(np.diag(together), 1e-300))
        return Directions(aligned, np.array(centres), np.array(signs), float((together[0] / sizes[0] / sizes).min()))

    def floors(self, directions: ndarray) -> Float[ndarray, "row"]:
        """Mean variance of B in every direction, times the length of the fold's own, for each row of the fold."""
        found = np.array([m.spread * float(w @ w) for m, w in zip(self.b, directions, strict=True)])
        return found[self.fold]

    def in_sample(self, directions: ndarray, shrinkage: float) -> list[tuple[float, float]]:
        """Ratio and separation on the rows that chose each direction."""
        return [worth(a, b, w, shrinkage) for (a, b), w in zip(self.training(), directions, strict=True)]

    def held_out(self, found: "Directions", shrinkage: float) -> tuple[float, float]:
        """Ratio and separation of all held-out projections together."""
        figures = []
        for signs in (np.ones(len(self.a)), found.signs):
            pooled: list[float] = []
            for moments in (self.a, self.b):
                shares = np.array([m.count for m in moments]) / sum(m.count for m in moments)
                means, variances = np.array([m.along(w) for m, w in zip(moments, found.aligned, strict=True)]).T
                placed = signs * (means - found.centres)
                mean = float(shares @ placed)
                pooled += [mean, float(shares @ (variances + placed**2)) - mean * mean]
            floor = float(shares @ [m.spread * float(w @ w) for m, w in zip(self.b, found.aligned, strict=True)])
            mean_a, var_a, mean_b, var_b = pooled
            figures.append(figures_of(mean_a, var_a, mean_b, var_b, floor, shrinkage))
        return figures[0][0], figures[1][1]

    def training(self) -> list[tuple[Moments, Moments]]:
        """The moments of both categories without each fold."""
        whole_a, whole_b = self.whole()
        return [(whole_a - a, whole_b - b) for a, b in zip(self.a, self.b, strict=True)]
