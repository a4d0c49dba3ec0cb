"""How good a reconstruction of a site is, and what the same number of active parts buys otherwise.

Every reconstruction is a function of the site's tensor, spliced into the forward pass: variance explained tells how near it is,
cross-entropy recovered how much of it the model still understands.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_core.model import GPT, forward, token_losses
from interp_core.sae import SparseAutoencoder
from interp_core.statistics import FEW, Interval, bootstrap_means, interval, percentile_interval

Reconstruct = Callable[[Tensor], Tensor]
RANDOM_DIRECTIONS = 2048
WINDOWS = 64  # that are read at once


@dataclass(frozen=True, eq=False)
class Site:
    """A site on windows that nothing was trained on, and what any reconstruction of it is measured against."""

    model: GPT
    site: str
    windows: Int[Tensor, "window pos_plus_1"]
    values: Float[Tensor, "window pos d"]
    intact: Float[Tensor, "window"]  # loss, nats
    ablated: Float[Tensor, "window"]  # with the site's mean in its place

    @staticmethod
    @torch.no_grad()
    def of(model: GPT, windows: Int[Tensor, "window pos_plus_1"], site: str) -> "Site":
        """Reads the windows."""
        values = forward(model, windows[:, :-1], taps=(site,), stop_early=True)[site].flatten(2)
        mean = values.mean((0, 1))
        intact = token_losses(model, windows).mean(1)
        ablated = token_losses(model, windows, {site: lambda x: mean.expand(x.flatten(2).shape).view_as(x)}).mean(1)
        return Site(model, site, windows, values, intact, ablated)

    @property
    def rows(self) -> Float[Tensor, "row d"]:
        """All activations."""
        return self.values.flatten(0, 1)


@dataclass(frozen=True)
class Quality:
    """Of one reconstruction, with intervals over windows."""

    active: float  # parts a token: L0
    explained: Interval  # 1 − Σ‖x − x̂‖² / Σ‖x − mean‖²
    recovered: Interval  # of the loss between mean-ablated and intact


@torch.no_grad()
def quality(site: Site, reconstruct: Reconstruct, active: float, seed: int = 0) -> Quality:
    """Variance explained and cross-entropy recovered of a reconstruction.

    Args:
        site: where.
        reconstruct: from the site's activations [row d] to others of the same shape.
        active: parts a token that it uses.
        seed: of the bootstrap.
    """
    made = reconstruct(site.rows).view_as(site.values)
    left = (site.values - made).pow(2).sum((1, 2))
    spread = (site.values - site.values.mean((0, 1))).pow(2).sum((1, 2))
    parts = zip(site.windows.split(WINDOWS), made.split(WINDOWS), strict=True)
    loss = torch.cat([token_losses(site.model, some, {site.site: _put(there)}).mean(1) for some, there in parts])
    explained = _one_less_ratio(left, spread, seed)
    return Quality(active, explained, _one_less_ratio(loss - site.intact, site.ablated - site.intact, seed))


def of_autoencoder(site: Site, sae: SparseAutoencoder, seed: int = 0) -> Quality:
    """Of an autoencoder."""
    parts, fired = [], 0
    for some in site.rows.split(4096):
        features = sae.encode(some)
        fired += int((features > 0).sum())
        parts.append(sae.decode(features))
    made = torch.cat(parts)
    return quality(site, lambda _: made, fired / len(made), seed)


@torch.no_grad()
def replication(sae: SparseAutoencoder, other: SparseAutoencoder) -> Float[Tensor, "feature"]:
    """How well each feature's direction comes back in another run: the largest cosine to any of its directions."""
    return (sae.decoder @ other.decoder.T).amax(1)


def principal_components(sample: Float[Tensor, "row d"], count: int) -> Reconstruct:
    """The same `count` directions for every token: those of the largest variance."""
    mean = sample.mean(0)
    _, vectors = torch.linalg.eigh((sample - mean).T @ (sample - mean))
    chosen = vectors[:, -count:]
    return lambda x: (x - mean) @ chosen @ chosen.T + mean


def neurons(sample: Float[Tensor, "row d"], count: int) -> Reconstruct:
    """The `count` neurons of each token that are farthest from their means; the others at their means."""
    mean = sample.mean(0)

    def reconstruct(x: Tensor) -> Tensor:
        apart = x - mean
        farthest = apart.abs().topk(count, dim=1).indices
        return mean + torch.zeros_like(x).scatter_(1, farthest, apart.gather(1, farthest))

    return reconstruct


def random_directions(sample: Float[Tensor, "row d"], count: int, seed: int = 0) -> Reconstruct:
    """As many random unit directions as an autoencoder has: the `count` along which a token is largest, fitted to it together."""
    mean, drawn = (
        sample.mean(0),
        torch.randn(RANDOM_DIRECTIONS, sample.shape[1], generator=torch.Generator().manual_seed(seed)),
    )
    directions = drawn / drawn.norm(dim=1, keepdim=True)

    def reconstruct(x: Tensor) -> Tensor:
        parts = []
        for some in (x - mean).split(1024):
            chosen = directions[(some @ directions.T).topk(count, dim=1).indices]  # [row count d]
            gram = chosen @ chosen.mT + 1e-4 * torch.eye(count)
            lengths = torch.linalg.solve(gram, chosen @ some[:, :, None])
            parts.append((lengths.mT @ chosen)[:, 0])
        return torch.cat(parts) + mean

    return reconstruct


BASELINES: dict[str, Callable[[Tensor, int], Reconstruct]] = {
    "principal components": principal_components, "neurons": neurons, "random directions": random_directions,
}  # fmt: skip


def _put(made: Tensor) -> Reconstruct:
    return lambda x: made.view_as(x)


def _one_less_ratio(part: Float[Tensor, "window"], whole: Float[Tensor, "window"], seed: int) -> Interval:
    """1 − Σ part / Σ whole, windows resampled for both together; without bounds where the whole may be nothing at all."""
    sums = torch.stack([part, whole], 1).double().numpy()
    estimate = 1 - sums[:, 0].sum() / sums[:, 1].sum()
    if len(sums) < FEW:  # linearised, for Student's t
        around = interval(1 - (sums[:, 0] - (1 - estimate) * sums[:, 1]) / sums[:, 1].mean(), seed)
        return Interval(float(estimate), around.low - 1 + estimate, around.high - 1 + estimate)
    drawn = bootstrap_means(sums, seed)
    if not drawn[:, 1].all():
        return Interval(float(estimate), -np.inf, np.inf)
    low, high = percentile_interval(np.asarray(1 - drawn[:, 0] / drawn[:, 1]), len(sums))
    return Interval(float(estimate), float(low), float(high))
