import numpy as np
import pytest
from scipy import stats

from interp_core.statistics import Interval, block_folds, bootstrap_means, interval, mean_interval, upper_bound


def test_draws_have_the_mean_and_the_standard_error_of_the_sample() -> None:
    values = np.random.default_rng(0).normal(3.0, 2.0, size=(40, 2))
    means = bootstrap_means(values, seed=1, draws=20_000)
    np.testing.assert_allclose(means.mean(0), values.mean(0), atol=0.01)
    np.testing.assert_allclose(means.std(0), values.std(0) / np.sqrt(40), rtol=0.03)


def test_statistics_of_one_cluster_stay_paired() -> None:
    values = np.random.default_rng(0).normal(size=(20, 1))
    means = bootstrap_means(np.concatenate([values, 2 * values + 1], axis=1), seed=0)
    np.testing.assert_allclose(means[:, 1], 2 * means[:, 0] + 1)


def test_equal_arguments_give_equal_intervals() -> None:
    values = np.random.default_rng(0).normal(size=30)
    assert interval(values, seed=4) == interval(values, seed=4)
    assert interval(values, seed=4) != interval(values, seed=5)


def test_an_interval_of_a_constant_is_the_constant() -> None:
    found = interval(np.full(10, 0.25), seed=0)
    assert (found.estimate, found.low, found.high) == pytest.approx((0.25, 0.25, 0.25))
    assert Interval(0.5, 0.25, 1.0).half_width == 0.375


@pytest.mark.parametrize("clusters", [2, 4, 8, 12, 32])
def test_an_interval_covers_as_often_as_it_says(clusters: int) -> None:
    """600 samples of a population: 95% must cover its mean, give or take what 600 trials allow."""
    samples = np.random.default_rng(clusters).normal(4.0, 2.0, size=(clusters, 600))
    _, low, high = mean_interval(samples, seed=0)
    covered = int(((low <= 4.0) & (high >= 4.0)).sum())
    assert stats.binomtest(covered, 600, 0.95).pvalue > 1e-3, covered


@pytest.mark.parametrize("clusters", [4, 12, 40])
def test_an_upper_bound_is_above_the_mean_as_often_as_it_says(clusters: int) -> None:
    samples = np.random.default_rng(clusters).normal(0.0, 1.0, size=(600, clusters))
    above = sum(upper_bound(values, seed) >= 0 for seed, values in enumerate(samples))
    assert stats.binomtest(above, 600, 0.95).pvalue > 1e-3, above


def test_a_plain_percentile_interval_would_be_too_narrow() -> None:
    """What the expansion is for: with 8 clusters, plain percentiles fail the test above."""
    samples = np.random.default_rng(8).normal(4.0, 2.0, size=(8, 400))
    low, high = np.quantile(bootstrap_means(samples, seed=0), [0.025, 0.975], axis=0)
    covered = ((low <= 4.0) & (high >= 4.0)).sum()
    assert covered < 365


def test_one_cluster_has_no_interval() -> None:
    with pytest.raises(ValueError, match="needs at least 2 windows"):
        interval(np.ones(1), seed=0)


def test_folds_are_runs_of_neighbouring_windows_of_equal_number() -> None:
    windows = np.repeat(np.arange(10), 3)
    folds = block_folds(windows, 5)
    assert folds.reshape(10, 3).tolist() == [[w // 2] * 3 for w in range(10)]
