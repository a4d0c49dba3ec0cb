"""GED against numpy, planted sources, and a null that is one."""

import numpy as np
import pytest
import torch

from interp_core import components, ged, head_scores
from interp_core.ged import TooFew
from interp_core.statistics import shift_labels
from tests.conftest import random_model

WINDOWS, LENGTH = 64, 16


def text(dim: int = 12, share: float = 0.3, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of mixed noise, labels in runs, windows."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(WINDOWS * LENGTH, dim)) @ rng.normal(size=(dim, dim))
    runs = rng.random(WINDOWS * LENGTH // 4) < share
    return rows, np.repeat(runs, 4), np.repeat(np.arange(WINDOWS), LENGTH)


def planted(size: float = 3.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The same, with a source in the category: rows, labels, windows, the source."""
    rows, positive, windows = text(seed=seed)
    rng = np.random.default_rng(seed + 1)
    source = np.where(positive, size * rng.normal(size=len(rows)), 0.0)
    return rows + np.outer(source, rng.normal(size=rows.shape[1])), positive, windows, source


def test_identities_and_numpys_eigenvalues() -> None:
    rows, positive, _ = text()
    a, b = rows[positive], rows[~positive]
    found = ged.decompose(a, b, shrinkage=0.0)
    of_a, of_b = np.cov(a, rowvar=False), np.cov(b, rowvar=False)
    w = found.vectors
    np.testing.assert_allclose(w.T @ of_b @ w, np.eye(12), atol=1e-9)
    np.testing.assert_allclose(w.T @ of_a @ w, np.diag(found.ratios), atol=1e-9)
    by_numpy = np.sort(np.linalg.eigvals(np.linalg.solve(of_b, of_a)).real)[::-1]
    np.testing.assert_allclose(found.ratios, by_numpy, rtol=1e-9)
    assert ((a.mean(0) - b.mean(0)) @ w >= 0).all()
    assert found.condition_before == pytest.approx(np.linalg.cond(of_b), rel=1e-6)


def test_shrinkage_is_a_share_of_the_mean_variance_and_lowers_the_condition() -> None:
    rows, positive, _ = text()
    a, b = rows[positive], rows[~positive]
    of_b = np.cov(b, rowvar=False)
    shrunk = 0.8 * of_b + 0.2 * np.trace(of_b) / 12 * np.eye(12)
    found = ged.decompose(a, b, shrinkage=0.2)
    np.testing.assert_allclose(found.vectors.T @ shrunk @ found.vectors, np.eye(12), atol=1e-9)
    assert found.condition_after == pytest.approx(np.linalg.cond(shrunk), rel=1e-6)
    assert found.condition_after < found.condition_before


def test_linear_mixing_changes_nothing_without_shrinkage() -> None:
    rows, positive, windows = text()
    mixed = rows @ (np.eye(12) + 0.5 * np.random.default_rng(5).normal(size=(12, 12)) / 12**0.5) + 3.0
    one, two = (ged.decompose(x[positive], x[~positive], 0.0).ratios for x in (rows, mixed))
    np.testing.assert_allclose(one, two, rtol=1e-6)
    held = [ged.cross_validate(x, positive, windows, shrinkage=0.0).ratio.estimate for x in (rows, mixed)]
    assert held[0] == pytest.approx(held[1], rel=1e-4)


def test_a_planted_source_is_recovered_and_holds_out_of_sample() -> None:
    rows, positive, windows, source = planted()
    scores, null = (
        ged.cross_validate(rows, positive, windows),
        ged.null(rows, positive, windows, draws=40)[ged.SHRINKAGE],
    )
    assert abs(np.corrcoef(scores.values[positive], source[positive])[0, 1]) > 0.95
    assert scores.ratio.low > np.quantile(null.ratios, 0.975)
    assert null.p_value(scores)[0] == pytest.approx(1 / 41)
    assert scores.separation.low < 0 < scores.separation.high, "the means do not differ, and that is said"
    assert scores.ratio.estimate < scores.ratio_in_sample * 1.05
    pattern = components.forward_pattern(rows[positive], scores.directions.mean(0))
    mixing = np.linalg.lstsq(source[positive][:, None], rows[positive], rcond=None)[0][0]
    assert abs(np.corrcoef(pattern, mixing)[0, 1]) > 0.95


def test_a_planted_difference_of_means_is_lda_s_to_find() -> None:
    rows, positive, windows = text()
    axis = np.random.default_rng(3).normal(size=12)
    rows = rows + np.outer(positive, axis)
    found = {method: ged.cross_validate(rows, positive, windows, method=method) for method in ged.METHODS}
    assert found["LDA"].separation.low > 0
    assert found["LDA"].separation.estimate > found["mean difference"].separation.estimate


def test_the_separation_has_the_sign_of_the_training_folds() -> None:
    """A difference of means that turns round in half of the text must not look like one."""
    rows, positive, windows = text()
    side = np.where(windows < WINDOWS // 2, 1.0, -1.0)
    rows = rows + np.outer(positive * side, 5 * np.ones(12))
    assert ged.cross_validate(rows, positive, windows, method="mean difference").separation.estimate < 0.05


def test_held_out_projections_come_from_directions_that_did_not_see_them() -> None:
    rows, positive, windows, _ = planted()
    scores = ged.cross_validate(rows, positive, windows)
    fold = windows * 5 // WINDOWS
    for f in range(5):
        train = fold != f
        by_hand = ged.decompose(rows[train & positive], rows[train & ~positive]).vectors[:, 0]
        cosine = by_hand @ scores.directions[f] / np.linalg.norm(by_hand) / np.linalg.norm(scores.directions[f])
        assert abs(cosine) == pytest.approx(1, abs=1e-6)
    a, b = scores.values[positive], scores.values[~positive]
    plain = ged.cross_validate(rows, positive, windows, shrinkage=1e-9)
    a0, b0 = plain.values[positive], plain.values[~positive]
    assert plain.ratio.estimate == pytest.approx(a0.var() / b0.var(), rel=1e-5)
    floors = [rows[(fold == f) & ~positive].var(0).mean() * (scores.directions[f] ** 2).sum() for f in range(5)]
    shares = [((fold == f) & ~positive).sum() / (~positive).sum() for f in range(5)]
    shrunk = 0.95 * b.var() + 0.05 * np.dot(shares, floors)
    assert scores.ratio.estimate == pytest.approx(a.var() / shrunk, rel=1e-9)
    assert scores.agreement > 0.95


def test_folds_point_the_same_way_whatever_their_signs() -> None:
    """Where the means hardly differ the training splits' signs are a toss; the projections must not be."""
    rows, positive, windows, source = planted(seed=2)
    scores = ged.cross_validate(rows, positive, windows)
    fold = windows * 5 // WINDOWS
    for f in range(5):
        kept = positive & (fold == f)
        first = positive & (fold == 0)
        here, there = (np.corrcoef(scores.values[m], source[m])[0, 1] for m in (kept, first))
        assert here * there > 0.8
    noise, labels, blocks = text(dim=12)
    assert ged.cross_validate(noise, labels, blocks).agreement < 0.9, "folds that find different directions say so"


def test_a_category_in_few_windows_gives_no_interval() -> None:
    rows, _, windows = text()
    rare = np.zeros(len(rows), dtype=bool)
    rare[np.arange(10) * (len(rows) // 10)] = True
    rare[np.arange(10) * (len(rows) // 10) + 1] = True
    with pytest.raises(TooFew, match="one category occurs in 10 windows only, and 12 are the least"):
        ged.cross_validate(rows, rare, windows)


def test_the_null_is_computed_as_the_real_figures_are() -> None:
    rows, positive, windows, _ = planted()
    shifted = shift_labels(positive, windows, seed=7)
    null, direct = (
        ged.null(rows, positive, windows, draws=1, seed=7)[ged.SHRINKAGE],
        ged.cross_validate(rows, shifted, windows),
    )
    assert null.ratios[0] == pytest.approx(direct.ratio.estimate, rel=1e-9)
    assert null.separations[0] == pytest.approx(direct.separation.estimate, rel=1e-6)
    assert null.ratios_in_sample[0] == pytest.approx(direct.ratio_in_sample, rel=1e-9)
    assert null.spectra[0] == pytest.approx(ged.decompose(rows[shifted], rows[~shifted]).ratios, rel=1e-6)


def test_all_shrinkages_see_the_same_draws() -> None:
    rows, positive, windows, _ = planted()
    grid = ged.null(rows, positive, windows, shrinkages=(0.0, 0.05, 0.5), draws=3)
    alone = ged.null(rows, positive, windows, shrinkages=(0.5,), draws=3)
    np.testing.assert_allclose(grid[0.5].ratios, alone[0.5].ratios)
    assert not np.allclose(grid[0.5].ratios, grid[0.05].ratios)


def test_a_shift_keeps_number_and_runs_in_every_window() -> None:
    _, positive, windows = text()
    shifted = shift_labels(positive, windows, 0)
    assert not np.array_equal(shifted, positive)
    for before, after in zip(positive.reshape(WINDOWS, -1), shifted.reshape(WINDOWS, -1), strict=True):
        assert any(np.array_equal(np.roll(before, k), after) for k in range(1, LENGTH))


@pytest.mark.slow
def test_p_values_are_uniform_where_there_is_nothing() -> None:
    found = []
    for seed in range(60):
        rows, positive, windows = text(dim=6, seed=seed)
        found.append(
            ged.null(rows, positive, windows, draws=19, seed=seed)[ged.SHRINKAGE].p_value(
                ged.cross_validate(rows, positive, windows)
            )
        )
    for values in np.array(found).T:
        assert 0.35 < values.mean() < 0.65
        assert (values <= 0.05).mean() <= 0.15
        assert (values <= 0.5).mean() == pytest.approx(0.5, abs=0.2)


def test_labels_that_depend_on_the_window_alone_are_at_chance() -> None:
    """The leak closed: rows of one window never stand on both sides of a split."""
    rng = np.random.default_rng(0)
    windows = np.repeat(np.arange(WINDOWS), LENGTH)
    rows = rng.normal(size=(WINDOWS, 32))[windows] + 0.1 * rng.normal(size=(len(windows), 32))  # a window knows itself
    positive = (rng.random(WINDOWS) < 0.5)[windows]
    assert ged.cross_validate(rows, positive, windows, method="LDA").separation.estimate < 0.1
    leaky = ged.cross_validate(rows, positive, rng.permutation(len(windows)) % WINDOWS, method="LDA")
    assert leaky.separation.estimate > 0.2, "with rows of a window in all folds it would look like knowledge"


def test_the_trap_in_figures() -> None:
    """Pure noise in 128 dimensions: 2.7 at 1,024 samples of each category, about 260 at 16; held out about 1."""
    rng = np.random.default_rng(0)
    tops = {n: ged.decompose(*rng.normal(size=(2, n, 128))).ratios[0] for n in (16, 1024)}
    assert tops[1024] == pytest.approx(2.7, abs=0.2)
    assert tops[16] == pytest.approx(260, rel=0.25)
    rows, windows = rng.normal(size=(128 * 16, 128)), np.repeat(np.arange(128), 16)
    table = ged.by_sample_size(rows, rng.random(len(rows)) < 0.5, windows, sizes=(16, 128, 4096))
    assert set(table["size"]) == {16, 128}, "more than there are is not tried"
    means = table.groupby(["method", "size"]).mean(numeric_only=True)
    assert means.loc[("GED", 16), "ratio_in"] > 100
    assert means.loc[("GED", 16), "ratio_out"] == pytest.approx(1, abs=0.2)
    assert abs(means.loc[("GED", 16), "separation_in"]) < 0.5
    assert means.loc[("LDA", 16), "separation_in"] > 5
    assert abs(means.loc[("LDA", 16), "separation_out"]) < 0.1


def test_fewer_rows_than_dimensions_and_dimensions_that_do_not_vary() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 30))
    rows[:, 7] = 4.0
    few = ged.decompose(rows[:10], rows[10:25])
    assert np.isfinite(few.vectors).all()
    assert list(few.constant) == [7]
    assert (few.vectors[7] == 0).all()
    assert few.condition_before > 1e12 > few.condition_after
    with pytest.raises(ValueError, match="has no inverse: raise the shrinkage above 0"):
        ged.decompose(rows[:10], rows[10:25], shrinkage=0.0)
    windows = np.repeat(np.arange(20), 10)
    assert np.isfinite(ged.cross_validate(rows, rng.random(200) < 0.5, windows).ratio.estimate)


def test_rows_of_few_distinct_vectors_are_held_out_too() -> None:
    """An embedding: as many different rows as tokens, fewer than dimensions; at a small shrinkage nothing overflows."""
    rng = np.random.default_rng(0)
    tokens, windows = rng.integers(0, 20, 1024), np.repeat(np.arange(64), 16)
    rows = rng.normal(size=(20, 128))[tokens]
    positive = tokens < 5
    for shrinkage in (0.0, 0.001, 0.3):
        scores = ged.cross_validate(rows, positive, windows, shrinkage=shrinkage)
        assert np.isfinite([scores.ratio.estimate, scores.ratio.high, scores.ratio_in_sample]).all()
    found = ged.null(rows, positive, windows, shrinkages=(0.0, 0.001), draws=3)
    assert all(np.isfinite(null.ratios).all() for null in found.values())


def test_too_few_rows_and_senseless_options_are_refused() -> None:
    rows, positive, windows = text()
    with pytest.raises(TooFew, match="1 rows of one category and 5 of the other"):
        ged.decompose(rows[:1], rows[:5])
    lonely = np.zeros(len(rows), dtype=bool)
    lonely[:9] = True
    with pytest.raises(TooFew, match="9 tokens are in the category, 0 of them in the poorest of 5 folds"):
        ged.cross_validate(rows, lonely, windows)
    with pytest.raises(TooFew, match="are in what it is compared with"):
        ged.cross_validate(rows, ~lonely, windows)
    with pytest.raises(ValueError, match=r"the shrinkage is 1\.5"):
        ged.decompose(rows[positive], rows[~positive], 1.5)
    with pytest.raises(ValueError, match="nothing varies"):
        ged.decompose(np.ones((5, 3)), np.ones((5, 3)))


def test_the_share_of_token_identity() -> None:
    rng = np.random.default_rng(0)
    tokens, windows = rng.integers(0, 20, 4000), np.repeat(np.arange(40), 100)
    table = rng.normal(size=20)
    assert components.token_share(table[tokens], tokens, windows).estimate == pytest.approx(1)
    half = components.token_share(table[tokens] + rng.normal(size=4000) * table.std(), tokens, windows)
    assert half.estimate == pytest.approx(0.5, abs=0.07)
    assert half.low < half.estimate < half.high < half.low + 0.15
    noise = components.token_share(rng.normal(size=4000), tokens, windows)
    assert noise.low < 0.01
    assert abs(noise.estimate) < 0.05


def test_direct_logits_are_what_the_stream_gains() -> None:
    """Along the path through norm and unembedding, where the norm's scale is held fixed."""
    model = random_model()
    direction = torch.randn(model.config.d_model, generator=torch.Generator().manual_seed(0))
    effects = head_scores.direct_logits(model, direction)
    centred = direction - direction.mean()
    by_hand = (centred * model.lnf.weight) @ model.head.weight.T
    torch.testing.assert_close(effects, by_hand - by_hand.mean(), atol=1e-4, rtol=1e-4)
