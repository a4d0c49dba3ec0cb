"""Which neurons a sparse probe keeps whatever part of the text it sees.

Probes on many subsamples of the windows, and the share of them that keeps each neuron (Meinshausen & Bühlmann 2010,
"Stability selection"; complementary pairs: Shah & Samworth 2013).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from interp_core import sparse_logistic


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


def stability(
    rows: Float[ndarray, "row dim"],
    positive: Bool[ndarray, "row"],
    windows: Int[ndarray, "row"],
    strengths: Sequence[float],
    how: Subsampling = HALVES,
    progress: Callable[[float], None] | None = None,
) -> Stability:
    """How often each neuron is kept by probes on subsamples of the windows.

    Args:
        rows: activations.
        positive: labels.
        windows: blocks of rows, which are taken or left whole.
        strengths: C's of the path, solved from the smallest up, each from the one before.
        how: the subsamples.
        progress: told how far it is.

    Raises:
        ValueError: a subsample has rows of one class only.
    """
    taken = how.draw(int(windows.max()) + 1)
    x, labels = sparse_logistic.standardised(rows), torch.from_numpy(positive)
    shares, frequencies, found = torch.from_numpy(taken[:, windows]).float(), [], None
    for done, strength in enumerate(strengths):

        def tell(share: float, done: int = done) -> None:
            if progress:
                progress((done + share) / len(strengths))

        found = sparse_logistic.fit(x, labels, shares, torch.full((how.count,), strength), found, progress=tell)
        frequencies.append((found.weights != 0).double().mean(0).numpy())
    table = np.stack(frequencies)
    return Stability(table, table.sum(1), how)
