"""Controls of probes: nothing is found where nothing is, and what is on the surface is found there."""

import numpy as np
import pytest

from interp_core import probe_controls, probing
from tests.planted import text


def test_shifted_labels_are_at_chance_and_planted_ones_are_not_among_them() -> None:
    rows, positive, windows = text()
    null = probe_controls.null(rows, positive, windows, strengths=(0.01, 0.03))
    found = probing.path(rows, positive, windows, strengths=(0.01, 0.03))
    assert null.figures["AUC"].shape == (probe_controls.SHIFTS, 2)
    assert null.figures["AUC"].mean(0) == pytest.approx(0.5, abs=0.02)
    for place, judged in enumerate(found.judged):
        assert null.p_value("AUC", place, judged.figure("AUC").estimate) == pytest.approx(1 / 21)
    assert null.p_value("AUC", 1, 0.0) == 1


def test_p_values_of_noise_are_spread_evenly() -> None:
    values = []
    for seed in range(30):
        rows, positive, windows = text(seed=seed, told=(), dim=6)
        null = probe_controls.null(rows, positive, windows, (0.05,), seed=1000 * seed)
        found = probing.path(rows, positive, windows, (0.05,)).judged[0].figure("AUC").estimate
        values.append(null.p_value("AUC", 0, found))
    assert 0.35 < np.mean(values) < 0.65
    assert np.mean(np.array(values) <= 0.1) < 0.25


def test_the_control_task_depends_on_the_token_alone_and_keeps_the_share() -> None:
    tokens = np.random.default_rng(0).zipf(1.5, 5000) % 60
    positive = np.random.default_rng(1).random(5000) < 0.3
    labels = probe_controls.control_task(tokens, positive, seed=1)
    assert all(len(set(labels[tokens == t].tolist())) == 1 for t in range(60) if (tokens == t).any())
    assert 0.25 < labels.mean() <= positive.mean()
    assert not np.array_equal(labels, probe_controls.control_task(tokens, positive, seed=2))


def test_the_surface_is_what_was_read() -> None:
    windows = np.array([[4, 1, 3], [1, 1, 3], [4, 3, 1]] * 10)
    seen = probe_controls.surface(windows, back=2)
    assert seen.shape == (90, 2 * 3 + 3)  # the tokens 1, 3 and 4, twice; three places
    assert np.flatnonzero(seen[2]).tolist() == [0, 3 + 1, 6 + 2]  # before it 1, here 3, at the third place
    assert np.flatnonzero(seen[3]).tolist() == [3, 6]  # nothing is before the first token of a window
    rare = windows.copy()
    rare[0, 0] = 9
    assert probe_controls.surface(rare, back=2).shape == seen.shape, "a token that occurs once has no column"


def test_what_the_last_tokens_tell_is_found_on_the_surface_alone() -> None:
    rng = np.random.default_rng(0)
    read = rng.integers(0, 8, (40, 16))
    windows = np.repeat(np.arange(40), 16)
    before = np.concatenate([np.zeros((40, 1), dtype=int), read[:, :-1]], axis=1)
    positive = (before == 3).ravel()
    told = probing.path(probe_controls.surface(read), positive, windows, (0.1,)).judged[0].figure("AUC")
    assert told.low > 0.99
    blind = probing.path(probe_controls.surface(read, back=1), positive, windows, (0.1,)).judged[0].figure("AUC")
    assert blind.estimate < 0.6
