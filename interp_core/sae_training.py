"""Trains a sparse autoencoder on the activations of a site: a generator of records.

    run = sae_training.Run(SparseAutoencoder(Shape("TopK", 128, 2048)), Recipe(), activations)
    for record in sae_training.train(run): ...

Features that never fire are a waste of the dictionary. With an L1 penalty they are *resampled*: pointed at activations that are
badly reconstructed, their optimiser's memory wiped (Bricken et al. 2023). With TopK they are *revived* by an auxiliary loss: the
best of the dead are to explain what the living leave over (Gao et al. 2024, section 2.3).
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp_core.sae import SparseAutoencoder, densely, sparse_code, sparsely

SMOOTHING = 0.95  # of the figures of training batches
RESAMPLED = (0.2, 0.4, 0.6)  # of the training: when dead features of an L1 autoencoder are resampled
SMALL = 0.2  # length of a resampled feature's encoder row, in mean lengths of the living
LOOKED_AT = 8192  # activations among which badly reconstructed ones are chosen
REVIVING = 1 / 32  # weight of the auxiliary loss
REVIVED = 256  # dead features at most that the auxiliary loss uses at once, of each activation
THRESHOLD_RATE = 0.02  # of the running mean that gives BatchTopK its threshold
Progress = Callable[[float], None]


@dataclass(frozen=True)
class Recipe:
    """How an autoencoder is trained.

    Raises:
        ValueError: a number out of its range.
    """

    steps: int = 1500
    batch: int = 1024  # activations
    lr: float = 3e-3  # Adam's
    l1: float = 0.1  # times Σ|f|, of activations of unit mean squared length; L1 only
    warmup: float = 0.05  # share of the steps in which the learning rate rises; the penalty rises along
    decay: float = 0.3  # share of the steps in which the learning rate falls to zero
    dead_after: int = 100_000  # activations without firing
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.steps >= 1 and self.batch >= 1 and self.lr > 0 and self.l1 >= 0 and self.dead_after >= 1):
            raise ValueError(
                f"steps {self.steps}, batch {self.batch}, learning rate {self.lr:g}, l1 {self.l1:g}, dead after "
                f"{self.dead_after}: expected 1, 1, above 0, 0 and 1, or more"
            )

    def rate(self, step: int) -> float:
        """Share of the full learning rate."""
        rising = min(1.0, (step + 1) / max(1, round(self.warmup * self.steps)))
        return rising * min(1.0, (self.steps - step) / max(1, round(self.decay * self.steps)))

    def penalty(self, step: int) -> float:
        """Weight of Σ|f|."""
        return self.l1 * min(1.0, (step + 1) / max(1, round(self.warmup * self.steps)))


@dataclass(frozen=True)
class Record:
    """Where a training stands; figures of training batches, smoothed."""

    step: int
    error: float  # Σ‖x − x̂‖² over Σ‖x‖² of scaled activations
    active: float  # features a token: L0
    dead: int  # features that have not fired for long
    resampled: int  # or revived, so far
    seconds: float


class Run:
    """A training between two steps."""

    def __init__(self, sae: SparseAutoencoder, recipe: Recipe, activations: Float[Tensor, "row d"]) -> None:
        """Begins with scale and bias of the activations.

        Raises:
            ValueError: fewer activations than a batch, or of another width.
        """
        if activations.shape[1] != sae.shape.d or len(activations) < recipe.batch:
            raise ValueError(
                f"{len(activations):,} activations of width {activations.shape[1]}: expected width {sae.shape.d}, and at least "
                f"a batch of {recipe.batch:,}"
            )
        self.sae, self.recipe, self.activations = sae, recipe, activations
        self.step, self.resampled, self.error, self.active = 0, 0, 0.0, 0.0
        self.silent = torch.zeros(sae.shape.features)  # activations since each feature fired
        self._order = torch.empty(0, dtype=torch.long)
        self._draw = torch.Generator().manual_seed(recipe.seed)
        self._optimizer = torch.optim.Adam(sae.parameters(), lr=recipe.lr, betas=(0.9, 0.999), fused=True)
        self._at = sorted(round(share * recipe.steps) for share in RESAMPLED) if sae.shape.kind == "L1" else []
        chosen = torch.randperm(len(activations), generator=self._draw)[:LOOKED_AT]
        sae.begin(activations[chosen])

    @property
    def dead(self) -> Tensor:
        """Which features have not fired for long [feature]."""
        return self.silent >= self.recipe.dead_after

    def advance(self) -> None:
        """One step on the next batch."""
        for group in self._optimizer.param_groups:
            group["lr"] = self.recipe.lr * self.recipe.rate(self.step)
        x = self._batch() * self.sae.scale
        loss, error, fired, active = self._dense(x) if self.sae.shape.kind == "L1" else self._sparse(x)
        loss.backward()
        self.sae.along_the_sphere()
        self._optimizer.step()
        self._optimizer.zero_grad()
        self.sae.unit_rows()
        before = self.dead
        self.silent = torch.where(fired, 0.0, self.silent + len(x))
        if self.sae.shape.kind != "L1":
            self.resampled += int((before & fired).sum())
        self.step += 1
        self.error = SMOOTHING * self.error + (1 - SMOOTHING) * error
        self.active = SMOOTHING * self.active + (1 - SMOOTHING) * active
        if self.step in self._at:
            self._resample()

    def record(self, seconds: float) -> Record:
        """Where it stands."""
        full = 1 - SMOOTHING**self.step
        return Record(self.step, self.error / full, self.active / full, int(self.dead.sum()), self.resampled, seconds)

    def _batch(self) -> Tensor:
        if len(self._order) < self.recipe.batch:
            self._order = torch.randperm(len(self.activations), generator=self._draw)
        chosen, self._order = self._order[: self.recipe.batch], self._order[self.recipe.batch :]
        return self.activations[chosen]

    def _dense(self, x: Tensor) -> tuple[Tensor, float, Tensor, float]:
        """Loss, error, which features fired, and how many a token: L1."""
        made, sums, counts = densely(self.sae, x)
        error = (x - made).pow(2).sum(1).mean()
        loss = error + self.recipe.penalty(self.step) * sums.mean()
        return loss, _share(error, x), counts > 0, float(counts.sum()) / len(x)

    def _sparse(self, x: Tensor) -> tuple[Tensor, float, Tensor, float]:
        """The same of TopK and BatchTopK, the dead revived."""
        sae = self.sae
        code = sparse_code(sae, x)
        left = x - sparsely(sae, x, code)
        error = left.pow(2).sum(1).mean()
        fired = torch.zeros(sae.shape.features, dtype=torch.bool)
        fired[code.features] = True
        loss, dead = error, self.dead & ~fired
        if dead.any():
            loss = loss + REVIVING * self._leftover(x, left.detach(), dead)
        if sae.shape.kind == "BatchTopK":
            with torch.no_grad():
                rate = 1.0 if self.step == 0 else THRESHOLD_RATE
                sae.threshold.lerp_(code.values.min(), rate)
        return loss, _share(error, x), fired, len(code.values) / len(x)

    def _leftover(self, x: Tensor, left: Tensor, dead: Tensor) -> Tensor:
        """Share of what is left over that the best of the dead leave over as well."""
        sae, names = self.sae, dead.nonzero()[:, 0]
        f = (x - sae.bias) @ sae.encoder[names].T + sae.encoder_bias[names]
        values, which = f.topk(min(REVIVED, len(names)), dim=1)
        f = torch.zeros_like(f).scatter(1, which, values)
        return (left - f @ sae.decoder[names]).pow(2).sum(1).mean() / left.pow(2).sum(1).mean().clamp(min=1e-12)

    @torch.no_grad()
    def _resample(self) -> None:
        """Points dead features at activations that are badly reconstructed."""
        sae, names = self.sae, self.dead.nonzero()[:, 0]
        if not len(names):
            return
        chosen = torch.randperm(len(self.activations), generator=self._draw)[:LOOKED_AT]
        x = self.activations[chosen] * sae.scale
        left = (x - sae.bias - sae.before(x).relu() @ sae.decoder).pow(2).sum(1)
        picked = torch.multinomial(left**2, len(names), replacement=len(names) > len(x), generator=self._draw)
        directions = x[picked] - sae.bias
        directions /= directions.norm(dim=1, keepdim=True).clamp(min=1e-12)
        living = sae.encoder[~self.dead].norm(dim=1).mean() if (~self.dead).any() else torch.ones(())
        sae.decoder[names] = directions
        sae.encoder[names] = SMALL * living * directions
        sae.encoder_bias[names] = 0.0
        for weights in (sae.decoder, sae.encoder, sae.encoder_bias):
            for memory in ("exp_avg", "exp_avg_sq"):
                self._optimizer.state[weights][memory][names] = 0.0
        self.silent[names] = 0.0
        self.resampled += len(names)


def train(run: Run, every: int = 50, stop: Callable[[], bool] = lambda: False) -> Iterator[Record]:
    """Trains the run's autoencoder in place and yields a record every `every` steps and at the end.

    Args:
        run: where to begin.
        every: steps between records.
        stop: asked after each step; when it says so, a last record is yielded.
    """
    begun = time.perf_counter()
    while run.step < run.recipe.steps:
        run.advance()
        stopping = stop()
        if stopping or run.step % every == 0 or run.step == run.recipe.steps:
            yield run.record(time.perf_counter() - begun)
        if stopping:
            return


def _share(error: Tensor, x: Tensor) -> float:
    return float(error.detach() / x.pow(2).sum(1).mean().clamp(min=1e-12))
