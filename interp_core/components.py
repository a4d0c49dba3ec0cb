"""What a direction in activations means: its forward pattern, and whether it is more than which token is read."""

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from interp_core.statistics import Interval, block_folds, bootstrap_means, percentile_interval

FOLDS = 5


def forward_pattern(rows: Float[ndarray, "row dim"], direction: Float[ndarray, "dim"]) -> Float[ndarray, "dim"]:
    """What the component looks like in the activations: their covariance with the projection, per unit of its variance.

    A direction says where to look, its pattern what is there (Haufe et al. 2014).
    """
    centred = rows - rows.mean(0)
    scores = centred @ direction
    return centred.T @ scores / max(float(scores @ scores), 1e-300)


def token_share(
    values: Float[ndarray, "row"], tokens: Int[ndarray, "row"], windows: Int[ndarray, "row"], seed: int = 0
) -> Interval:
    """Share of the projections' variance that the token alone explains, held out, with its interval over windows.

    Near 1, the component is token identity.
    """
    fold, left = block_folds(windows, FOLDS), np.empty_like(values)
    for f in range(FOLDS):
        train, test = fold != f, fold == f
        sums = np.bincount(tokens[train], values[train], minlength=int(tokens.max()) + 1)
        counts = np.bincount(tokens[train], minlength=len(sums))
        means = np.where(counts > 0, sums / np.maximum(counts, 1), values[train].mean())
        left[test] = values[test] - means[tokens[test]]
    count = int(windows.max()) + 1
    sums = np.stack([np.bincount(windows, part, count) for part in (left**2, (values - values.mean()) ** 2)], 1)
    drawn = bootstrap_means(sums, seed)
    low, high = percentile_interval(1 - drawn[:, 0] / np.maximum(drawn[:, 1], 1e-300), count)
    whole, apart = sums.mean(0)
    return Interval(float(1 - whole / max(apart, 1e-300)), float(low), float(high))
