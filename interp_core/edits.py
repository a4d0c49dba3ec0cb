"""Edits of a site's tensor, for `forward(..., edits=...)`: every ablation and every patch is made of these."""

from collections.abc import Collection

import torch
from jaxtyping import Float
from torch import Tensor

from interp_core.model import Edit


def zero(x: Tensor) -> Tensor:
    """Nothing instead of what was there."""
    return torch.zeros_like(x)


def put(value: Float[Tensor, "window value_pos *rest"]) -> Edit:
    """Another value instead of what was there: a mean (one window, used for all), or what another run had (patching).

    A value with more positions than the site is cut to the first of them.
    """
    return lambda x: value[:, : x.shape[1]].expand_as(x)


def on_heads(heads: Collection[int], edit: Edit) -> Edit:
    """The edit for some heads only, of a site with heads ([batch pos head d_head])."""

    def only(x: Tensor) -> Tensor:
        chosen = torch.zeros(x.shape[2], dtype=torch.bool)
        chosen[list(heads)] = True
        return torch.where(chosen[:, None], edit(x), x)

    return only
