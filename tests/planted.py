"""Rows with a planted answer, in windows."""

import numpy as np

WINDOWS, LENGTH = 60, 20


def text(dim: int = 24, seed: int = 0, told: tuple[int, ...] = (3, 7, 11)) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of noise; the label depends on the columns `told`."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(WINDOWS * LENGTH, dim))
    logits = 2.5 * rows[:, list(told)].sum(1) if told else np.zeros(len(rows))
    positive = rng.random(len(rows)) < 1 / (1 + np.exp(-logits))
    return rows, positive, np.repeat(np.arange(WINDOWS), LENGTH)
