"""Generalised eigendecomposition: the direction along which one category varies most, relative to another.

Of two covariances C_A and C_B it finds w with the largest wᵀC_A w / wᵀC_B w (Cohen 2022, "A tutorial on generalized
eigendecomposition for denoising, contrast enhancement, and dimension reduction in multichannel electrophysiology"). In
sample there always is such a direction, and with fewer samples than dimensions its ratio has no bound. So every figure
comes twice: on the rows that chose the direction, and on folds of the text that did not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.linalg import eigh
from threadpoolctl import threadpool_limits

from interp_core.directions import FOLDS, METHODS, Method, Split, TooFew, direction, figures_of, shrink, spectrum, worth
from interp_core.moments import FoldMoments, Moments
from interp_core.statistics import FEW, Interval, bootstrap_means, percentile_interval, shift_labels

SHRINKAGE = 0.05
CONSTANT = 1e-10  # share of the mean variance below which a dimension counts as constant
REPEATS = 10  # draws of each number of samples
SHOWN = 20  # components of a spectrum
DRAWS = 1000  # of the bootstrap over windows
Progress = Callable[[float], None]


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

    Ratio: variance of A's projections over the shrunk one of B's, in sample and held out alike. Separation: difference of
    means over the sum of standard deviations, its sign fixed on each training split. Both with their intervals over windows.
    """

    method: Method
    values: Float[ndarray, "row"]  # the folds' directions turned to point the same way
    directions: Float[ndarray, "fold dim"]
    agreement: (
        float  # least correlation of a fold's projections with the first fold's: low, and there is nothing to interpret
    )
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
    split = Split.of(FoldMoments.of(rows, windows, FOLDS), positive)
    found = split.directions(method, shrinkage)
    values = np.einsum("rd,rd->r", rows, found.aligned[split.fold]) - found.centres[split.fold]
    rare = min(len(np.unique(windows[mask])) for mask in (positive, ~positive))
    if rare < FEW:
        raise TooFew(
            f"one category occurs in {rare} windows only, and {FEW} are the least for an interval: read more tokens"
        )
    return Scores(
        method,
        values,
        found.aligned,
        found.agreement,
        *_intervals(values, found.signs[split.fold], positive, windows, split.floors(found.aligned), shrinkage, seed),
        *(float(np.mean(part)) for part in zip(*split.in_sample(found.signed, shrinkage), strict=True)),
    )


@dataclass(frozen=True, eq=False)
class Null:
    """What the same procedure finds where the labels say nothing, and how rarely that reaches what was found."""

    ratios: Float[ndarray, "draw"]  # held out
    separations: Float[ndarray, "draw"]  # held out
    ratios_in_sample: Float[ndarray, "draw"]
    separations_in_sample: Float[ndarray, "draw"]
    spectra: Float[ndarray, "draw component"]  # of all rows, the first `SHOWN` components of GED

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
    method: Method = "GED",
    progress: Progress | None = None,
) -> dict[float, Null]:
    """The cross-validation with the labels of every window shifted in a circle, which keeps their runs and their number.

    All shrinkages see the same draws, and share what does not depend on them.
    """
    whole = FoldMoments.of(rows, windows, FOLDS)
    found: dict[float, list[tuple]] = {shrinkage: [] for shrinkage in shrinkages}
    with threadpool_limits(1, "blas"):  # many small matrices: threads would wait for each other most of the time
        for draw in range(draws):
            split = Split.of(whole, shift_labels(positive, windows, seed + draw))
            for shrinkage in shrinkages:
                ways = split.directions(method, shrinkage)
                inside = np.mean(split.in_sample(ways.signed, shrinkage), axis=0)
                ratios = spectrum(*split.whole(), shrinkage)[:SHOWN] if method == "GED" else np.empty(0)
                found[shrinkage].append((*split.held_out(ways, shrinkage), *inside, ratios))
            if progress:
                progress((draw + 1) / draws)
    return {s: Null(*(np.array(column) for column in zip(*table, strict=True))) for s, table in found.items()}


def by_sample_size(
    rows: Float[ndarray, "row dim"],
    positive: Bool[ndarray, "row"],
    windows: Int[ndarray, "row"],
    sizes: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024, 2048),
    methods: Sequence[Method] = METHODS,
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
        for repeat in range(REPEATS):
            a, b = (Moments.of(rows[rng.choice(pool, size, replace=False)]) for pool in pools)
            for method in methods:
                w = direction(a, b, method, shrinkage)
                inside, outside = worth(a, b, w, shrinkage), worth(test_a, test_b, w, shrinkage)
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
    shrunk = shrink(of_b[kept], shrinkage)
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


def _intervals(
    values: ndarray, signs: ndarray, positive: ndarray, windows: ndarray, floors: ndarray, shrinkage: float, seed: int
) -> tuple[Interval, Interval]:
    """Ratio and separation of the projections with their intervals over windows; signs and floors are those of the folds."""
    count, columns = int(windows.max()) + 1, []
    for mask in (positive, ~positive):
        at, inside = windows[mask], values[mask]
        columns += [np.bincount(at, weight, count) for weight in (None, inside, inside**2, inside * signs[mask])]
    columns.append(np.bincount(windows[~positive], floors[~positive], count))
    sums = np.stack([column.astype(float) for column in columns], axis=1)  # [window statistic]
    estimate = _from_sums(sums.mean(0)[None], shrinkage)
    drawn = np.stack(_from_sums(bootstrap_means(sums, seed, DRAWS), shrinkage), axis=1)
    low, high = percentile_interval(drawn, count)
    ratio, separation = (
        Interval(float(e[0]), float(lo), float(hi)) for e, lo, hi in zip(estimate, low, high, strict=True)
    )
    return ratio, separation


def _from_sums(sums: Float[ndarray, "draw nine"], shrinkage: float) -> tuple[ndarray, ndarray]:
    n_a, s_a, q_a, t_a, n_b, s_b, q_b, t_b, floor = sums.T
    found = []
    for mean_a, mean_b in ((s_a / n_a, s_b / n_b), (t_a / n_a, t_b / n_b)):
        found.append(figures_of(mean_a, q_a / n_a - mean_a**2, mean_b, q_b / n_b - mean_b**2, floor / n_b, shrinkage))
    return found[0][0], found[1][1]
