"""Sparse autoencoders: activations as sums of few directions out of many.

    f = σ(W_enc (x − b) + b_enc),   x̂ = f W_dec + b

with rows of W_dec of unit length, so that a feature's activation is the length of what it adds (Bricken et al. 2023, "Towards
monosemanticity"). Three kinds differ in σ alone: ReLU with an L1 penalty on f, the k largest of every token ("TopK": Gao et al.
2024), the k largest a token on average over a batch ("BatchTopK": Bussmann et al. 2024).

Activations are scaled to unit mean squared length before anything else; `scale` is kept with the weights, so that `encode`
and `decode` speak the site's own units.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

Kind = Literal["L1", "TopK", "BatchTopK"]
KINDS: tuple[Kind, ...] = ("TopK", "BatchTopK", "L1")
CROWDED = 4  # times k: the most features of one token that BatchTopK looks at in training
MEDIAN_STEPS = 20


@dataclass(frozen=True)
class Shape:
    """What an autoencoder is, apart from its weights.

    Raises:
        ValueError: no such kind, or a size out of range.
    """

    kind: Kind
    d: int  # width of the site
    features: int
    k: int = 16  # features a token, of TopK and BatchTopK

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"the kind is {self.kind!r}, expected one of {', '.join(KINDS)}")
        if not (self.d >= 1 and self.features >= 2 and 1 <= self.k <= self.features):
            raise ValueError(
                f"width {self.d}, {self.features} features, k {self.k}: expected at least 1, 2, and 1 to the features"
            )


@dataclass(frozen=True, eq=False)
class Code:
    """Which features are active in which rows, and how much: one entry after the other, rows in order."""

    values: Float[Tensor, "entry"]
    features: Int[Tensor, "entry"]
    rows: Int[Tensor, "entry"]
    count: int  # of rows

    @property
    def starts(self) -> Int[Tensor, "row"]:
        """The first entry of each row."""
        return torch.searchsorted(self.rows, torch.arange(self.count))


class SparseAutoencoder(nn.Module):
    """Weights of one autoencoder."""

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        super().__init__()
        self.shape = shape
        drawn = torch.randn(shape.features, shape.d, generator=torch.Generator().manual_seed(seed))
        directions = drawn / drawn.norm(dim=1, keepdim=True)
        self.decoder = nn.Parameter(directions)  # [feature d], rows of unit length
        self.encoder = nn.Parameter(directions.clone())  # [feature d]
        self.encoder_bias = nn.Parameter(torch.zeros(shape.features))
        self.bias = nn.Parameter(torch.zeros(shape.d))
        self.register_buffer("scale", torch.ones(()))  # times an activation of the site: unit mean squared length
        self.register_buffer("threshold", torch.zeros(()))  # of BatchTopK, where there is no batch
        self.scale: Tensor
        self.threshold: Tensor

    def before(self, x: Float[Tensor, "row d"]) -> Float[Tensor, "row feature"]:
        """What σ is applied to, of scaled activations."""
        return torch.addmm(self.encoder_bias, x - self.bias, self.encoder.T)

    @torch.no_grad()
    def encode(self, activations: Float[Tensor, "row d"]) -> Float[Tensor, "row feature"]:
        """The features of each activation, in the site's units."""
        before = self.before(activations * self.scale).relu()
        if self.shape.kind == "TopK":
            values, features = before.topk(self.shape.k, dim=1)
            before = torch.zeros_like(before).scatter_(1, features, values)
        elif self.shape.kind == "BatchTopK":
            before = before * (before > self.threshold)
        return before / self.scale

    @torch.no_grad()
    def decode(self, features: Float[Tensor, "row feature"]) -> Float[Tensor, "row d"]:
        """What activations with these features would be."""
        return features @ self.decoder + self.bias / self.scale

    def reconstruct(self, activations: Float[Tensor, "*row d"]) -> Float[Tensor, "*row d"]:
        """There and back: an edit of the site, to be spliced into a forward pass."""
        flat = activations.flatten(0, -2)
        return torch.cat([self.decode(self.encode(part)) for part in flat.split(4096)]).view_as(activations)

    @torch.no_grad()
    def begin(self, sample: Float[Tensor, "row d"]) -> None:
        """Scale and bias from activations of the site: unit mean squared length, and their geometric median."""
        self.scale.copy_(sample.pow(2).sum(1).mean().clamp(min=1e-12).rsqrt())
        self.bias.copy_(geometric_median(sample * self.scale))

    @torch.no_grad()
    def unit_rows(self) -> None:
        """Makes the decoder's rows of unit length again."""
        self.decoder.div_(self.decoder.norm(dim=1, keepdim=True).clamp(min=1e-12))

    @torch.no_grad()
    def along_the_sphere(self) -> None:
        """Takes from the decoder's gradient what would only change the length of its rows."""
        if self.decoder.grad is not None:
            self.decoder.grad -= (self.decoder.grad * self.decoder).sum(1, keepdim=True) * self.decoder


def sparse_code(sae: SparseAutoencoder, x: Float[Tensor, "row d"]) -> Code:
    """The active features of scaled activations in training, for TopK and BatchTopK; gradients flow to the active ones only.

    BatchTopK takes the largest of the whole batch, of every token at most `CROWDED` times k.
    """
    k, count = sae.shape.k, len(x)
    with torch.no_grad():
        before = sae.before(x)
        wide = k if sae.shape.kind == "TopK" else min(CROWDED * k, sae.shape.features)
        values, features = before.topk(wide, dim=1, sorted=False)
        rows = torch.arange(count).repeat_interleave(wide)
        flat, named = values.flatten(), features.flatten()
        kept = flat > 0
        if sae.shape.kind == "BatchTopK":
            least = flat.topk(min(k * count, len(flat)), sorted=False).values.min()
            kept &= flat >= least
        flat, named, rows = flat[kept], named[kept], rows[kept]
    return Code(read(x - sae.bias, sae.encoder, sae.encoder_bias, flat, named, rows), named, rows, count)


def read(x: Tensor, encoder: Tensor, bias: Tensor, values: Tensor, features: Tensor, rows: Tensor) -> Tensor:
    """The values of active features, with gradients that touch nothing else."""
    return _Read.apply(x, encoder, bias, values, features, rows)


def write(code: Code, decoder: Float[Tensor, "feature d"]) -> Float[Tensor, "row d"]:
    """The sum of the active features' directions in each row, with gradients that touch nothing else."""
    return _Write.apply(code.values, decoder, code.features, code.rows, code.starts)


class _Read(torch.autograd.Function):
    """values[e] = x[row e] · encoder[feature e] + bias[feature e], which the forward pass has computed already."""

    @staticmethod
    def forward(ctx, x, encoder, bias, values, features, rows):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x, encoder, features, rows)
        return values.clone()

    @staticmethod
    def backward(ctx, pulled):  # type: ignore[no-untyped-def]
        x, encoder, features, rows = ctx.saved_tensors
        to_encoder = torch.zeros_like(encoder).index_add_(0, features, pulled[:, None] * x[rows])
        to_bias = torch.zeros(len(encoder)).index_add_(0, features, pulled)
        to_x = torch.zeros_like(x).index_add_(0, rows, pulled[:, None] * encoder[features])
        return to_x, to_encoder, to_bias, None, None, None


class _Write(torch.autograd.Function):
    """out[r] = Σ over the entries of a row of values[e] · decoder[feature e]."""

    @staticmethod
    def forward(ctx, values, decoder, features, rows, starts):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(values, decoder, features, rows)
        return embedding_bag(features, decoder, starts, mode="sum", per_sample_weights=values)

    @staticmethod
    def backward(ctx, pulled):  # type: ignore[no-untyped-def]
        values, decoder, features, rows = ctx.saved_tensors
        at = pulled[rows]  # [entry d]
        to_decoder = torch.zeros_like(decoder).index_add_(0, features, values[:, None] * at)
        return (at * decoder[features]).sum(1), to_decoder, None, None, None


@torch.no_grad()
def geometric_median(points: Float[Tensor, "row d"]) -> Float[Tensor, "d"]:
    """The point with the least mean distance to all, which outliers move little (Weiszfeld 1937)."""
    centre = points.mean(0)
    for _ in range(MEDIAN_STEPS):
        weights = 1 / (points - centre).norm(dim=1).clamp(min=1e-9)
        centre = (weights[:, None] * points).sum(0) / weights.sum()
    return centre
