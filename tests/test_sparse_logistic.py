"""Batched L1 logistic regression against scikit-learn's, and against its own conditions of optimality."""

import numpy as np
import pytest
import torch

from interp_core import sparse_logistic


def made(rows: int = 600, dim: int = 20, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Correlated columns of different sizes; three of them tell the label."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, dim)) @ (np.eye(dim) + 0.3 * rng.normal(size=(dim, dim))) * rng.uniform(0.1, 5, dim) + 2
    told = (x[:, 0] / x[:, 0].std() - 2 * x[:, 3] / x[:, 3].std() + x[:, 7] / x[:, 7].std()) * 2
    positive = rng.random(rows) < 1 / (1 + np.exp(-(told - told.mean())))
    return torch.from_numpy(x), torch.from_numpy(positive)


def test_solutions_are_optimal() -> None:
    """Zero is in the subgradient: |C·∇loss| is 1 at selected columns, with the weight's sign, and at most 1 elsewhere."""
    x, y = made()
    strengths = torch.tensor([0.003, 0.02, 0.1, 1.0], dtype=torch.double)
    shares = torch.ones(4, len(x), dtype=torch.double)
    found = sparse_logistic.fit(x, y, shares, strengths)
    assert found.converged.all()
    residual = y.double()[:, None] - found.logits(x).sigmoid()  # [row problem]
    scaled = (x - x.mean(0)) / x.std(0, correction=0)
    slope = (strengths[:, None] * (residual.T @ scaled)).numpy()
    weights = found.weights.numpy()
    assert np.abs(residual.sum(0).numpy() * strengths.numpy()).max() < 1e-2
    assert np.abs(slope[weights != 0] - np.sign(weights[weights != 0])).max() < 0.02
    assert np.abs(slope[weights == 0]).max() < 1.02
    chosen = [int((row != 0).sum()) for row in weights]
    assert chosen == sorted(chosen)
    assert chosen[0] < chosen[-1]


def test_equal_to_scikit_learn() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    x, y = made()
    rng = np.random.default_rng(1)
    shares = torch.from_numpy((rng.random((3, len(x))) < 0.5).astype(float))
    strengths = torch.tensor([0.02, 0.1, 1.0], dtype=torch.double)
    found = sparse_logistic.fit(x, y, shares, strengths)
    for problem, strength in enumerate(strengths.tolist()):
        kept = shares[problem].bool()
        part = x[kept]
        scaled = ((part - part.mean(0)) / part.std(0, correction=0)).numpy()
        theirs = linear_model.LogisticRegression(l1_ratio=1.0, C=strength, solver="saga", tol=1e-7, max_iter=20_000)
        theirs.fit(scaled, y[kept].numpy())
        np.testing.assert_allclose(found.weights[problem].numpy(), theirs.coef_[0], atol=5e-3)
        assert found.intercepts[problem].item() == pytest.approx(theirs.intercept_[0], abs=5e-3)


def test_problems_do_not_touch_one_another() -> None:
    x, y = made()
    rng = np.random.default_rng(2)
    shares = torch.from_numpy((rng.random((5, len(x))) < 0.6).astype(float))
    together = sparse_logistic.fit(x, y, shares, torch.full((5,), 0.05, dtype=torch.double))
    alone = sparse_logistic.fit(x, y, shares[2:3], torch.full((1,), 0.05, dtype=torch.double))
    torch.testing.assert_close(together.weights[2], alone.weights[0], atol=2e-3, rtol=0)


def test_labels_of_their_own_and_a_warm_start() -> None:
    x, y = made()
    labels = torch.stack([y, ~y])
    strengths = torch.full((2,), 0.1, dtype=torch.double)
    shares = torch.ones(2, len(x), dtype=torch.double)
    found = sparse_logistic.fit(x, labels, shares, strengths)
    torch.testing.assert_close(found.weights[0], -found.weights[1], atol=2e-3, rtol=0)
    again = sparse_logistic.fit(x, labels, shares, strengths, start=found)
    torch.testing.assert_close(again.weights, found.weights, atol=2e-3, rtol=0)


def test_constant_columns_are_never_selected_and_one_class_is_refused() -> None:
    x, y = made()
    x[:, 5] = 3.0
    shares, strengths = torch.ones(1, len(x), dtype=torch.double), torch.ones(1, dtype=torch.double)
    found = sparse_logistic.fit(x, y, shares, strengths)
    assert found.weights[0, 5] == 0
    assert found.weights.isfinite().all()
    with pytest.raises(ValueError, match="rows of one class only"):
        sparse_logistic.fit(x, torch.ones(len(x), dtype=torch.bool), shares, strengths)


def test_a_problem_uses_only_the_columns_that_it_may() -> None:
    """As if the others were not there, though all problems share the rows."""
    x, y = made()
    allowed = torch.zeros(2, x.shape[1], dtype=torch.bool)
    allowed[0, [0, 3, 8]], allowed[1, [1, 7]] = True, True
    shares, strengths = torch.ones(2, len(x), dtype=torch.double), torch.full((2,), 0.1, dtype=torch.double)
    found = sparse_logistic.fit(x, y, shares, strengths, columns=allowed)
    assert (found.weights[~allowed] == 0).all()
    for problem, columns in enumerate(([0, 3, 8], [1, 7])):
        alone = sparse_logistic.fit(x[:, columns], y, shares[:1], strengths[:1])
        torch.testing.assert_close(found.weights[problem, columns], alone.weights[0], atol=2e-3, rtol=0)


def test_single_precision_of_standardised_columns_keeps_the_same_columns() -> None:
    x, y = made()
    far = x.numpy() * 3 + 1e4  # a mean that single precision alone would not survive
    shares, strengths = torch.ones(3, len(x)), torch.tensor([0.01, 0.05, 0.5])
    single = sparse_logistic.fit(sparse_logistic.standardised(far), y, shares, strengths)
    double = sparse_logistic.fit(x, y, shares.double(), strengths.double())
    torch.testing.assert_close(single.weights.double(), double.weights, atol=5e-3, rtol=0)
