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


@torch.no_grad()
def sparse_code(sae: SparseAutoencoder, x: Float[Tensor, "row d"]) -> Code:
    """The active features of scaled activations in training, for TopK and BatchTopK.

    BatchTopK takes the largest of the whole batch, of every token at most `CROWDED` times k.
    """
    k, before = sae.shape.k, sae.before(x)
    wide = k if sae.shape.kind == "TopK" else min(CROWDED * k, sae.shape.features)
    values, features = before.topk(wide, dim=1, sorted=False)
    rows = torch.arange(len(x)).repeat_interleave(wide)
    flat, named = values.flatten(), features.flatten()
    kept = flat > 0
    if sae.shape.kind == "BatchTopK":
        kept &= flat >= flat.topk(min(k * len(x), len(flat)), sorted=False).values.min()
    return Code(flat[kept], named[kept], rows[kept])


def sparsely(sae: SparseAutoencoder, x: Float[Tensor, "row d"], code: Code) -> Float[Tensor, "row d"]:
    """The reconstruction from a code of few features, with gradients that touch nothing else."""
    weights = (sae.encoder, sae.encoder_bias, sae.decoder, sae.bias)
    return _Sparsely.apply(x, *weights, code)


def densely(
    sae: SparseAutoencoder, x: Float[Tensor, "row d"]
) -> tuple[Float[Tensor, "row d"], Float[Tensor, "row"], Float[Tensor, "feature"]]:
    """The reconstruction with ReLU, the sum of the features of each row, and how many rows each feature is active in."""
    return _Densely.apply(x, sae.encoder, sae.encoder_bias, sae.decoder, sae.bias)


class _Sparsely(torch.autograd.Function):
    """x̂[r] = b + Σ over the entries of a row of values[e] · decoder[feature e].

    values[e] = (x[row e] − b) · encoder[feature e] + bias[feature e] are known already. Entries are sorted by feature, so that
    every gradient is a sum over bags: no array of entries × d is written for the weights.
    """

    @staticmethod
    def forward(ctx, x, encoder, encoder_bias, decoder, bias, code):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x, encoder, decoder, bias)
        ctx.code = code
        starts = torch.searchsorted(code.rows, torch.arange(len(x)))
        return embedding_bag(code.features, decoder, starts, mode="sum", per_sample_weights=code.values) + bias

    @staticmethod
    def backward(ctx, pulled):  # type: ignore[no-untyped-def]
        (x, encoder, decoder, bias), code = ctx.saved_tensors, ctx.code
        names, order = code.features.sort()
        ordered, starts = code.rows[order], torch.searchsorted(names, torch.arange(len(encoder)))
        to_values = (pulled[ordered] * decoder[names]).sum(1)
        to_decoder = embedding_bag(ordered, pulled, starts, mode="sum", per_sample_weights=code.values[order])
        to_encoder = embedding_bag(ordered, x - bias, starts, mode="sum", per_sample_weights=to_values)
        to_encoder_bias = torch.zeros(len(encoder)).index_add_(0, names, to_values)
        to_bias = pulled.sum(0) - to_encoder_bias @ encoder
        return None, to_encoder, to_encoder_bias, to_decoder, to_bias, None


class _Densely(torch.autograd.Function):
    """x̂ = b + f W_dec with f = ReLU(W_enc (x − b) + b_enc); no gradient to x, and as few arrays of rows × features as can be."""

    @staticmethod
    def forward(ctx, x, encoder, encoder_bias, decoder, bias):  # type: ignore[no-untyped-def]
        f = torch.addmm(encoder_bias, x - bias, encoder.T).relu_()
        on = f.sign()
        ctx.save_for_backward(x, encoder, decoder, bias, f, on)
        counts = on.sum(0)
        ctx.mark_non_differentiable(counts)
        return torch.addmm(bias, f, decoder), f.sum(1), counts

    @staticmethod
    def backward(ctx, pulled, to_sums, _):  # type: ignore[no-untyped-def]
        x, encoder, decoder, bias, f, on = ctx.saved_tensors
        to_f = torch.addmm(to_sums[:, None], pulled, decoder.T).mul_(on)
        to_encoder_bias = to_f.sum(0)
        to_bias = pulled.sum(0) - to_encoder_bias @ encoder
        return None, to_f.T @ (x - bias), to_encoder_bias, f.T @ pulled, to_bias


@torch.no_grad()
def geometric_median(points: Float[Tensor, "row d"]) -> Float[Tensor, "d"]:
    """The point with the least mean distance to all, which outliers move little (Weiszfeld 1937)."""
    centre = points.mean(0)
    for _ in range(MEDIAN_STEPS):
        weights = 1 / (points - centre).norm(dim=1).clamp(min=1e-9)
        centre = (weights[:, None] * points).sum(0) / weights.sum()
    return centre
