"""How good reconstructions are: identities, planted ones, and the principal components of numpy."""

import numpy as np
import pytest
import torch

from interp_core import sae_quality
from interp_core.model import forward, token_losses
from interp_core.sae import Shape, SparseAutoencoder
from interp_core.sae_quality import Site
from tests.conftest import SMALL, random_model, random_tokens


@pytest.fixture
def site() -> Site:
    return Site.of(random_model(), random_tokens(batch=14, length=SMALL.context + 1), "resid_post.0")


def test_the_identity_gives_the_intact_loss_and_the_mean_recovers_nothing(site: Site) -> None:
    whole = sae_quality.quality(site, lambda x: x, 5.0)
    assert whole.explained.estimate == pytest.approx(1)
    assert whole.recovered.estimate == pytest.approx(1)
    assert whole.active == 5
    nothing = sae_quality.quality(site, lambda x: site.rows.mean(0).expand_as(x), 0.0)
    assert nothing.explained.estimate == pytest.approx(0, abs=1e-5)
    assert nothing.recovered.estimate == pytest.approx(0, abs=1e-4)


def test_figures_are_those_of_a_computation_by_hand(site: Site) -> None:
    noise = 0.3 * torch.randn(site.rows.shape, generator=torch.Generator().manual_seed(0))

    def worse(x: torch.Tensor) -> torch.Tensor:
        return x + noise

    found = sae_quality.quality(site, worse, 1.0)
    spread = (site.rows - site.rows.mean(0)).pow(2).sum()
    assert found.explained.estimate == pytest.approx(float(1 - noise.pow(2).sum() / spread), abs=1e-4)
    assert found.explained.low < found.explained.estimate < found.explained.high
    trace = forward(site.model, site.windows[:, :-1], taps=("resid_post.0",))
    mean = trace["resid_post.0"].mean((0, 1))
    losses = [
        token_losses(site.model, site.windows, {"resid_post.0": edit}).mean()
        for edit in (lambda x: x, lambda x: mean.expand_as(x), lambda x: x + noise.view_as(x))
    ]
    by_hand = (losses[1] - losses[2]) / (losses[1] - losses[0])
    assert found.recovered.estimate == pytest.approx(float(by_hand), abs=1e-4)


def test_principal_components_explain_what_numpys_do(site: Site) -> None:
    rows = site.rows.numpy()
    values = np.linalg.eigvalsh(np.cov(rows.T))[::-1]
    for count in (1, 3):
        found = sae_quality.quality(site, sae_quality.principal_components(site.rows, count), float(count))
        assert found.explained.estimate == pytest.approx(values[:count].sum() / values.sum(), abs=1e-4)
    assert sae_quality.quality(
        site, sae_quality.principal_components(site.rows, rows.shape[1]), 1.0
    ).explained.estimate == pytest.approx(1, abs=1e-4)


def test_neurons_keep_the_farthest_from_their_means(site: Site) -> None:
    kept = sae_quality.neurons(site.rows, 2)(site.rows)
    apart, mean = (site.rows - site.rows.mean(0)).abs(), site.rows.mean(0)
    for row in range(0, len(kept), 37):
        chosen = set(apart[row].topk(2).indices.tolist())
        for neuron in range(kept.shape[1]):
            expected = site.rows[row, neuron] if neuron in chosen else mean[neuron]
            assert kept[row, neuron] == pytest.approx(float(expected), abs=1e-5)


def test_random_directions_are_fitted_together(site: Site) -> None:
    """Their error is at right angles to every direction that was chosen, and falls with their number."""
    shares = [
        sae_quality.quality(site, sae_quality.random_directions(site.rows, count), float(count)).explained.estimate
        for count in (1, 4, 8)
    ]
    assert shares == sorted(shares)
    assert shares[-1] > 0.8
    assert sae_quality.quality(site, sae_quality.principal_components(site.rows, 8), 8.0).explained.estimate > 0


def test_an_autoencoder_counts_its_features_and_few_windows_have_intervals_too() -> None:
    model = random_model()
    site = Site.of(model, random_tokens(batch=4, length=SMALL.context + 1), "mlp_post.1")
    sae = SparseAutoencoder(Shape("TopK", site.rows.shape[1], 60, k=3))
    sae.begin(site.rows)
    found = sae_quality.of_autoencoder(site, sae)
    assert 0 < found.active <= 3
    assert found.explained.low < found.explained.estimate < found.explained.high
    assert found.recovered.low < found.recovered.estimate < found.recovered.high


def test_a_feature_that_is_there_again_replicates() -> None:
    one, other = (SparseAutoencoder(Shape("TopK", 16, 30), seed) for seed in (0, 1))
    with torch.no_grad():
        other.decoder[7] = one.decoder[3]
    found = sae_quality.replication(one, other)
    assert found[3] == pytest.approx(1)
    assert found[torch.arange(30) != 3].max() < 0.95
