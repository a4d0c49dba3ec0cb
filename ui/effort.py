"""What a measurement will cost on this machine, and how much is read of a model that is large for it.

Sizes follow from the number of parameters, so that they are the same on every machine; seconds are measured.
"""

import math
import time

import torch

from interp_core.atlas import MOST_CELLS
from interp_core.model import GPT, forward

LARGE = 20_000_000  # parameters, from which less is read by default
SHORTEST = 64  # tokens of a window that a large model reads by default
READ = 3_000_000_000  # parameters times tokens of a window, by default
PATIENCE = 60.0  # seconds, beyond which a measurement waits until it is asked for
OWN_TOKENS, FEW_OWN_TOKENS = 8192, 2048  # drawn from a checkpoint, half of them for validation; of a large one
FEWEST_SAMPLES = 16  # windows, however long
TIMED_TOKENS = 64


def is_large(model: GPT) -> bool:
    """Whether a pass over a few thousand tokens takes seconds."""
    return model.count() > LARGE


def longest_window(model: GPT) -> int:
    """Tokens of a window: the context, or as many as leave all heads' patterns room in memory."""
    config = model.config
    return min(config.context, math.isqrt(MOST_CELLS // (config.layers * config.heads)))


def usual_window(model: GPT) -> int:
    """Tokens of a window unless the visitor says otherwise."""
    return min(longest_window(model), max(SHORTEST, READ // model.count()))


def own_count(model: GPT, length: int) -> int:
    """How many windows are drawn from a checkpoint."""
    return max(FEWEST_SAMPLES, (FEW_OWN_TOKENS if is_large(model) else OWN_TOKENS) // length)


@torch.no_grad()
def seconds_a_token(model: GPT) -> float:
    """How long a token takes in a forward pass, from the second of two short ones."""
    tokens = torch.zeros(2, min(TIMED_TOKENS, model.config.context), dtype=torch.long)
    forward(model, tokens)
    begun = time.perf_counter()
    forward(model, tokens)
    return (time.perf_counter() - begun) / tokens.numel()


def in_words(seconds: float) -> str:
    """`40 seconds`, `6 minutes`, `2 hours`."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.0f} hours"
