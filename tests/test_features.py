"""What features do: planted explanations, effects by hand, and a control that finds nothing."""

import numpy as np
import pytest
import torch
from scipy.sparse import csc_matrix

from interp_core import features, sae_quality
from interp_core.features import Fired
from interp_core.model import forward, token_losses
from interp_core.sae import Shape, SparseAutoencoder
from tests.conftest import SMALL, random_model, random_tokens

LENGTH, COUNT = 20, 40


def planted() -> tuple[Fired, dict[str, np.ndarray]]:
    """Three features: one is a category, one a category from half of its largest activation on, one fires at random."""
    rng = np.random.default_rng(0)
    rows = LENGTH * COUNT
    labels = {"apple": rng.random(rows) < 0.2, "pear": rng.random(rows) < 0.1, "plum": rng.random(rows) < 0.3}
    codes = np.zeros((rows, 4))
    codes[:, 0] = labels["apple"] * (1 + rng.random(rows))
    codes[:, 1] = np.where(labels["pear"], 3 + rng.random(rows), (rng.random(rows) < 0.5) * rng.random(rows))
    codes[:, 2] = (rng.random(rows) < 0.1) * rng.random(rows)
    return Fired(csc_matrix(codes), LENGTH), labels


def test_planted_explanations_are_found_and_reported_on_the_other_half() -> None:
    fired, labels = planted()
    table = features.explain(fired, labels)
    assert list(table["explanation"][:2]) == ["apple", "pear"]
    assert table["f1"][0] == table["precision"][0] == table["recall"][0] == 1
    assert table["f1"][1] > 0.95
    assert table["from_share"][1] > 0
    assert table["f1"][2] < 0.4
    assert table["explanation"][3] == ""
    assert table["f1"][3] == 0
    half = LENGTH * COUNT // 2
    on = fired.of(2)[half:] > table["from_share"][2] * fired.of(2)[:half].max()
    truth = labels[table["explanation"][2]][half:]
    assert table["precision"][2] == pytest.approx((on & truth).sum() / on.sum())
    assert table["recall"][2] == pytest.approx((on & truth).sum() / truth.sum())
    assert table["f1"][2] == pytest.approx(2 * (on & truth).sum() / (on.sum() + truth.sum()))


def test_density_and_largest_activation() -> None:
    fired, _ = planted()
    dense = fired.codes.toarray()
    np.testing.assert_allclose(fired.density, (dense > 0).mean(0))
    np.testing.assert_allclose(fired.largest, dense.max(0))


def test_random_directions_fire_as_seldom_and_have_no_name() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(LENGTH * COUNT, 12))
    _, labels = planted()
    control = features.random_features(rows, np.array([0.02, 0.1, 0.0]), LENGTH)
    assert set(np.round(control.density, 2)) <= {0.02, 0.1}
    assert np.median(features.explain(control, labels)["f1"]) < 0.3


def test_examples_are_the_highest_and_some_of_every_band() -> None:
    values = np.zeros(200)
    values[50:150] = np.random.default_rng(0).permutation(100) + 1.0
    found = features.examples(values, bands=4, each=3)
    assert values[found[0]].tolist() == [100, 99, 98]
    for band, rows in enumerate(found[1:]):
        assert ((values[rows] <= 100 - 25 * band) & (values[rows] > 75 - 25 * band)).all()
    assert [len(rows) for rows in features.examples(np.zeros(10), 4, 3)] == [0] * 5


@pytest.fixture
def bench() -> tuple:
    model, windows = random_model(), random_tokens(batch=10, length=SMALL.context + 1)
    rows = sae_quality.Site.of(model, windows, "resid_post.0").rows
    sae = SparseAutoencoder(Shape("TopK", rows.shape[1], 40, k=4))
    sae.begin(rows)
    sae.requires_grad_(False)
    return model, windows, sae, features.fire(model, sae, windows[:, :-1], "resid_post.0")


def test_what_fires_is_what_the_autoencoder_says(bench: tuple) -> None:
    model, windows, sae, fired = bench
    rows = forward(model, windows[:, :-1], taps=("resid_post.0",))["resid_post.0"].flatten(0, 1)
    np.testing.assert_allclose(fired.codes.toarray(), sae.encode(rows).numpy(), atol=1e-4)


def test_taking_a_feature_away_costs_what_a_pass_by_hand_says(bench: tuple) -> None:
    model, windows, sae, fired = bench
    feature = int(fired.density.argmax())
    found = features.ablate(model, sae, windows, "resid_post.0", feature, fired)
    values = torch.from_numpy(fired.of(feature)).view(len(windows), -1)

    def edit(x: torch.Tensor) -> torch.Tensor:
        return x - values[:, :, None].float() * sae.decoder[feature]

    added = (token_losses(model, windows, {"resid_post.0": edit}) - token_losses(model, windows)).numpy()
    on = values.numpy() > 0
    both = on.any(1) & ~on.all(1)
    for interval, mask in ((found.fires, on), (found.silent, ~on)):
        by_hand = np.mean([row[m].mean() for row, m in zip(added[both], mask[both], strict=True)])
        assert interval.estimate == pytest.approx(by_hand, abs=1e-4)
    assert len(found.others) == min(features.ALIKE, int((fired.density > 0).sum()) - 1)
    assert feature not in features.alike(fired, feature)
    silent = int(np.flatnonzero(fired.density == 0)[0]) if (fired.density == 0).any() else None
    if silent is not None:
        with pytest.raises(ValueError, match="fires in fewer than two"):
            features.ablate(model, sae, windows, "resid_post.0", silent, fired)


def test_steering_adds_the_features_direction(bench: tuple) -> None:
    model, windows, sae, _ = bench
    x = forward(model, windows[:, :-1], taps=("resid_post.0",))["resid_post.0"]
    torch.testing.assert_close(
        features.steer(sae, 3, 2.5)(x) - x, (2.5 * sae.decoder[3]).expand_as(x), atol=1e-5, rtol=0
    )


def test_the_nearest_features_are_the_most_alike(bench: tuple) -> None:
    sae = bench[2]
    with torch.no_grad():
        sae.decoder[5] = sae.decoder[2] + 0.01
        sae.unit_rows()
    assert features.nearest(sae, 2, 3)["feature"].iloc[0] == 5
    assert 2 not in set(features.nearest(sae, 2, 3)["feature"])
