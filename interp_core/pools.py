"""A pool of samples with the probability of each: what best-of-n and tilting choose from."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_core.model import GPT, Cache, forward

BATCH = 2048  # samples drawn side by side, fewer where their keys and values would not fit
MOST_CELLS = 2**27  # numbers of keys and values: 512 MB


@dataclass(frozen=True, eq=False)
class Pool:
    """Samples drawn from scratch at temperature 1."""

    tokens: Int[Tensor, "sample pos"]  # without the token that they begin with
    log_probabilities: Float[np.ndarray, "sample"]  # of each, given that token; nats


@torch.no_grad()
def draw(
    model: GPT,
    count: int,
    length: int,
    seed: int,
    progress: Callable[[float], object] = lambda share: None,
    first: int = 0,
) -> Pool:
    """Draws `count` samples of `length` tokens, each after the same first token.

    Args:
        model: the reference.
        count: how many.
        length: tokens of each, at most the context.
        seed: of the sampling.
        progress: told the share that is done.
        first: the token that all begin with.

    Raises:
        ValueError: a length beyond the context, or no sample.
    """
    if not 1 <= length <= model.config.context or count < 1:
        raise ValueError(f"{count} samples of {length} tokens: expected some, of at most {model.config.context}")
    drawn, said = [], []
    config = model.config
    batch = max(1, min(BATCH, MOST_CELLS // (2 * config.layers * length * config.heads * config.d_head)))
    for start in range(0, count, batch):
        size, generator = min(batch, count - start), torch.Generator().manual_seed(seed + start)
        cache, tokens, told = Cache.empty(config, size, length), torch.full((size, 1), first), torch.zeros(size)
        for place in range(length):
            log_p = forward(model, tokens[:, -1:], cache=cache).logits[:, -1].log_softmax(-1)
            new = torch.multinomial(log_p.exp(), 1, generator=generator)
            told += log_p.gather(1, new)[:, 0]
            tokens = torch.cat([tokens, new], 1)
            progress(min(1.0, (start + size * (place + 1) / length) / count))
        drawn.append(tokens[:, 1:])
        said.append(told.double())
    return Pool(torch.cat(drawn), torch.cat(said).numpy())
