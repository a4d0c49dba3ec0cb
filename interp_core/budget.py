"""What a training would cost, before it begins: parameters, memory, time."""

import time

import torch

from interp_core.model import GPT, ModelConfig
from interp_core.plans import Recipe
from interp_core.training import Run

SHORTEST = 4  # tokens of a context
MOST_PARAMETERS = 200_000_000
MOST_BYTES = 6_000_000_000  # of memory
PROBED = 5e11  # arithmetic operations a step, beyond which no step is tried
OPERATIONS = 5e10  # a second, for a guess where none is tried


class OutOfBounds(ValueError):
    """A training that this app does not take on; says what is too large or too small."""


def parameters(config: ModelConfig) -> int:
    """How many numbers a model has, without making one."""
    with torch.device("meta"):
        return GPT(config, seed=None).count()


def memory(config: ModelConfig, recipe: Recipe) -> int:
    """Bytes that a training takes, roughly: weights, gradients, two moments, and what the backward pass reads again."""
    positions = recipe.batch * config.context
    inner = config.heads * config.d_head
    kept = config.layers * (8 * config.d_model + 4 * inner + 3 * config.d_mlp) + 3 * config.d_vocab
    return 4 * (4 * parameters(config) + positions * kept)


def operations(config: ModelConfig, recipe: Recipe) -> float:
    """Arithmetic operations of a step: six for each parameter and position, and those between positions (Kaplan et al. 2020)."""
    between = 12 * config.layers * config.heads * config.d_head * config.context
    return recipe.batch * config.context * (6.0 * parameters(config) + between)


def check(config: ModelConfig, recipe: Recipe) -> None:
    """Refuses what would not fit, and what leaves attention nothing to do.

    Raises:
        OutOfBounds: too short a context, too many parameters, or too much memory.
    """
    if config.context < SHORTEST:
        raise OutOfBounds(
            f"A context of {config.context} leaves attention nothing to choose from: {SHORTEST} is the least."
        )
    count = parameters(config)
    if count > MOST_PARAMETERS:
        raise OutOfBounds(
            f"{count:,} parameters are more than the {MOST_PARAMETERS:,} trained here: fewer layers, or narrower."
        )
    needed = memory(config, recipe)
    if needed > MOST_BYTES:
        raise OutOfBounds(
            f"About {needed / 1e9:.1f} GB of memory, more than the {MOST_BYTES / 1e9:.0f} taken here: a smaller batch, or "
            "a shorter context."
        )


def seconds_a_step(config: ModelConfig, recipe: Recipe, steps: int = 2) -> float:
    """How long a step takes on this machine now: the fastest of a few on random tokens, or a guess where one would be long."""
    work = operations(config, recipe)
    if work > PROBED:
        return work / OPERATIONS
    run, taken = Run(GPT(config), recipe), []
    generator = torch.Generator().manual_seed(0)
    windows = torch.randint(config.d_vocab, (recipe.batch, config.context + 1), generator=generator)
    for _ in range(steps + 1):
        begun = time.perf_counter()
        run.advance(windows)
        taken.append(time.perf_counter() - begun)
    return min(taken[1:])
