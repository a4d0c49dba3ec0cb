"""Figures of a classifier against scikit-learn's, their intervals against a bootstrap by hand."""

import numpy as np
import pytest

from interp_core import classification
from interp_core.classification import FIGURES, Judge
from interp_core.statistics import block_folds
from tests.planted import text


def scores(seed: int = 0, ties: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rows, positive, windows = text(seed=seed)
    logits = rows[:, 3] + 0.5 * np.random.default_rng(seed).normal(size=len(rows))
    return np.round(logits) if ties else logits, positive, windows, block_folds(windows, 5)


@pytest.mark.parametrize("ties", [False, True])
def test_figures_are_scikit_learns(ties: bool) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    logits, positive, windows, fold = scores(ties=ties)
    judged = Judge.of(positive, windows, fold)(logits)
    plain = classification.figures(np.stack([logits, -logits], 1), np.stack([positive, positive], 1), fold)
    won, pairs = 0.0, 0
    for f in range(5):
        here = fold == f
        count = int(positive[here].sum() * (~positive[here]).sum())
        won, pairs = won + count * metrics.roc_auc_score(positive[here], logits[here]), pairs + count
    expected = {
        "AUC": won / pairs,
        "accuracy": metrics.accuracy_score(positive, logits > 0),
        "balanced accuracy": metrics.balanced_accuracy_score(positive, logits > 0),
    }
    for name in FIGURES:
        assert judged.figure(name).estimate == pytest.approx(expected[name])
        assert plain[name][0] == pytest.approx(expected[name])
    assert plain["AUC"][1] == pytest.approx(1 - expected["AUC"])


def test_a_draw_is_the_figure_of_the_windows_that_it_takes() -> None:
    logits, positive, windows, fold = scores()
    judge = Judge.of(positive, windows, fold, seed=3)
    judged = judge(logits)
    for draw in (1, 7):
        rows = np.concatenate([np.repeat(np.flatnonzero(windows == w), int(judge.weights[draw, w])) for w in range(60)])
        again = classification.figures(logits[rows, None], positive[rows, None], fold[rows])
        for name in FIGURES:
            assert judged.draws[name][draw] == pytest.approx(again[name][0])


def test_intercepts_of_folds_do_not_count_and_useless_numbers_are_at_one_half() -> None:
    _, positive, windows, fold = scores()
    assert Judge.of(positive, windows, fold)(-np.bincount(fold, positive)[fold]).figure("AUC").estimate == 0.5


def test_differences_are_paired() -> None:
    logits, positive, windows, fold = scores()
    judge = Judge.of(positive, windows, fold)
    one, other = judge(logits), judge(logits + 0.05 * np.random.default_rng(1).normal(size=len(logits)))
    difference = one.above(other, "AUC")
    assert difference.low < difference.estimate < difference.high
    assert difference.half_width < one.figure("AUC").half_width / 3
    assert difference.estimate == pytest.approx(one.figure("AUC").estimate - other.figure("AUC").estimate)


def test_intervals_cover_and_few_windows_are_refused() -> None:
    truth = np.mean([Judge.of(*s[1:])(s[0]).figure("AUC").estimate for s in map(scores, range(100, 160))])
    covered = 0
    for seed in range(60):
        logits, positive, windows, fold = scores(seed)
        found = Judge.of(positive, windows, fold)(logits).figure("AUC")
        covered += found.low <= truth <= found.high
    assert covered >= 51
    logits, positive, windows, fold = scores()
    with pytest.raises(ValueError, match="in the category occur in 3 windows only, and 12 are the least"):
        Judge.of(positive & (windows < 3), windows, fold)
