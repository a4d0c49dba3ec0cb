"""Stability selection: a hundred subsamples at once, against the companion's loop with its inner cross-validation."""

import importlib.util
import warnings
from typing import Any

import numpy as np

from benchmarks import course, timing
from interp_core import stability_selection

OURS = "ours: all subsamples in one batch, one fit"
ROWS, DIM, SUBSAMPLES, SHARE, STRENGTH = 4000, 128, 100, 0.7, 0.01
FEW = 10  # subsamples of the companion's that are timed, a tenth of all


def run() -> None:
    """Prints the comparison; checks first that both keep the planted columns."""
    folder = course.reference()
    if folder is None or importlib.util.find_spec("sklearn") is None:
        print("probing: needs the course's code beside the folder that LOUPE_DATA names, and scikit-learn")
        return
    companion: dict[str, Any] = course.companion(folder)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(ROWS, DIM))
    positive = rng.random(ROWS) < 1 / (1 + np.exp(-2 * rows[:, :5].sum(1)))
    blocks = np.arange(ROWS)  # single rows, as the companion takes them

    def ours(subsamples: int = SUBSAMPLES) -> np.ndarray:
        return stability_selection.stability(
            rows, positive, blocks, (STRENGTH,), stability_selection.Subsampling(subsamples, SHARE)
        ).frequencies[0]

    def theirs() -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return companion["stability_selection"](rows, positive.astype(int), STRENGTH, FEW, SHARE)

    assert (ours(FEW)[:5] == 1).all()
    assert (theirs()[:5] == 1).all()
    found = timing.medians({OURS: ours, "the companion's loop": theirs}, rounds=3)
    found["the companion's loop"] *= SUBSAMPLES / FEW
    timing.report(
        f"Stability selection, {SUBSAMPLES} subsamples of {ROWS} × {DIM} (the companion's: {FEW} timed, extrapolated)",
        OURS,
        found,
    )
