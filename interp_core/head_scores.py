"""What a head's attention pattern and its output say about it: one number each, with a name and a unit.

Scores of a pattern are shares of attention averaged over queries; `FIRST_ROW` leaves out the first two queries, which
have too little to choose from (query 0 can only look at itself, query 1 at two places).
"""

import torch
from jaxtyping import Float
from torch import Tensor

from interp_core.model import GPT

FIRST_ROW = 2

Patterns = Float[Tensor, "*batch query key"]
Scores = Float[Tensor, "*batch"]


def previous_token_score(patterns: Patterns) -> Scores:
    """Mean attention one position back, over queries from `FIRST_ROW` on. Share."""
    return offset_diagonal(patterns, 1)[..., FIRST_ROW - 1 :].mean(-1)


def self_score(patterns: Patterns) -> Scores:
    """Mean attention on the query's own position, over queries from `FIRST_ROW` on. Share."""
    return offset_diagonal(patterns, 0)[..., FIRST_ROW:].mean(-1)


def first_token_score(patterns: Patterns) -> Scores:
    """Mean attention on position 0, over queries from `FIRST_ROW` on. Share."""
    return patterns[..., FIRST_ROW:, 0].mean(-1)


def row_entropy(patterns: Patterns) -> Float[Tensor, "*batch query"]:
    """Entropy of each query's attention. Nats."""
    return torch.special.entr(patterns).sum(-1)


def entropy(rows: Float[Tensor, "*batch query"]) -> Scores:
    """Mean of `row_entropy` over queries from 1 on. Nats."""
    return rows[..., 1:].mean(-1)


def relative_entropy(rows: Float[Tensor, "*batch query"]) -> Scores:
    """`row_entropy` over the most it could be, ln(query + 1), averaged over queries from 1 on. 1 is uniform attention."""
    most = torch.arange(1, rows.shape[-1] + 1).log()
    return (rows[..., 1:] / most[1:]).mean(-1)


def mean_distance(patterns: Patterns) -> Scores:
    """How far back a query looks on average, over queries from 1 on. Positions."""
    position = torch.arange(patterns.shape[-1], dtype=patterns.dtype)
    centre = patterns @ position  # [*batch query]
    return (position - centre)[..., 1:].mean(-1)


def offset_profile(patterns: Patterns) -> Float[Tensor, "*batch offset"]:
    """Mean attention k positions back for every k, over the queries that have such a position. Share."""
    length = patterns.shape[-1]
    flipped = patterns.flip(-1).contiguous()  # keys from right to left, so that a step down and left is one stride
    strides = (*flipped.stride()[:-2], length - 1, 1)
    by_offset = flipped.as_strided(
        flipped.shape, strides, length - 1
    )  # [*batch query offset], wrong beyond the diagonal
    return by_offset.tril().sum(-2) / torch.arange(length, 0, -1)


def prefix_matching_score(patterns: Patterns, half: int) -> Scores:
    """Attention from a token of the second copy to the token after its first occurrence. Share.

    For patterns on sequences that repeat after `half` tokens (`synthetic.repeats`): a query at position i >= half held
    the same token at i - half, and an induction head looks at i - half + 1 (Olsson et al. 2022, "Prefix matching").

    Raises:
        ValueError: the repeat is shorter than two tokens or leaves no second copy.
    """
    if not 2 <= half < patterns.shape[-1]:
        raise ValueError(f"a repeat of {half} tokens in {patterns.shape[-1]}: expected 2 or more, and room for a copy")
    return offset_diagonal(patterns, half - 1)[..., 1:].mean(-1)


def offset_diagonal(patterns: Patterns, offset: int) -> Float[Tensor, "*batch place"]:
    """Attention exactly `offset` positions back, for the queries `offset` and on."""
    return patterns.diagonal(-offset, dim1=-2, dim2=-1)


def output_contributions(
    model: GPT, layer: int, z: Float[Tensor, "batch pos head d_head"]
) -> Float[Tensor, "batch pos head d_model"]:
    """What each head adds to the residual stream: its mixed values through its own rows of the output projection.

    Summed over heads, plus the projection's bias, this is `attn_out` exactly (Elhage et al. 2021, "A mathematical
    framework for transformer circuits", section "Attention heads are independent and additive").
    """
    return torch.einsum("bphd,hdm->bphm", z, output_weights(model, layer))


def output_norms(model: GPT, layer: int, z: Float[Tensor, "batch pos head d_head"]) -> Float[Tensor, "batch pos head"]:
    """Length of each head's contribution, from products of d_head rather than d_model numbers: |z W|² = z (W Wᵀ) zᵀ."""
    weights = output_weights(model, layer)
    gram = weights @ weights.mT  # [head d_head d_head]
    return torch.einsum("bphd,hde,bphe->bph", z, gram, z).clamp(min=0).sqrt()


def output_weights(model: GPT, layer: int) -> Float[Tensor, "head d_head d_model"]:
    """Each head's own rows of the output projection."""
    weight = model.block(layer).attn.proj.weight  # [d_model head*d_head]
    return weight.T.unflatten(0, (model.config.heads, model.config.d_head))
