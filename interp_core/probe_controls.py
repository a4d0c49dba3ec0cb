"""What a probe must beat: labels that say nothing, labels learned by heart, and what can be read without a model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from interp_core import classification, sparse_logistic
from interp_core.classification import Figure
from interp_core.statistics import block_folds, shift_labels

FOLDS = 5
SHIFTS = 20  # the fewest with which a p-value can be below 0.05
BACK = 3  # tokens that the surface control sees
SEEN = 10  # times that a token occurs at least to have columns there


@dataclass(frozen=True, eq=False)
class Null:
    """What probes reach, held out, where the labels are shifted, and how rarely that is as much."""

    figures: Mapping[Figure, Float[ndarray, "draw strength"]]

    def p_value(self, figure: Figure, strength: int, value: float) -> float:
        """Share of the shifts that reach the value, which counts as one of them."""
        drawn = self.figures[figure][:, strength]
        return float((1 + (drawn >= value).sum()) / (1 + len(drawn)))


def null(
    rows: Float[ndarray, "row dim"],
    positive: Bool[ndarray, "row"],
    windows: Int[ndarray, "row"],
    strengths: Sequence[float],
    draws: int = SHIFTS,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Null:
    """The whole procedure with the labels of every window shifted in a circle: fitted and judged anew for each draw."""
    fold, x = block_folds(windows, FOLDS), sparse_logistic.standardised(rows)
    labels = np.stack([shift_labels(positive, windows, seed + draw) for draw in range(draws)])
    shares = torch.from_numpy(np.stack([fold != f for f in range(FOLDS)])).float().repeat(draws, 1)
    given, found, drawn = torch.from_numpy(np.repeat(labels, FOLDS, 0)), None, []
    for done, strength in enumerate(strengths):

        def tell(share: float, done: int = done) -> None:
            if progress:
                progress((done + share) / len(strengths))

        strengths_now = torch.full((len(shares),), strength)
        found = sparse_logistic.fit(
            x, given, shares, strengths_now, found, tolerance=sparse_logistic.ROUGH, progress=tell
        )
        said = found.logits(x).numpy().reshape(len(rows), draws, FOLDS)
        drawn.append(classification.figures(said[np.arange(len(rows)), :, fold], labels.T, fold))
    return Null({name: np.stack([part[name] for part in drawn], 1) for name in classification.FIGURES})


def control_task(tokens: Int[ndarray, "row"], positive: Bool[ndarray, "row"], seed: int) -> Bool[ndarray, "row"]:
    """Labels that have nothing to do with anything but which token it is: drawn once for each token type.

    Types are taken in random order while the share of positive rows stays at most the category's, so that accuracies can
    be compared. What a probe gains on them, it gains by heart; selectivity is the real figure minus this one's (Hewitt &
    Liang 2019, "Designing and interpreting probes with control tasks").
    """
    counts, left = np.bincount(tokens), int(positive.sum())
    taken = np.zeros(len(counts), dtype=bool)
    for token in np.random.default_rng(seed).permutation(np.flatnonzero(counts)):
        if counts[token] <= left:
            taken[token], left = True, left - int(counts[token])
    return taken[tokens]


def surface(windows: Int[ndarray, "window pos"], back: int = BACK) -> Float[ndarray, "row feature"]:
    """What can be read without a model: which tokens the last `back` are, and the position in the window, as ones and zeros.

    Tokens that occur fewer than `SEEN` times have no column.
    """
    count, length = windows.shape
    padded = np.concatenate([np.full((count, back - 1), -1), windows], axis=1)
    types, times = np.unique(windows, return_counts=True)
    common = types[times >= SEEN]
    parts = [padded[:, i : i + length, None] == common for i in range(back)]
    places = np.broadcast_to(np.eye(length, dtype=bool), (count, length, length))
    return np.concatenate([*parts, places], axis=2).reshape(count * length, -1).astype(float)
