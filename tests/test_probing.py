"""Probes against planted neurons, fits and forward passes by hand, and noise."""

import numpy as np
import pandas as pd
import pytest
import torch

from interp_core import classification, probing, sparse_logistic
from interp_core.model import forward, token_losses
from tests.conftest import SMALL, random_model, random_tokens
from tests.planted import LENGTH, WINDOWS, text


def test_the_path_is_judged_on_folds_that_it_did_not_see() -> None:
    rows, positive, windows = text()
    found = probing.path(rows, positive, windows, strengths=(0.01, 0.02, 0.3))
    fold = windows * 5 // WINDOWS
    again = classification.figures(found.logits, np.repeat(positive[:, None], 3, 1), fold)
    for name in classification.FIGURES:
        np.testing.assert_allclose(found.table[probing.column(name)], again[name])
    assert (found.table["auc_low"] < found.table["auc"]).all()
    assert (found.table["auc"] < found.table["auc_high"]).all()
    assert found.table["neurons"].is_monotonic_increasing
    assert (found.weights[1][[3, 7, 11]] != 0).all()
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
    assert probing.elbow(table) == 2
    wide = table.assign(auc_low=table["auc"] - 0.06, auc_high=table["auc"] + 0.06)
    assert probing.elbow(wide) == 1


def test_the_verdict_tells_a_few_neurons_from_many() -> None:
    rows, positive, windows = text(dim=60)
    sizes = (1, 2, 4, 8, 16, 32, 60)
    few = probing.path(rows, positive, windows)
    assert few.neurons[probing.elbow(few.table)] <= 6
    assert probing.is_concentrated(few.table, probing.ranked(rows, positive, windows, sizes), 60)
    mixed = rows @ np.linalg.qr(np.random.default_rng(1).normal(size=(60, 60)))[0]  # the same, spread over all
    many = probing.path(mixed, positive, windows)
    assert not probing.is_concentrated(many.table, probing.ranked(mixed, positive, windows, sizes), 60)
    copies = rows[:, [3] * 60] + 0.01 * np.random.default_rng(2).normal(size=rows.shape)  # few do, but any few
    same = probing.path(copies, positive, windows)
    assert not probing.is_concentrated(same.table, probing.ranked(copies, positive, windows, sizes), 60)


def test_ablating_neurons_costs_what_a_forward_pass_by_hand_says() -> None:
    model, windows = random_model(), random_tokens(batch=12, length=SMALL.context + 1)
    belongs = np.random.default_rng(0).random((12, SMALL.context)) < 0.4
    masks = (belongs, ~belongs)
    given = probing.ablate(model, windows, masks, "mlp_post.1", [2, 5], sets=3)
    trace = forward(model, windows[:, :-1], taps=("mlp_post.1",))
    mean = trace["mlp_post.1"].mean((0, 1))

    def added(neurons: list[int]) -> np.ndarray:
        def edit(x: torch.Tensor) -> torch.Tensor:
            x = x.clone()
            x[..., neurons] = mean[neurons]
            return x

        return (token_losses(model, windows, {"mlp_post.1": edit}) - token_losses(model, windows)).numpy()

    both = belongs.any(1) & ~belongs.all(1)
    for found, mask in ((given.positive, belongs), (given.negative, ~belongs)):
        by_hand = np.mean([row[m].mean() for row, m in zip(added([2, 5])[both], mask[both], strict=True)])
        assert found.estimate == pytest.approx(by_hand, abs=1e-5)
        assert found.low < found.estimate < found.high
    rng = np.random.default_rng(0)
    for row in given.random:
        drawn = added(rng.permutation(len(mean))[:2].tolist())[both]
        for value, mask in zip(row, masks, strict=True):
            by_hand = np.mean([r[m].mean() for r, m in zip(drawn, mask[both], strict=True)])
            assert value == pytest.approx(by_hand, abs=1e-5)
    assert given.over_random.estimate == pytest.approx(given.positive.estimate - given.random[:, 0].mean())
    nothing = probing.ablate(model, windows, masks, "mlp_post.1", [], sets=1)
    assert nothing.positive.estimate == pytest.approx(0, abs=1e-6)
    with pytest.raises(ValueError, match="fewer than two windows have tokens of both kinds"):
        probing.ablate(model, windows, (np.zeros_like(belongs), belongs), "mlp_post.1", [1])
    assert np.isfinite(probing.ablate(model, windows, masks, "z.0", [3], sets=1).positive.estimate)
