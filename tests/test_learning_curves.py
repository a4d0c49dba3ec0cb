"""Curves whose story is known are judged by it."""

import numpy as np
import pytest

from interp_core import learning_curves, lessons
from interp_core.learning_curves import Guidance

STEPS, WINDOWS = 1000, 40
AT = np.arange(10, STEPS + 1, 10)


def told(training: np.ndarray, validation: np.ndarray, noise: float = 0.02) -> learning_curves.Curves:
    """Curves with these means; windows differ among themselves, and a little from step to step."""
    rng = np.random.default_rng(0)
    windows = rng.normal(0, 0.3, WINDOWS)
    records = []
    for step, train, valid in zip(AT, training, validation, strict=False):
        wobble = rng.normal(0, noise, (2, WINDOWS))
        values = [windows - windows.mean() + mean + w for mean, w in zip((train, valid), wobble, strict=True)]
        records.append(
            {
                "step": int(step),
                "seconds": step / 10,
                "loss": train + 0.1,
                "training_windows": values[0],
                "validation_windows": values[1],
            }
        )
    curves = learning_curves.read(records)
    assert curves is not None
    return curves


def judged(curves: learning_curves.Curves, fresh: bool = False, bigram: float = 2.5) -> Guidance:
    known = {"uniform": np.full(WINDOWS, 4.0), "bigram counts": np.full(WINDOWS, bigram)}
    return learning_curves.judge(curves, known, STEPS, fresh)


def falling(to: float, speed: float = 4.0) -> np.ndarray:
    return to + (4 - to) * np.exp(-speed * AT / STEPS)


def test_no_records_no_curves() -> None:
    assert learning_curves.read([]) is None


def test_the_table_has_means_and_intervals() -> None:
    curves = told(falling(1.2), falling(1.5))
    row = curves.table.iloc[-1]
    assert row["step"] == STEPS
    assert row["validation_loss"] == pytest.approx(curves.validation[-1].mean())
    assert row["validation_loss_low"] < row["validation_loss"] < row["validation_loss_high"]
    half = 1.96 * curves.training[-1].std(ddof=1) / np.sqrt(WINDOWS)
    assert row["training_loss_high"] - row["training_loss"] == pytest.approx(half, rel=0.15)


def test_too_early() -> None:
    assert judged(told(falling(1.5)[:9], falling(1.5)[:9])).kind == "early"


def test_learning_while_it_runs_and_underfitted_when_it_ends_like_that() -> None:
    valid, half = falling(1.5, speed=2), STEPS // 20
    found = judged(told(valid[:half] - 0.05, valid[:half]))
    assert found.kind == "learning"
    assert "still falls" in found.advice
    flat = np.full(half, 1.5)
    found = judged(told(flat - 0.05, flat, noise=0.2))
    assert (found.kind, "too little to tell" in found.advice) == ("learning", True)
    assert "levelled off" not in found.advice
    found = judged(told(valid - 0.05, valid))
    assert found.kind == "underfitted"
    assert "0.05 nats below it" in found.advice


def test_fits_when_it_has_levelled_off() -> None:
    valid = falling(1.5, speed=30)
    found = judged(told(valid - 0.1, valid))
    assert found.kind == "fits"
    assert "levelled off" in found.advice
    assert "cannot be told" in judged(told(valid - 0.1, valid, noise=0.3)).advice
    assert "1.00 ±0." in found.headline
    assert "nats better than bigram counts" in found.headline
    assert "by heart" in judged(told(valid - 0.4, valid)).advice
    assert "by heart" not in judged(told(valid - 0.4, valid), fresh=True).advice


def test_overfitted_from_where_the_validation_loss_turned() -> None:
    training = falling(0.8)
    valid = np.where(AT < 400, falling(1.4, 6), falling(1.4, 6)[39] + (AT - 400) / 2000)
    found = judged(told(training, valid))
    assert found.kind == "overfitted"
    turned = int(found.headline.split()[-1].replace(",", ""))
    assert abs(turned - 400) <= 60
    assert "risen by 0.30" in found.advice or "risen by 0.29" in found.advice
    assert judged(told(training, valid), fresh=True).kind != "overfitted", "fresh sequences cannot be learned by heart"
    assert judged(told(training[::-1] + 1, valid)).kind != "overfitted", "only while the training loss falls"


def test_noise_alone_is_not_overfitting() -> None:
    flat = np.full(len(AT), 1.5)
    kinds = [judged(told(flat - 0.001 * AT / STEPS, flat, noise=noise)).kind for noise in (0.01, 0.1, 0.3)]
    assert kinds == ["fits"] * 3


def test_no_better_than_counting() -> None:
    flat = np.full(len(AT), 2.5)
    found = judged(told(flat, flat))
    assert (found.kind, found.headline) == ("not learning", "not better than bigram counts")
    assert judged(told(flat + 2, flat + 2), bigram=5.0).headline == "not better than uniform"


def test_references_are_the_counts_on_the_same_windows() -> None:
    text = lessons.of_text("ab", "ab" * 3000, 12)
    known = learning_curves.references(text)
    assert list(known) == ["uniform", "unigram counts", "bigram counts"]
    assert known["uniform"] == pytest.approx(np.full(len(text.validation), np.log(2)))
    assert known["unigram counts"].mean() == pytest.approx(np.log(2), abs=1e-3)
    assert known["bigram counts"].mean() < 0.01
    assert learning_curves.to_beat(known) == "bigram counts"


def test_references_of_fresh_sequences_know_the_window_so_far() -> None:
    known = {
        name: values.mean()
        for name, values in learning_curves.references(lessons.of_sequences("successors", 65, 64)).items()
    }
    assert known["pairs so far"] < known["tokens so far"] - 0.3 < known["uniform"] - 0.8
    drawn = {
        name: values.mean()
        for name, values in learning_curves.references(lessons.of_sequences("alphabet", 65, 64)).items()
    }
    assert abs(drawn["pairs so far"] - drawn["tokens so far"]) < 0.05, "order tells nothing there"
    assert learning_curves.to_beat(learning_curves.references(lessons.of_sequences("repeats", 9, 12))) != "pairs so far"
