"""Sparse autoencoders against planted dictionaries, gradients by autograd, and identities."""

import numpy as np
import pytest
import torch

from interp_core import sae as saes
from interp_core import sae_training
from interp_core.sae import KINDS, Kind, Shape, SparseAutoencoder
from interp_core.sae_training import Recipe, Run, train

TRUE, WIDTH = 48, 24


def superposed(count: int = 20_000, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of about three of 48 directions in 24 dimensions, around a mean that is not zero, and the directions."""
    draw = torch.Generator().manual_seed(seed)
    directions = torch.randn(TRUE, WIDTH, generator=draw)
    directions /= directions.norm(dim=1, keepdim=True)
    codes = (torch.rand(count, TRUE, generator=draw) < 3 / TRUE) * (0.5 + torch.rand(count, TRUE, generator=draw))
    return 7 * (codes @ directions) + 3 * torch.ones(WIDTH), directions


def trained(kind: Kind, rows: torch.Tensor, **options: float) -> Run:
    recipe = Recipe(**{"steps": 1200, "batch": 512, "lr": 3e-3, "l1": 0.1, "dead_after": 20_000} | options)
    run = Run(SparseAutoencoder(Shape(kind, rows.shape[1], 96, k=4)), recipe, rows)
    for _ in train(run, every=10_000):
        pass
    return run


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_dictionary_is_recovered(kind: Kind) -> None:
    rows, directions = superposed()
    run = trained(kind, rows)
    cosines = directions @ run.sae.decoder.detach().T
    assert cosines.max(1).values.mean() > 0.9
    assert (run.sae.decoder.norm(dim=1) - 1).abs().max() < 1e-5
    fresh, _ = superposed(2000, seed=0)
    left = (run.sae.reconstruct(fresh) - fresh).pow(2).sum() / (fresh - fresh.mean(0)).pow(2).sum()
    assert left < 0.2


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_the_plain_computation(kind: Kind) -> None:
    torch.manual_seed(0)
    sae = SparseAutoencoder(Shape(kind, 10, 30, k=3))
    with torch.no_grad():
        sae.encoder_bias.normal_(0, 0.1)
        sae.bias.normal_(0, 0.1)
    x, target = torch.randn(16, 10), torch.randn(16, 10)
    before = sae.before(x)
    if kind == "L1":
        made, sums, counts = saes.densely(sae, x)
        f = before.relu()
        assert torch.equal(counts, (f > 0).sum(0).float())
    else:
        code = saes.sparse_code(sae, x)
        made, sums = saes.sparsely(sae, x, code), torch.zeros(16)
        active = torch.zeros(16, 30, dtype=torch.bool)
        active[code.rows, code.features] = True
        f = torch.where(active, before, 0.0)
        counts = torch.bincount(code.rows, minlength=16)
        assert counts.sum() <= 48
        assert kind == "BatchTopK" or counts.max() <= 3
    plain = f @ sae.decoder + sae.bias
    torch.testing.assert_close(made, plain)
    ((made - target).pow(2).sum() + 0.3 * sums.pow(2).sum()).backward()
    found = {name: weights.grad.clone() for name, weights in sae.named_parameters() if weights.grad is not None}
    sae.zero_grad()
    ((plain - target).pow(2).sum() + (0.3 * f.sum(1).pow(2).sum() if kind == "L1" else 0)).backward()
    for name, weights in sae.named_parameters():
        torch.testing.assert_close(found[name], weights.grad, atol=1e-4, rtol=1e-4)


def test_the_largest_of_the_batch_are_kept() -> None:
    sae = SparseAutoencoder(Shape("BatchTopK", 6, 20, k=2))
    x = torch.randn(50, 6, generator=torch.Generator().manual_seed(1)) * torch.linspace(0.1, 3, 50)[:, None]
    code = saes.sparse_code(sae, x)
    before = sae.before(x).relu()
    least = before.flatten().topk(100).values.min()
    expected = torch.where((before >= least) & (before > 0), before, 0.0)
    found = torch.zeros_like(before)
    found[code.rows, code.features] = code.values.detach()
    torch.testing.assert_close(found, expected.detach())


@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back_and_in_the_sites_own_units(kind: Kind) -> None:
    rows, _ = superposed(2000)
    run = trained(kind, rows, steps=30)
    sae = run.sae
    features = sae.encode(rows[:100])
    torch.testing.assert_close(sae.decode(features), sae.reconstruct(rows[:100]))
    torch.testing.assert_close(
        sae.reconstruct(rows[:100].view(10, 2, 5, WIDTH)), sae.reconstruct(rows[:100]).view(10, 2, 5, WIDTH)
    )
    if kind == "TopK":
        assert ((features > 0).sum(1) <= 4).all()
    scaled = rows * sae.scale
    assert scaled.pow(2).sum(1).mean() == pytest.approx(1, abs=0.05)


def test_the_geometric_median_is_where_distances_are_least() -> None:
    rng = np.random.default_rng(0)
    points = torch.from_numpy(np.concatenate([rng.normal(size=(90, 3)), rng.normal(50, 1, size=(10, 3))])).float()
    found = saes.geometric_median(points)
    assert found.norm() < 1 < points.mean(0).norm()
    least = (points - found).norm(dim=1).sum()
    for step in torch.eye(3) * 0.05:
        assert (points - found - step).norm(dim=1).sum() > least
        assert (points - found + step).norm(dim=1).sum() > least


@pytest.mark.parametrize("kind", ["L1", "TopK"])
def test_dead_features_are_resampled_with_a_penalty_and_revived_without(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, _ = superposed(4000)

    def dead(helped: bool) -> int:
        if not helped:
            monkeypatch.setattr(sae_training, "REVIVING", 0.0)
            monkeypatch.setattr(sae_training, "RESAMPLED", ())
        recipe = Recipe(steps=600, batch=256, dead_after=4000, lr=3e-3, l1=0.05)
        run = Run(SparseAutoencoder(Shape(kind, WIDTH, 96, k=4)), recipe, rows)
        with torch.no_grad():
            run.sae.encoder[:40] *= -0.2 if kind == "TopK" else 0.0  # they read nothing that would make them fire
            run.sae.encoder_bias[:40] = 0.0 if kind == "TopK" else -0.5
        for _ in train(run, every=600):
            pass
        assert (run.resampled > 40) == helped or kind == "TopK"
        return int(run.dead[:40].sum())

    assert dead(helped=True) < 5
    assert dead(helped=False) > 30


def test_a_resampled_features_memory_is_wiped() -> None:
    rows, _ = superposed(4000)
    run = Run(SparseAutoencoder(Shape("L1", WIDTH, 96)), Recipe(steps=100, batch=256, dead_after=2000), rows)
    with torch.no_grad():
        run.sae.encoder_bias[:7] = -5.0
    while run.step < 20:
        run.advance()
    memory = run._optimizer.state[run.sae.encoder]["exp_avg_sq"]
    assert (memory[:7] == 0).all()
    assert (memory[7:].sum(1) > 0).all()
    living = run.sae.encoder[7:].norm(dim=1).mean()
    assert run.sae.encoder[:7].norm(dim=1).detach() == pytest.approx(
        (sae_training.SMALL * living).detach().expand(7), rel=0.05
    )


def test_equal_seeds_give_equal_autoencoders_and_a_stop_is_kept() -> None:
    rows, _ = superposed(2000)
    one, other = trained("TopK", rows, steps=20), trained("TopK", rows, steps=20)
    assert torch.equal(one.sae.decoder, other.sae.decoder)
    run = Run(SparseAutoencoder(Shape("TopK", WIDTH, 96, k=4)), Recipe(steps=50, batch=256), rows)
    records = list(train(run, every=10, stop=lambda: run.step >= 25))
    assert [record.step for record in records] == [10, 20, 25]
    assert records[-1].error < records[0].error
    assert records[-1].active == pytest.approx(4, abs=0.1)


def test_what_cannot_be_trained_is_explained() -> None:
    with pytest.raises(ValueError, match="k 9: expected"):
        Shape("TopK", 4, 8, 9)
    with pytest.raises(ValueError, match="learning rate 0"):
        Recipe(lr=0.0)
    with pytest.raises(
        ValueError, match="100 activations of width 24: expected width 10, and at least a batch of 1,024"
    ):
        Run(SparseAutoencoder(Shape("TopK", 10, 20)), Recipe(), torch.randn(100, 24))
