"""Stability selection against planted neurons, single fits, scikit-learn's, and noise."""

import numpy as np
import pytest
import torch

from interp_core import sparse_logistic
from interp_core.stability_selection import Subsampling, stability
from tests.planted import WINDOWS, text


def test_planted_neurons_come_out_and_the_bound_is_kept() -> None:
    rows, positive, windows = text()
    found = stability(rows, positive, windows, strengths=(0.01, 0.03), how=Subsampling(40))
    assert list(found.selected(1, 0.8)) == [3, 7, 11]
    bound = found.false_bound(0, 0.8)
    assert bound is not None
    assert bound == pytest.approx(found.kept[0] ** 2 / (0.6 * 24))
    assert found.false_bound(0, 0.5) is None
    assert stability(rows, positive, windows, (0.01,), Subsampling(4, share=0.7)).false_bound(0, 0.8) is None


def test_on_exchangeable_noise_the_bound_holds_over_repetitions() -> None:
    false, bounds = [], []
    for seed in range(12):
        rows, positive, windows = text(seed=seed, told=())
        found = stability(rows, positive, windows, strengths=(0.03,), how=Subsampling(30, seed=seed))
        bound = found.false_bound(0, 0.7)
        assert bound is not None
        false.append(len(found.selected(0, 0.7)))
        bounds.append(bound)
    assert np.mean(false) <= np.mean(bounds)


def test_frequencies_are_those_of_single_fits() -> None:
    """Each subsample solved alone, from nothing, keeps the same neurons."""
    rows, positive, windows = text()
    found = stability(rows, positive, windows, strengths=(0.005, 0.02), how=Subsampling(10, seed=3))
    rng, counts = np.random.default_rng(3), np.zeros(24)
    for _ in range(10):
        taken = np.isin(windows, rng.permutation(WINDOWS)[: WINDOWS // 2])
        shares = torch.from_numpy(taken.astype(float))[None]
        one = sparse_logistic.fit(
            torch.from_numpy(rows), torch.from_numpy(positive), shares, torch.tensor([0.02], dtype=torch.double)
        )
        counts += (one.weights[0] != 0).numpy()
    assert np.abs(found.frequencies[1] - counts / 10).max() <= 0.1


def test_complementary_pairs_are_the_two_halves_of_a_split() -> None:
    taken = Subsampling(6, pairs=True).draw(WINDOWS)
    assert np.array_equal(taken[0::2], ~taken[1::2])
    assert (taken.sum(1) == WINDOWS // 2).all()
    assert len(np.unique(taken, axis=0)) == 6
    alone = Subsampling(6, share=0.7).draw(WINDOWS)
    assert (alone.sum(1) == round(0.7 * WINDOWS)).all()
    assert not np.array_equal(alone[0], ~alone[1])


@pytest.mark.slow
def test_frequencies_are_within_three_hundredths_of_scikit_learns() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    rows, positive, windows = text(dim=16)
    found = stability(rows, positive, windows, strengths=(0.12,), how=Subsampling(100, seed=5))
    rng, counts = np.random.default_rng(5), np.zeros(16)
    for _ in range(100):
        kept = np.isin(windows, rng.permutation(WINDOWS)[: WINDOWS // 2])
        scaled = (rows[kept] - rows[kept].mean(0)) / rows[kept].std(0)
        model = linear_model.LogisticRegression(l1_ratio=1.0, C=0.12, solver="saga", tol=1e-5, max_iter=5000)
        counts += model.fit(scaled, positive[kept]).coef_[0] != 0
    assert np.abs(found.frequencies[0] - counts / 100).max() <= 0.03
    assert 3 < found.kept[0] < 16, "a comparison in which something is undecided"
