"""Generalised eigendecomposition: the direction along which one category varies most, relative to another.

Of two covariances C_A and C_B it finds w with the largest wᵀC_A w / wᵀC_B w (Cohen 2022, "A tutorial on generalized
eigendecomposition for denoising, contrast enhancement, and dimension reduction in multichannel electrophysiology"). In
sample there always is such a direction, and with fewer samples than dimensions its ratio has no bound. So every figure
comes twice: on the rows that chose the direction, and on folds of the text that did not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.linalg import cholesky, eigh, solve, solve_triangular

from interp_core.moments import FoldMoments, Moments
from interp_core.statistics import Interval, bootstrap_means, percentile_interval, shift_labels

SHRINKAGE = 0.05
CONSTANT = 1e-10  # share of the mean variance below which a dimension counts as constant
TRACE = 1e-9  # of shrinkage that is always there in cross-validation
FOLDS = 5
FEWEST = 8  # rows of each category in every training split
SHOWN = 20  # components of a spectrum
DRAWS = 1000  # of the bootstrap over windows
Method = Literal["GED", "mean difference", "LDA"]
METHODS: tuple[Method, ...] = ("GED", "mean difference", "LDA")
T = TypeVar("T", float, ndarray)
Progress = Callable[[float], None]


class TooFew(ValueError):
    """A category without enough rows; says how many there are and how many are needed."""


@dataclass(frozen=True, eq=False)
class Decomposition:
    """All components, the largest ratio first; wᵀC_B w = 1 for the shrunk C_B."""

    ratios: Float[ndarray, "component"]  # variance of A over shrunk variance of B
    vectors: Float[ndarray, "dim component"]  # zero at constant dimensions; A's mean lies on the positive side
    condition_before: float  # of C_B: infinite when it has no inverse
    condition_after: float  # of the shrunk C_B
    constant: Int[ndarray, "constant_dim"]  # dimensions that vary in neither category: left out


@dataclass(frozen=True, eq=False)
class Scores:
    """Projections of every row on the direction that was found without its fold, and what they say.

    Ratio: variance of A's projections over the shrunk one of B's, in sample and held out alike. Separation:
    difference of means over the sum of standard deviations. Each with its interval over windows, and in sample beside it.
    """

    method: Method
    values: Float[ndarray, "row"]
    directions: Float[ndarray, "fold dim"]
    ratio: Interval
    separation: Interval
    ratio_in_sample: float
    separation_in_sample: float


def decompose(
    a: Float[ndarray, "a_row dim"], b: Float[ndarray, "b_row dim"], shrinkage: float = SHRINKAGE
) -> Decomposition:
    """The generalised eigenvectors of the covariances of two categories.

    Args:
        a: rows of the category whose variance is sought.
        b: rows of the category to compare with.
        shrinkage: share of C_B that is replaced by its mean variance in every direction, which makes it invertible.

    Raises:
        TooFew: fewer than two rows in a category.
        ValueError: a shrinkage outside of 0 to 1, a C_B without an inverse and no shrinkage, or nothing that varies.
    """
    if min(len(a), len(b)) < 2:
        raise TooFew(f"{len(a)} rows of one category and {len(b)} of the other: a variance needs at least 2 of each")
    return _solve(Moments.of(a), Moments.of(b), shrinkage)


def cross_validate(
    rows: Float[ndarray, "row dim"],
    positive: Bool[ndarray, "row"],
    windows: Int[ndarray, "row"],
    shrinkage: float = SHRINKAGE,
    method: Method = "GED",
    seed: int = 0,
) -> Scores:
    """Directions from all folds but one, projections of that one; folds are runs of neighbouring windows.

    Raises:
        TooFew: a training split with fewer than `FEWEST` rows of a category, or a fold without two rows of each.
    """
    split = _Split.of(FoldMoments.of(rows, windows, FOLDS), positive)
    directions, centres = split.directions(method, shrinkage)
    values = np.einsum("rd,rd->r", rows, directions[split.fold]) - centres[split.fold]
    return Scores(
        method,
        values,
        directions,
        *_intervals(values, positive, windows, split.floors(directions), shrinkage, seed),
        *(float(np.mean(part)) for part in zip(*split.in_sample(directions, shrinkage), strict=True)),
    )


@dataclass(frozen=True, eq=False)
class Null:
    """What the same procedure finds where the labels say nothing, and how rarely that reaches what was found."""

    ratios: Float[ndarray, "draw"]  # held out
    separations: Float[ndarray, "draw"]  # held out
    ratios_in_sample: Float[ndarray, "draw"]
    separations_in_sample: Float[ndarray, "draw"]
    spectra: Float[ndarray, "draw component"]  # of all rows, the first `SHOWN` components

    def p_value(self, scores: Scores) -> tuple[float, float]:
        """Of the ratio and of the separation: the share of draws as large, the observed one counted among them."""
        pairs = ((self.ratios, scores.ratio), (self.separations, scores.separation))
        ratio, separation = ((1 + int((null >= found.estimate).sum())) / (1 + len(null)) for null, found in pairs)
        return ratio, separation


def null(
    rows: Float[ndarray, "row dim"],
    positive: Bool[ndarray, "row"],
    windows: Int[ndarray, "row"],
    shrinkages: Sequence[float] = (SHRINKAGE,),
    draws: int = 100,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[float, Null]:
    """The cross-validation with the labels of every window shifted in a circle, which keeps their runs and their number.

    All shrinkages see the same draws, and share what does not depend on them.
    """
    whole = FoldMoments.of(rows, windows, FOLDS)
    found: dict[float, list[tuple]] = {shrinkage: [] for shrinkage in shrinkages}
    for draw in range(draws):
        split = _Split.of(whole, shift_labels(positive, windows, seed + draw))
        for shrinkage in shrinkages:
            directions, centres = split.directions("GED", shrinkage)
            inside = np.mean(split.in_sample(directions, shrinkage), axis=0)
            spectrum = _spectrum(*split.whole(), shrinkage)[:SHOWN]
            found[shrinkage].append((*split.held_out(directions, centres, shrinkage), *inside, spectrum))
        if progress:
            progress((draw + 1) / draws)
    return {s: Null(*(np.array(column) for column in zip(*table, strict=True))) for s, table in found.items()}


def by_sample_size(
    rows: Float[ndarray, "row dim"],
    positive: Bool[ndarray, "row"],
    windows: Int[ndarray, "row"],
    sizes: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024, 2048),
    repeats: int = 10,
    shrinkage: float = SHRINKAGE,
    seed: int = 0,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """The trap: what a direction from few rows seems to be worth, and what it is worth on the other half of the text.

    Directions are found on `size` rows of each category from the first half of the windows; the second half is held out.
    A row a size, method and repeat: size, method, repeat, ratio_in, ratio_out, separation_in, separation_out.
    """
    rng, half = np.random.default_rng(seed), np.median(windows)
    first, second = windows <= half, windows > half
    test_a, test_b = (Moments.of(rows[second & mask]) for mask in (positive, ~positive))
    pools = [np.flatnonzero(first & mask) for mask in (positive, ~positive)]
    table = []
    tried = [size for size in sizes if size <= min(len(pool) for pool in pools)]
    for done, size in enumerate(tried):
        for repeat in range(repeats):
            a, b = (Moments.of(rows[rng.choice(pool, size, replace=False)]) for pool in pools)
            for method in METHODS:
                w = _direction(a, b, method, shrinkage)
                inside, outside = _worth(a, b, w, shrinkage), _worth(test_a, test_b, w, shrinkage)
                table.append((size, method, repeat, inside[0], outside[0], inside[1], outside[1]))
        if progress:
            progress((done + 1) / len(tried))
    return pd.DataFrame(
        table, columns=["size", "method", "repeat", "ratio_in", "ratio_out", "separation_in", "separation_out"]
    )


def _solve(a: Moments, b: Moments, shrinkage: float) -> Decomposition:
    if not 0 <= shrinkage <= 1:
        raise ValueError(f"the shrinkage is {shrinkage}, expected 0 to 1")
    of_a, of_b = a.covariance, b.covariance
    varies = np.maximum(np.diag(of_a), np.diag(of_b))
    alive = varies > CONSTANT * varies.mean()
    if not alive.any():
        raise ValueError("nothing varies in these rows: choose another site, or more tokens")
    kept = np.ix_(alive, alive)
    shrunk = _shrink(of_b[kept], shrinkage)
    try:
        ratios, vectors = eigh(of_a[kept], shrunk)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"the covariance of {b.count} rows in {alive.sum()} dimensions has no inverse: raise the shrinkage above 0"
        ) from error
    vectors = vectors[:, ::-1]
    signs = np.sign((a.mean - b.mean)[alive] @ vectors)
    full = np.zeros((len(alive), vectors.shape[1]))
    full[alive] = vectors * np.where(signs == 0, 1, signs)
    before, after = (float(np.linalg.cond(matrix)) for matrix in (of_b[kept], shrunk))
    return Decomposition(ratios[::-1].copy(), full, before, after, np.flatnonzero(~alive))


def _shrink(covariance: Float[ndarray, "dim dim"], shrinkage: float) -> Float[ndarray, "dim dim"]:
    size = len(covariance)
    return (1 - shrinkage) * covariance + shrinkage * np.trace(covariance) / size * np.eye(size)


def _direction(a: Moments, b: Moments, method: Method, shrinkage: float) -> Float[ndarray, "dim"]:
    """A direction with A's mean on its positive side."""
    apart = a.mean - b.mean
    if method == "mean difference":
        return apart
    if method == "LDA":
        pooled = ((a.count - 1) * a.covariance + (b.count - 1) * b.covariance) / (a.count + b.count - 2)
        return solve(_shrink(pooled, max(shrinkage, TRACE)), apart, assume_a="pos")
    lower, whitened = _whiten(a, b, shrinkage)
    size = len(apart)
    _, vectors = eigh(whitened, subset_by_index=[size - 1, size - 1])
    w = solve_triangular(lower, vectors[:, 0], lower=True, trans="T")
    return w if apart @ w >= 0 else -w


def _whiten(a: Moments, b: Moments, shrinkage: float) -> tuple[ndarray, ndarray]:
    """The Cholesky factor L of the shrunk C_B, and L⁻¹ C_A L⁻ᵀ, whose eigenvalues are the ratios.

    A trace of shrinkage is always there, so that constant dimensions, or too few rows, do not stop a whole null.
    """
    lower = cholesky(_shrink(b.covariance, max(shrinkage, TRACE)), lower=True)
    half = solve_triangular(lower, a.covariance, lower=True)
    return lower, solve_triangular(lower, half.T, lower=True)


def _spectrum(a: Moments, b: Moments, shrinkage: float) -> Float[ndarray, "component"]:
    """All ratios, the largest first."""
    return eigh(_whiten(a, b, shrinkage)[1], eigvals_only=True)[::-1]


def _worth(a: Moments, b: Moments, w: Float[ndarray, "dim"], shrinkage: float) -> tuple[float, float]:
    """Variance ratio and separation of means along a direction."""
    (mean_a, var_a), (mean_b, var_b) = a.along(w), b.along(w)
    return _figures(mean_a, var_a, mean_b, var_b, b.spread * float(w @ w), shrinkage)


def _figures(mean_a: T, var_a: T, mean_b: T, var_b: T, floor: T, shrinkage: float) -> tuple[T, T]:
    """Ratio over the shrunk variance of B, whose mean variance in every direction is `floor`; separation over the plain ones."""
    ratio = var_a / np.maximum((1 - shrinkage) * var_b + shrinkage * floor, 1e-300)
    return ratio, (mean_a - mean_b) / np.maximum(np.sqrt(var_a) + np.sqrt(var_b), 1e-300)


@dataclass(frozen=True, eq=False)
class _Split:
    """The moments of both categories in every fold."""

    fold: Int[ndarray, "row"]
    a: tuple[Moments, ...]
    b: tuple[Moments, ...]

    @staticmethod
    def of(whole: FoldMoments, positive: Bool[ndarray, "row"]) -> "_Split":
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
        return _Split(whole.fold, *parts)

    def whole(self) -> tuple[Moments, Moments]:
        """Both categories, all folds together."""
        return sum(self.a[1:], self.a[0]), sum(self.b[1:], self.b[0])

    def directions(self, method: Method, shrinkage: float) -> tuple[ndarray, ndarray]:
        """The direction found without each fold [fold dim], and the mean of its training projections [fold]."""
        found, centres = [], []
        for a, b in self._training():
            w = _direction(a, b, method, shrinkage)
            w = w / max(b.along(w)[1], 1e-300) ** 0.5  # B's projections have unit variance: folds can be put together
            found.append(w)
            centres.append(float((a + b).mean @ w))
        return np.array(found), np.array(centres)

    def floors(self, directions: ndarray) -> Float[ndarray, "row"]:
        """Mean variance of B in every direction, times the length of the fold's own, for each row of the fold."""
        found = np.array([m.spread * float(w @ w) for m, w in zip(self.b, directions, strict=True)])
        return found[self.fold]

    def in_sample(self, directions: ndarray, shrinkage: float) -> list[tuple[float, float]]:
        """Ratio and separation on the rows that chose each direction."""
        return [_worth(a, b, w, shrinkage) for (a, b), w in zip(self._training(), directions, strict=True)]

    def held_out(self, directions: ndarray, centres: ndarray, shrinkage: float) -> tuple[float, float]:
        """Ratio and separation of all held-out projections together."""
        pooled: list[float] = []
        for moments in (self.a, self.b):
            shares = np.array([m.count for m in moments]) / sum(m.count for m in moments)
            means, variances = np.array([m.along(w) for m, w in zip(moments, directions, strict=True)]).T
            mean = shares @ (means - centres)
            pooled += [float(mean), float(shares @ (variances + (means - centres) ** 2) - mean**2)]
        floor = float(shares @ [m.spread * float(w @ w) for m, w in zip(self.b, directions, strict=True)])
        mean_a, var_a, mean_b, var_b = pooled
        return _figures(mean_a, var_a, mean_b, var_b, floor, shrinkage)

    def _training(self) -> list[tuple[Moments, Moments]]:
        whole_a, whole_b = self.whole()
        return [(whole_a - a, whole_b - b) for a, b in zip(self.a, self.b, strict=True)]


def _intervals(
    values: ndarray, positive: ndarray, windows: ndarray, floors: ndarray, shrinkage: float, seed: int
) -> tuple[Interval, Interval]:
    """Ratio and separation of the projections, with their intervals over windows; `floors` are those of the folds' rows."""
    count, columns = int(windows.max()) + 1, []
    for mask in (positive, ~positive):
        at = windows[mask]
        columns += [np.bincount(at, weight, count) for weight in (None, values[mask], values[mask] ** 2)]
    columns.append(np.bincount(windows[~positive], floors[~positive], count))
    sums = np.stack([column.astype(float) for column in columns], axis=1)  # [window statistic]
    estimate = _from_sums(sums.mean(0)[None], shrinkage)
    drawn = np.stack(_from_sums(bootstrap_means(sums, seed, DRAWS), shrinkage), axis=1)
    low, high = percentile_interval(drawn, count)
    ratio, separation = (
        Interval(float(e[0]), float(lo), float(hi)) for e, lo, hi in zip(estimate, low, high, strict=True)
    )
    return ratio, separation


def _from_sums(sums: Float[ndarray, "draw seven"], shrinkage: float) -> tuple[ndarray, ndarray]:
    n_a, s_a, q_a, n_b, s_b, q_b, floor = sums.T
    mean_a, mean_b = s_a / n_a, s_b / n_b
    return _figures(mean_a, q_a / n_a - mean_a**2, mean_b, q_b / n_b - mean_b**2, floor / n_b, shrinkage)
