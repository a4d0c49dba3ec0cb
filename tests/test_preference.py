"""Best-of-n and tilting, against enumeration of a distribution with few outcomes."""

from itertools import product

import numpy as np
import pytest

from interp_core import preference
from interp_core.preference import levels

P = np.array([0.4, 0.3, 0.2, 0.1])  # of four outcomes
R = np.array([1.0, 0.0, 1.0, 3.0])  # two of them have the same reward
COUNTS = (4000 * P).astype(int)
POOL = np.repeat(R, COUNTS)


def enumerated(n: int) -> np.ndarray:
    """The probability of each outcome as the best of n, by going through all draws; ties are shared."""
    found = np.zeros(4)
    for draw in product(range(4), repeat=n):
        best = [outcome for outcome in draw if R[outcome] == R[list(draw)].max()]
        for outcome in best:
            found[outcome] += np.prod(P[list(draw)]) / len(best)
    return found


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_best_of_n_is_what_enumeration_gives(n: int) -> None:
    exact = enumerated(n)
    pool = levels(POOL)
    by_level = [exact[reward == R].sum() for reward in pool.rewards]
    np.testing.assert_allclose(preference.best_of(pool.shares, n), by_level, atol=1e-12)
    row = preference.frontier(POOL, 0, (n,)).iloc[0]
    assert row.reward == pytest.approx(float(exact @ R), abs=1e-12)
    assert row.kl == pytest.approx(float((exact * np.log(exact / P)).sum()), abs=1e-12)
    weights = preference.weights_of_best(pool, n)
    assert weights.sum() == pytest.approx(1)
    assert weights[POOL == 3].sum() == pytest.approx(exact[3], abs=1e-12)


@pytest.mark.parametrize("n", [2, 8, 64])
def test_the_bound_holds_and_is_reached_where_there_are_no_ties(n: int) -> None:
    tied = preference.frontier(POOL, 0, (n,)).iloc[0]
    assert tied.kl < tied.bound - 0.04
    fine = preference.frontier(np.random.default_rng(0).normal(size=20_000), 0, (n,)).iloc[0]
    assert fine.kl == pytest.approx(fine.bound, abs=0.01)
    assert fine.kl <= fine.bound


@pytest.mark.parametrize("beta", [0.3, 1.0, 5.0])
def test_tilting_is_the_optimum(beta: float) -> None:
    """Against the closed form, and against every small step away from it."""
    weights = preference.tilted_weights(POOL, beta)
    found = np.array([weights[POOL == 1].sum(), weights[POOL == 0].sum(), weights[POOL == 3].sum()])
    exact = P * np.exp(R / beta)
    exact /= exact.sum()
    np.testing.assert_allclose(found, [exact[0] + exact[2], exact[1], exact[3]], atol=1e-12)

    def value(q: np.ndarray) -> float:
        return float(q @ R - beta * (q * np.log(q / P)).sum())

    rng = np.random.default_rng(0)
    for _ in range(50):
        other = np.abs(exact + 0.02 * rng.normal(size=4)) + 1e-9
        assert value(other / other.sum()) <= value(exact) + 1e-12


def test_no_best_of_n_passes_the_frontier() -> None:
    rewards = np.random.default_rng(1).poisson(2.0, 8192).astype(float)
    tilted = preference.tilting(rewards)
    best = preference.frontier(rewards, 0)
    assert (np.diff(tilted.reward) > 0).all()
    assert (np.diff(tilted.kl) > 0).all()
    at_same_cost = np.interp(best.kl[1:10], tilted.kl, tilted.reward)
    assert (at_same_cost >= best.reward[1:10] - 1e-3).all()
    assert tilted.trusted.iloc[0]
    assert tilted.effective.iloc[0] > 0.9 * len(rewards)
    assert not preference.tilting(np.ones(99)).size


def test_intervals_cover_what_a_large_pool_gives() -> None:
    rng = np.random.default_rng(2)
    truth = float(preference.frontier(rng.poisson(2.0, 400_000).astype(float), 0, (16,)).reward.iloc[0])
    covered = 0
    for seed in range(40):
        row = preference.frontier(rng.poisson(2.0, 1024).astype(float), seed, (16,)).iloc[0]
        covered += row.reward_low <= truth <= row.reward_high
    assert covered >= 34


def test_the_price_is_entropy_and_sameness() -> None:
    texts = ["aaaa"] * 500 + ["".join(chr(97 + (7 * i + j * j) % 26) for j in range(4)) for i in range(500)]
    log_p = np.log(np.full(1000, 1 / 1000))
    even = np.full(1000, 1 / 1000)
    narrow = np.where(np.arange(1000) < 500, 1 / 500, 0.0)
    entropy, distinct = preference.diversity(texts, log_p, even, 0)
    assert entropy == pytest.approx(np.log(1000))
    less, same = preference.diversity(texts, log_p, narrow, 0)
    assert less == pytest.approx(np.log(500))
    assert same < distinct / 4


def test_what_the_preferred_have_in_common_is_named() -> None:
    rng = np.random.default_rng(3)
    typical = ["".join(rng.choice(list("abcde"), 40)) for _ in range(300)]
    preferred = [text[:20] + "zap" + text[23:] for text in typical[:100]]
    found = preference.overused(preferred, typical[100:])
    assert found.gram.iloc[0] == "zap"
    assert found.preferred.iloc[0] == 100
    assert found.typical.iloc[0] == 0
    control = preference.overused(typical[:100], typical[100:])
    assert control.z.max() < 4.5 < found.z.iloc[0]


def test_bad_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="best of 0"):
        preference.best_of(P, 0)
    with pytest.raises(ValueError, match="positive"):
        preference.tilted_weights(POOL, 0.0)
    with pytest.raises(ValueError, match="finite"):
        levels(np.array([1.0, np.nan]))
