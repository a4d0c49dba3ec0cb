"""Probes and stability selection against planted neurons, scikit-learn's figures, and noise."""

import numpy as np
import pandas as pd
import pytest
import torch

from interp_core import probing, sparse_logistic
from interp_core.model import forward, token_losses
from interp_core.probing import Subsampling
from tests.conftest import SMALL, random_model, random_tokens

WINDOWS, LENGTH = 60, 20


def text(dim: int = 24, seed: int = 0, told: tuple[int, ...] = (3, 7, 11)) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of noise; the label depends on the columns `told`."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(WINDOWS * LENGTH, dim))
    logits = 2.5 * rows[:, list(told)].sum(1) if told else np.zeros(len(rows))
    positive = rng.random(len(rows)) < 1 / (1 + np.exp(-logits))
    return rows, positive, np.repeat(np.arange(WINDOWS), LENGTH)


def test_planted_neurons_come_out_and_the_bound_is_kept() -> None:
    rows, positive, windows = text()
    found = probing.stability(rows, positive, windows, strengths=(0.01, 0.03), how=Subsampling(40))
    assert list(found.selected(1, 0.8)) == [3, 7, 11]
    bound = found.false_bound(0, 0.8)
    assert bound is not None
    assert bound == pytest.approx(found.kept[0] ** 2 / (0.6 * 24))
    assert found.false_bound(0, 0.5) is None
    assert probing.stability(rows, positive, windows, (0.01,), Subsampling(4, share=0.7)).false_bound(0, 0.8) is None


def test_on_exchangeable_noise_the_bound_holds_over_repetitions() -> None:
    false, bounds = [], []
    for seed in range(12):
        rows, positive, windows = text(seed=seed, told=())
        found = probing.stability(rows, positive, windows, strengths=(0.03,), how=Subsampling(30, seed=seed))
        bound = found.false_bound(0, 0.7)
        assert bound is not None
        false.append(len(found.selected(0, 0.7)))
        bounds.append(bound)
    assert np.mean(false) <= np.mean(bounds)


def test_frequencies_are_those_of_single_fits() -> None:
    """Each subsample solved alone, from nothing, keeps the same neurons."""
    rows, positive, windows = text()
    found = probing.stability(rows, positive, windows, strengths=(0.005, 0.02), how=Subsampling(10, seed=3))
    rng, counts = np.random.default_rng(3), np.zeros(24)
    for _ in range(10):
        taken = np.isin(windows, rng.permutation(WINDOWS)[: WINDOWS // 2])
        shares = torch.from_numpy(taken.astype(float))[None]
        one = sparse_logistic.fit(
            torch.from_numpy(rows), torch.from_numpy(positive), shares, torch.tensor([0.02], dtype=torch.double)
        )
        counts += (one.weights[0] != 0).numpy()
    assert np.abs(found.frequencies[1] - counts / 10).max() <= 0.1


def test_complementary_pairs_are_the_two_halves_of_a_split(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, positive, windows = text()
    seen: list[torch.Tensor] = []
    whole = sparse_logistic.fit

    def watch(rows, positive, shares, *rest, **more):
        seen.append(shares)
        return whole(rows, positive, shares, *rest, **more)

    monkeypatch.setattr(sparse_logistic, "fit", watch)
    probing.stability(rows, positive, windows, (0.02,), Subsampling(6, pairs=True))
    assert torch.equal(seen[0][0::2] + seen[0][1::2], torch.ones(3, len(rows), dtype=torch.double))


def test_the_path_is_judged_on_folds_that_it_did_not_see() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rows, positive, windows = text()
    found = probing.path(rows, positive, windows, strengths=(0.003, 0.02, 0.3))
    for i, row in enumerate(found.table.to_dict("records")):
        logits = found.logits[:, i]
        assert row["accuracy"] == pytest.approx(metrics.accuracy_score(positive, logits > 0))
        assert row["balanced_accuracy"] == pytest.approx(metrics.balanced_accuracy_score(positive, logits > 0))
        assert row["auc"] == pytest.approx(metrics.roc_auc_score(positive, logits), abs=1e-9)
        assert row["auc_low"] < row["auc"] < row["auc_high"], (
            "where no neuron is kept, folds differ by their intercepts"
        )
    assert found.table["neurons"].is_monotonic_increasing
    assert (found.weights[1][[3, 7, 11]] != 0).all()
    fold = windows * 5 // WINDOWS
    train = torch.from_numpy((fold != 2).astype(float))[None]
    alone = sparse_logistic.fit(
        torch.from_numpy(rows), torch.from_numpy(positive), train, torch.tensor([0.02], dtype=torch.double)
    )
    by_hand = alone.logits(torch.from_numpy(rows[fold == 2]))[:, 0].numpy()
    np.testing.assert_allclose(found.logits[fold == 2, 1], by_hand, atol=0.02)
    assert found.majority == max(positive.mean(), 1 - positive.mean())


def test_labels_of_the_window_alone_are_at_chance() -> None:
    """The leak closed: a window that is known by its rows is of no use to folds of other windows."""
    rng = np.random.default_rng(0)
    windows = np.repeat(np.arange(WINDOWS), LENGTH)
    rows = rng.normal(size=(WINDOWS, 24))[windows] + 0.1 * rng.normal(size=(len(windows), 24))
    positive = (rng.random(WINDOWS) < 0.5)[windows]
    found = probing.path(rows, positive, windows, strengths=(0.1,))
    assert found.table["auc_low"][0] < 0.5 < found.table["auc_high"][0] + 0.1
    mixed = rng.permutation(len(windows)) % WINDOWS
    assert probing.path(rows, positive, mixed, strengths=(0.1,)).table["auc"][0] > 0.7


def test_the_control_task_depends_on_the_token_alone_and_the_surface_is_what_was_read() -> None:
    tokens = np.random.default_rng(0).integers(0, 50, 5000)
    labels = probing.control_task(tokens, 0.3, seed=1)
    assert all(len(set(labels[tokens == t].tolist())) == 1 for t in range(50))
    assert labels.mean() == pytest.approx(0.3, abs=0.2)
    windows = np.array([[4, 1, 3], [0, 0, 2]])
    seen = probing.surface(windows, d_vocab=5, back=2)
    assert seen.shape == (6, 2 * 5 + 3)
    third = seen[2]
    assert np.flatnonzero(third).tolist() == [3, 5 + 1, 10 + 2]  # the token 3, before it 1, at the third place
    assert np.flatnonzero(seen[3]).tolist() == [0, 10]  # nothing is before the first token of a window


@pytest.mark.slow
def test_frequencies_are_within_three_hundredths_of_scikit_learns() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    rows, positive, windows = text(dim=16)
    found = probing.stability(rows, positive, windows, strengths=(0.12,), how=Subsampling(100, seed=5))
    rng, counts = np.random.default_rng(5), np.zeros(16)
    for _ in range(100):
        kept = np.isin(windows, rng.permutation(WINDOWS)[: WINDOWS // 2])
        scaled = (rows[kept] - rows[kept].mean(0)) / rows[kept].std(0)
        model = linear_model.LogisticRegression(l1_ratio=1.0, C=0.12, solver="saga", tol=1e-5, max_iter=5000)
        counts += model.fit(scaled, positive[kept]).coef_[0] != 0
    assert np.abs(found.frequencies[0] - counts / 100).max() <= 0.03
    assert 3 < found.kept[0] < 16, "a comparison in which something is undecided"


def test_neurons_chosen_by_their_means_beat_random_ones_and_are_chosen_in_the_training_fold() -> None:
    rows, positive, windows = text()
    table = probing.ranked(rows, positive, windows, sizes=(1, 3, 24))
    auc = table.set_index(["neurons", "chosen"])["auc"]
    assert auc[3, "mean difference"] > auc[3, "random"] + 0.15
    assert auc[3, "mean difference"] > auc[1, "mean difference"]
    assert auc[24, "mean difference"] == pytest.approx(auc[24, "random"], abs=0.01), "all neurons are all neurons"
    noise, labels, blocks = text(dim=1000, told=(), seed=4)
    honest = probing.ranked(noise, labels, blocks, sizes=(10,)).set_index("chosen").loc["mean difference", "auc"]
    leaky = noise[:, probing._apart(noise, labels).argsort()[::-1][:10].copy()]
    assert honest < 0.55 < probing.ranked(leaky, labels, blocks, sizes=(10,))["auc"].min()


def test_the_elbow_is_the_smallest_within_one_standard_error() -> None:
    table = pd.DataFrame({"neurons": [1, 3, 9, 40], "auc": [0.6, 0.88, 0.9, 0.905]})
    table = table.assign(auc_low=table["auc"] - 0.0196, auc_high=table["auc"] + 0.0196)
    assert probing.elbow(table) == 9
    wide = table.assign(auc_low=table["auc"] - 0.06, auc_high=table["auc"] + 0.06)
    assert probing.elbow(wide) == 3


def test_ablating_neurons_costs_what_a_forward_pass_by_hand_says() -> None:
    model, windows = random_model(), random_tokens(batch=12, length=SMALL.context + 1)
    belongs = np.random.default_rng(0).random((12, SMALL.context)) < 0.4
    cost, rest = probing.ablate(model, windows, belongs, "mlp_post.1", [2, 5])
    trace = forward(model, windows[:, :-1], taps=("mlp_post.1",))
    mean = trace["mlp_post.1"].mean((0, 1))

    def edit(x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[..., [2, 5]] = mean[[2, 5]]
        return x

    added = (token_losses(model, windows, {"mlp_post.1": edit}) - token_losses(model, windows)).numpy()
    both = belongs.any(1) & ~belongs.all(1)
    for found, mask in ((cost, belongs), (rest, ~belongs)):
        by_hand = np.mean([row[m].mean() for row, m in zip(added[both], mask[both], strict=True)])
        assert found.estimate == pytest.approx(by_hand, abs=1e-5)
        assert found.low < found.estimate < found.high
    nothing, _ = probing.ablate(model, windows, belongs, "mlp_post.1", [])
    assert nothing.estimate == pytest.approx(0, abs=1e-6)
    with pytest.raises(ValueError, match="fewer than two windows have tokens of both kinds"):
        probing.ablate(model, windows, np.zeros_like(belongs), "mlp_post.1", [1])
    heads, _ = probing.ablate(model, windows, belongs, "z.0", [3])
    assert np.isfinite(heads.estimate)
