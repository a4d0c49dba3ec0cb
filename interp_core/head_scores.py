"""What a head's attention pattern and its output say about it: one number each, with a name and a unit.

Scores of a pattern are shares of attention averaged over queries; `FIRST_ROW` leaves out the first two queries, which
have too little to choose from (query 0 can only look at itself, query 1 at two places).

Scores of a circuit come from the weights alone, with the gains of the norms folded in and the mean that a norm takes off
taken off (Elhage et al. 2021, "A mathematical framework for transformer circuits").
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp_core.model import GPT, ModelConfig

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


def matching_profile(patterns: Patterns, half: int, offsets: Sequence[int]) -> Float[Tensor, "*batch offset"]:
    """Attention from the second copy to places around the first occurrence of the same token. Share.

    For patterns on sequences that repeat after `half` tokens. Offset 1 is the token after that occurrence (prefix
    matching), 0 the occurrence itself (a duplicate-token head), others a shifted match.

    Raises:
        ValueError: an offset beyond the repeat.
    """
    if max(offsets) >= half or min(offsets) <= half - patterns.shape[-1]:
        raise ValueError(f"offsets {min(offsets)} to {max(offsets)}: expected less than the repeat of {half} tokens")
    found = [offset_diagonal(patterns, half - offset)[..., max(offset, 0) :].mean(-1) for offset in offsets]
    return torch.stack(found, dim=-1)


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


def copying_scores(model: GPT, layer: int) -> Float[Tensor, "head"]:
    """Whether attending to a token makes each head raise that token's own logit: 1 it copies all, -1 it suppresses all.

    The sum of the eigenvalues of W_E W_OV W_U over the sum of their absolute values, from the d_head × d_head product that
    has the same ones. Along this direct path MLPs below are ignored, and so is what earlier heads wrote (Elhage et al.
    2021, section "Summarizing OV/QK matrices").
    """
    values = model.tok.weight @ _value_weights(model, layer)  # [head d_vocab d_head]
    written = output_weights(model, layer) @ _reads(model.lnf, model.head.weight.T)  # [head d_head d_vocab]
    eigenvalues = torch.linalg.eigvals(written @ values)
    return eigenvalues.real.sum(-1) / eigenvalues.abs().sum(-1).clamp(min=1e-30)


def direct_logits(model: GPT, direction: Float[Tensor, "d_model"]) -> Float[Tensor, "d_vocab"]:
    """What a direction of the residual stream adds to each token's logit along the direct path, less their mean.

    The final norm's gain is folded in and the mean that it takes off taken off; its division by the stream's size is not.
    """
    logits = direction @ _reads(model.lnf, model.head.weight.T)
    return logits - logits.mean()


def k_composition(model: GPT, lower: int, upper: int) -> Float[Tensor, "lower_head upper_head"]:
    """How much of what heads of layer `lower` write is read by the keys of heads of layer `upper`.

    |W_QK W_OVᵀ| over |W_QK| |W_OV|, Frobenius norms; compare with `random_composition` (Elhage et al. 2021, section
    "Analyzing composition").

    Raises:
        ValueError: the layers are not in order.
    """
    if not 0 <= lower < upper < model.config.layers:
        raise ValueError(f"layers {lower} and {upper}: expected a lower and a higher one below {model.config.layers}")
    block = model.block(upper)
    q, k = (_reads(block.ln1, _by_head(w, model.config)) for w in (block.attn.query.weight, block.attn.key.weight))
    return _composition(q, k, _value_weights(model, lower), output_weights(model, lower))


def random_composition(config: ModelConfig, draws: int, seed: int) -> Float[Tensor, "draw"]:
    """K-composition of heads of Gaussian weights: what matrices of this shape reach that have nothing to do with each other."""
    generator = torch.Generator().manual_seed(seed)
    tall = (draws, config.d_model, config.d_head)
    q, k, v, o = (torch.randn(tall, generator=generator) for _ in range(4))
    return torch.stack([_composition(*pair)[0, 0] for pair in zip(*(w.split(1) for w in (q, k, v, o.mT)), strict=True)])


def _composition(
    q: Float[Tensor, "upper d_model d_head"],
    k: Float[Tensor, "upper d_model d_head"],
    v: Float[Tensor, "lower d_model d_head"],
    o: Float[Tensor, "lower d_head d_model"],
) -> Float[Tensor, "lower upper"]:
    """From products of d_head × d_head numbers: |Q M Vᵀ|² = tr(QᵀQ M VᵀV Mᵀ) with M = Kᵀ Oᵀ."""
    gram_q, gram_k, gram_v, gram_o = q.mT @ q, k.mT @ k, v.mT @ v, o @ o.mT
    middle = torch.einsum("udi,ljd->luij", k, o)
    joint = torch.einsum("uab,lubc,lcd,luad->lu", gram_q, middle, gram_v, middle)
    norms = torch.einsum("lij,lji->l", gram_v, gram_o)[:, None] * torch.einsum("uij,uji->u", gram_q, gram_k)
    return (joint.clamp(min=0) / norms.clamp(min=1e-30)).sqrt()


def _value_weights(model: GPT, layer: int) -> Float[Tensor, "head d_model d_head"]:
    block = model.block(layer)
    return _reads(block.ln1, _by_head(block.attn.value.weight, model.config))


def _by_head(weight: Float[Tensor, "inner d_model"], config: ModelConfig) -> Float[Tensor, "head d_model d_head"]:
    return weight.unflatten(0, (config.heads, config.d_head)).mT


def _reads(norm: nn.Module, weight: Float[Tensor, "*head d_model out"]) -> Float[Tensor, "*head d_model out"]:
    """A matrix that reads the stream through a norm, as one that reads the stream: gain folded, mean taken off."""
    if isinstance(norm, nn.Identity):
        return weight
    gain = getattr(norm, "weight", None)
    folded = weight if gain is None else gain[:, None] * weight
    return folded - folded.mean(-2, keepdim=True)
