"""The one attention, cut where a reader wants to look: the pattern, the mixing of values, and both fused.

Projections live with the weights in `model.py`; here are only queries, keys, values and what becomes of them.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor


def attention_pattern(
    q: Float[Tensor, "batch query head d_head"], k: Float[Tensor, "batch key head d_head"], scale: float
) -> Float[Tensor, "batch head query key"]:
    """Causal attention in the open: softmax over the keys at or before each query.

    The queries are the last of the keys' positions. Rows sum to one. (Vaswani et al. 2017, section 3.2.1.)
    """
    (batch, query, head, _), key = q.shape, k.shape[1]
    rows, columns = (t.transpose(1, 2).flatten(0, 1) for t in (q, k))  # [batch*head pos d_head]
    hidden = torch.zeros(query, key, dtype=q.dtype).masked_fill(~causal_mask(query, key), -torch.inf)
    scores = torch.baddbmm(hidden, rows, columns.mT, alpha=scale)  # adds, scales and hides in one pass
    return scores.softmax(-1).view(batch, head, query, key)


def mix(
    pattern: Float[Tensor, "batch head query key"], v: Float[Tensor, "batch key head d_head"]
) -> Float[Tensor, "batch query head d_head"]:
    """Each head's values, averaged with its pattern as weights."""
    return (pattern @ v.transpose(1, 2)).transpose(1, 2)


def attend(
    q: Float[Tensor, "batch query head d_head"],
    k: Float[Tensor, "batch key head d_head"],
    v: Float[Tensor, "batch key head d_head"],
    scale: float,
) -> Float[Tensor, "batch query head d_head"]:
    """`mix(attention_pattern(q, k), v)` by torch's fused kernel, which never writes the pattern to memory."""
    whole = q.shape[1] == k.shape[1]
    mask = None if whole or q.shape[1] == 1 else causal_mask(q.shape[1], k.shape[1])
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))  # [batch head pos d_head]
    return F.scaled_dot_product_attention(q, k, v, mask, is_causal=whole, scale=scale).transpose(1, 2)


def causal_mask(query: int, key: int) -> Bool[Tensor, "query key"]:
    """True where a query may look: at keys at or before it. The queries are the last of the keys' positions."""
    return torch.ones(query, key, dtype=torch.bool).tril(key - query)
