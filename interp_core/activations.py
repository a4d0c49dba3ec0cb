"""What a model holds at its sites while it reads a text: vectors, each with its token, its place and its block.

Windows are disjoint and in the order of the text, so that folds can be runs of neighbouring windows (`block_folds`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_core.model import GPT, forward

BATCH_TOKENS = 4096


@dataclass(frozen=True, eq=False)
class Activations:
    """The vectors of one site, a row a position; windows one after the other."""

    site: str
    values: Float[Tensor, "row dim"]
    tokens: Int[Tensor, "row"]  # the token that is read at the position
    windows: Int[Tensor, "row"]  # which window it is in, counted from 0 in the order of the text
    positions: Int[Tensor, "row"]  # in the window


@torch.no_grad()
def gather(
    model: GPT,
    windows: Int[Tensor, "window pos"],
    sites: Sequence[str],
    progress: Callable[[float], None] | None = None,
) -> dict[str, Activations]:
    """The activations of several sites, collected in one pass over the windows.

    Args:
        model: the weights.
        windows: what it reads, all positions of it.
        sites: names of `forward`'s taps whose first two axes are batch and position; heads are laid side by side.
        progress: told how far it is.

    Raises:
        ValueError: a pattern or logits, which are no vectors of a position.
    """
    wrong = [site for site in sites if site.startswith("pattern") or site == "logits"]
    if wrong:
        raise ValueError(
            f"{', '.join(wrong)}: expected sites that hold a vector for each position, such as resid_post.0"
        )
    count, length = windows.shape
    parts: dict[str, list[Tensor]] = {site: [] for site in sites}
    batch = max(1, BATCH_TOKENS // length)
    for done, part in enumerate(windows.split(batch)):
        trace = forward(model, part, taps=tuple(sites), stop_early=True)
        for site in sites:
            parts[site].append(trace[site].flatten(2).flatten(0, 1))
        if progress:
            progress(min(1.0, (done + 1) * batch / count))
    which = torch.arange(count).repeat_interleave(length)
    where = torch.arange(length).repeat(count)
    return {site: Activations(site, torch.cat(found), windows.flatten(), which, where) for site, found in parts.items()}
