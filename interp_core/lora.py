"""Low-rank adaptation: is the update of a fine-tuning low rank?

A frozen matrix W is read as W + (α/r) B A with A [r in] drawn at random and B [out r] zero, so that step 0 is the base model
exactly (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1). Beside it stand the reference, in
which every matrix is free, and the controls: A frozen, the unembedding alone, and single dense matrices of as many parameters.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from interp_core import layouts
from interp_core.model import GPT, forward, next_token_losses

Kind = Literal["low rank", "frozen A", "full", "head only", "dense"]
TARGETS = {  # what can be adapted, by what a page calls it
    "queries": "attn.query",
    "keys": "attn.key",
    "values": "attn.value",
    "outputs": "attn.proj",
    "MLP in": "mlp.fc",
    "MLP out": "mlp.proj",
}
CLIP = 1.0  # norm of the gradient
WARM_UP = 0.1  # share of the steps in which the learning rate rises; it falls to zero at the end


@dataclass(frozen=True)
class Tuning:
    """What is learned, and how.

    Attributes:
        kind: low rank; the same with A as it was drawn; all weights; the unembedding alone; whole single matrices.
        rank: r, of the first two kinds.
        targets: keys of `TARGETS`, for all kinds but *full* and *head only*.
        layers: of the kind *dense*: whose matrices are free; all by default.
        alpha: the update is scaled by α/r.
        lr: peak learning rate of AdamW.
        steps, batch: windows in a step.
        seed: of A, and of the batches.

    Raises:
        ValueError: a rank, target, learning rate or number of steps that cannot be.
    """

    kind: Kind = "low rank"
    rank: int = 4
    targets: tuple[str, ...] = ("queries", "values")
    layers: tuple[int, ...] | None = None
    alpha: float = 16.0
    lr: float = 3e-3
    steps: int = 200
    batch: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        unknown = [name for name in self.targets if name not in TARGETS]
        if unknown or (self.kind in ("low rank", "frozen A", "dense") and not self.targets):
            raise ValueError(f"targets {', '.join(unknown) or 'none'}: expected some of {', '.join(TARGETS)}")
        if self.rank < 1 or self.steps < 1 or self.batch < 1 or self.lr <= 0:
            raise ValueError(
                f"rank {self.rank}, {self.steps} steps of {self.batch}, rate {self.lr}: expected positive numbers"
            )


class Adapter(nn.Module):
    """A frozen linear map and its low-rank update."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float, generator: torch.Generator) -> None:
        super().__init__()
        self.base, self.scale = base, alpha / rank
        drawn = torch.randn(rank, base.in_features, generator=generator) * base.in_features**-0.5
        self.A = nn.Parameter(drawn, requires_grad=False)
        self.B = nn.Parameter(torch.zeros(base.out_features, rank), requires_grad=False)

    def forward(self, x: Float[Tensor, "*batch in_features"]) -> Float[Tensor, "*batch out_features"]:
        """The base map, and the update beside it."""
        return self.base(x) + (x @ self.A.T @ self.B.T) * self.scale

    @property
    def update(self) -> Float[Tensor, "out_features in_features"]:
        """(α/r) B A."""
        return self.B @ self.A * self.scale


@dataclass(frozen=True)
class Progress:
    """Where a tuning is."""

    step: int
    loss: float  # of the last batch, nats


def share(model: GPT) -> GPT:
    """A second model of the same weights: what is put in place of one of its parts leaves the first as it is."""
    weights = model.state_dict()
    if model.config.tied_head:
        del weights["head.weight"]
    return layouts.build(model.config, weights)


def adapt(model: GPT, tuning: Tuning) -> GPT:
    """The same frozen weights with adapters beside the chosen matrices of every layer.

    Raises:
        ValueError: MLP matrices of a model without MLPs.
    """
    twin, generator = share(model), torch.Generator().manual_seed(tuning.seed)
    for parent, name in _places(twin, tuning):
        base = getattr(parent, name)
        setattr(parent, name, Adapter(base, tuning.rank, tuning.alpha, generator))
    return twin.eval()


def merge(model: GPT) -> GPT:
    """A plain model whose matrices hold the updates of their adapters."""
    weights = {}
    for key, value in model.state_dict().items():
        if key.endswith((".A", ".B")):
            continue
        weights[key.replace(".base.", ".")] = value
    for key, adapter in adapters(model).items():
        weights[f"{key}.weight"] = adapter.base.weight + adapter.update
    if model.config.tied_head:
        del weights["head.weight"]
    return layouts.build(model.config, {key: value.detach() for key, value in weights.items()})


def unmerge(merged: GPT, updates: dict[str, Tensor]) -> GPT:
    """The base model again, from a merged one and the updates that it holds."""
    weights = merged.state_dict()
    if merged.config.tied_head:
        del weights["head.weight"]
    for key, update in updates.items():
        weights[f"{key}.weight"] = weights[f"{key}.weight"] - update
    return layouts.build(merged.config, weights)


def adapters(model: GPT) -> dict[str, Adapter]:
    """The adapters of a model, by the name of what they adapt: `blocks.0.attn.query`."""
    return {name: part for name, part in model.named_modules() if isinstance(part, Adapter)}


def updates(base: GPT, tuned: GPT) -> dict[str, Float[Tensor, "out_features in_features"]]:
    """ΔW of every matrix inside the layers, of two plain models of one shape, by the name of its part."""
    before, after = base.state_dict(), tuned.state_dict()
    names = [key for key, value in before.items() if key.startswith("blocks.") and value.ndim == 2]
    return {name.removesuffix(".weight"): after[name] - before[name] for name in names}


def spectrum(update: Float[Tensor, "out_features in_features"]) -> Float[Tensor, "direction"]:
    """Share of the squared size of an update along each of its singular directions, the largest first: sums to one."""
    squares = torch.linalg.svdvals(update.double()).square()
    return (squares / squares.sum().clamp(min=1e-300)).float()


def rank_holding(update: Float[Tensor, "out_features in_features"], share_held: float = 0.9) -> int:
    """How many singular directions hold so much of an update's squared size."""
    return int((spectrum(update).cumsum(0) < share_held).sum()) + 1


def trainable(model: GPT, tuning: Tuning) -> int:
    """How many numbers a tuning learns."""
    return sum(parameter.numel() for parameter in _free(_prepared(model, tuning), tuning))


def tune(
    model: GPT,
    tuning: Tuning,
    batch: Callable[[int, int, int], Int[Tensor, "window pos_plus_1"]],
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[Progress, GPT]]:
    """Learns and yields, after every step, where it is and the model that learns; the base model is not touched.

    Args:
        model: the base.
        tuning: what and how.
        batch: windows of the target text, of a step, how many, and a seed.
        stop: asked after each step.
    """
    learner = _prepared(model, tuning)
    free = _free(learner, tuning)
    for parameter in free:
        parameter.requires_grad_(True)
    optimizer = torch.optim.AdamW(free, lr=tuning.lr, weight_decay=0.0)
    for step in range(tuning.steps):
        for group in optimizer.param_groups:
            group["lr"] = tuning.lr * _rate(step, tuning.steps)
        with torch.enable_grad():
            windows = batch(step, tuning.batch, tuning.seed)
            loss = next_token_losses(forward(learner, windows[:, :-1]).logits, windows[:, 1:]).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(free, CLIP)
        optimizer.step()
        yield Progress(step + 1, loss.item()), learner
        if stop():
            return


def finished(learner: GPT) -> GPT:
    """A learner as a plain model without gradients, for every other measurement."""
    return merge(learner) if adapters(learner) else share(learner)


def _rate(step: int, steps: int) -> float:
    done = (step + 1) / steps
    return min(done / WARM_UP, (1 - done) / (1 - WARM_UP) + 1 / steps, 1.0)


def _prepared(model: GPT, tuning: Tuning) -> GPT:
    """A model that can learn without changing the base: adapters on shared weights, or weights of its own."""
    if tuning.kind in ("low rank", "frozen A"):
        return adapt(model, tuning)
    own = {key: value.clone() for key, value in model.state_dict().items()}
    if model.config.tied_head:
        del own["head.weight"]
    return layouts.build(model.config, own)


def _free(learner: GPT, tuning: Tuning) -> Sequence[nn.Parameter]:
    if tuning.kind == "full":
        return list(learner.parameters())
    if tuning.kind == "head only":
        return list(learner.head.parameters())
    if tuning.kind == "dense":
        return [getattr(parent, name).weight for parent, name in _places(learner, tuning)]
    found = adapters(learner).values()
    return [part.B for part in found] + ([] if tuning.kind == "frozen A" else [part.A for part in found])


def _places(model: GPT, tuning: Tuning) -> list[tuple[nn.Module, str]]:
    """The matrices that a tuning names: the module that holds each, and its name there."""
    layers = range(model.config.layers) if tuning.layers is None else tuning.layers
    paths = [TARGETS[name].split(".") for name in tuning.targets]
    if not model.config.d_mlp and any(part == "mlp" for part, _ in paths):
        raise ValueError("this model has no MLPs: adapt its attention")
    return [(getattr(model.block(layer), part), name) for layer in layers for part, name in paths]
