"""Copying: does a model predict a token from its earlier occurrence in the same context?

Random tokens cannot be known by heart, so what a model predicts of them better than chance it has from the context. But a
sequence that is repeated helps in two ways: its tokens are *around*, and their *order* can be copied. Only order tells
copying. So the same targets at the same positions are predicted after three contexts: the same tokens in the same order,
the same tokens shuffled, unrelated tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_core.model import GPT, Edits, token_losses
from interp_core.statistics import Interval, interval, mean_interval, upper_bound

CONDITIONS = ("same", "shuffled", "unrelated")
SHORTEST = 2  # tokens of a repeat: one target
BATCH_TOKENS = 1024  # read at once: what a layer writes then stays in the processor's cache
Progress = Callable[[float], None]
Sequences = Int[Tensor, "sequence pos"]
Losses = Float[np.ndarray, "sequence target"]


@dataclass(frozen=True)
class Protocol:
    """How repeats are made.

    Raises:
        ValueError: a number out of its range.
    """

    half: int = 32  # tokens that are repeated
    copies: int = 2
    sequences: int = 300
    seed: int = 0

    def __post_init__(self) -> None:
        if self.half < SHORTEST or self.copies < 2 or self.sequences < 2:
            raise ValueError(
                f"{self.copies} copies of {self.half} tokens, {self.sequences} sequences: expected 2 or more of each"
            )

    @property
    def length(self) -> int:
        """Tokens of a whole sequence; a model reads all but the last."""
        return self.half * self.copies


def longest_half(context: int, copies: int = 2) -> int:
    """The longest repeat that a context has room for."""
    return (context + 1) // copies


@dataclass(frozen=True, eq=False)
class Behaviour:
    """How well the last copy is predicted after each of the three contexts."""

    losses: dict[str, Losses]  # condition -> loss of every target of the last copy, nats; target 0 cannot be copied
    first_copy: Float[np.ndarray, "sequence first_target"]  # loss of targets 1 on of the first copy, nats
    seed: int

    def gain(self, condition: str) -> Float[np.ndarray, "sequence"]:
        """Loss after another context minus loss after the same one, targets 1 on, for each sequence. Nats."""
        return self.losses[condition][:, 1:].mean(1) - self.losses["same"][:, 1:].mean(1)

    @property
    def copying_gain(self) -> Interval:
        """What the order of the earlier tokens is worth: shuffled minus same. Nats."""
        return interval(self.gain("shuffled"), self.seed)

    @property
    def context_gain(self) -> Interval:
        """What the earlier tokens are worth, order and all: unrelated minus same. Nats."""
        return interval(self.gain("unrelated"), self.seed)

    @property
    def vocabulary_gain(self) -> Interval:
        """What it is worth that the tokens are around, in any order: unrelated minus shuffled. Nats."""
        return interval(self.gain("unrelated") - self.gain("shuffled"), self.seed)

    @property
    def course_gain(self) -> Interval:
        """First copy minus last copy, as the course's notebook measures: confounded with position and with vocabulary. Nats."""
        return _course_gain(self.first_copy, self.losses["same"], self.seed)

    @property
    def copying_at_most(self) -> float:
        """One-sided upper 95% bound of the copying gain. Nats."""
        return upper_bound(self.gain("shuffled"), self.seed)

    def table(self) -> pd.DataFrame:
        """A row a condition and target: condition, position (0 to half - 1), loss_nats, _low, _high."""
        tables = []
        for condition, losses in self.losses.items():
            mean, low, high = mean_interval(losses, self.seed)
            columns = {"condition": condition, "position": range(losses.shape[1])}
            tables.append(pd.DataFrame({**columns, "loss_nats": mean, "loss_nats_low": low, "loss_nats_high": high}))
        return pd.concat(tables, ignore_index=True)


def conditions(
    d_vocab: int, protocol: Protocol, frequencies: Float[Tensor, "d_vocab"] | None = None
) -> dict[str, Sequences]:
    """The three contexts, each before the same last copy.

    Args:
        d_vocab: number of tokens.
        protocol: lengths, counts and seed.
        frequencies: how likely each token is drawn; uniform by default.
    """
    generator = torch.Generator().manual_seed(protocol.seed)
    shape = (protocol.sequences, protocol.half)

    def draw() -> Tensor:
        if frequencies is None:
            return torch.randint(d_vocab, shape, generator=generator)
        return torch.multinomial(frequencies, shape[0] * shape[1], replacement=True, generator=generator).view(shape)

    last, unrelated = draw(), draw()
    shuffled = last.gather(1, torch.rand(shape, generator=generator).argsort(1))
    before = {"same": last, "shuffled": shuffled, "unrelated": unrelated}
    return {name: torch.cat([before[name].repeat(1, protocol.copies - 1), last], dim=1) for name in CONDITIONS}


@torch.no_grad()
def measure(
    model: GPT,
    protocol: Protocol,
    frequencies: Float[Tensor, "d_vocab"] | None = None,
    progress: Progress | None = None,
) -> Behaviour:
    """Measures the loss of the last copy after each of the three contexts.

    Args:
        model: the model.
        protocol: lengths, counts and seed.
        frequencies: how likely each token is drawn; uniform by default.
        progress: told the share that is done.

    Raises:
        ValueError: the repeat does not fit the context.
    """
    made, found = conditions(model.config.d_vocab, protocol, frequencies), {}
    for done, (name, sequences) in enumerate(made.items()):
        found[name] = _losses(model, sequences, protocol)
        if progress:
            progress((done + 1) / len(made))
    last = {name: losses[:, -protocol.half :] for name, losses in found.items()}
    return Behaviour(last, found["same"][:, : protocol.half - 1], protocol.seed)


@torch.no_grad()
def course_gain(model: GPT, protocol: Protocol, frequencies: Float[Tensor, "d_vocab"] | None = None) -> Interval:
    """`Behaviour.course_gain` alone, which needs only one of the three contexts. Nats."""
    losses = _losses(model, conditions(model.config.d_vocab, protocol, frequencies)["same"], protocol)
    return _course_gain(losses[:, : protocol.half - 1], losses[:, -protocol.half :], protocol.seed)


@torch.no_grad()
def gain_under(
    model: GPT, protocol: Protocol, frequencies: Float[Tensor, "d_vocab"] | None, edits: Edits
) -> Float[np.ndarray, "sequence"]:
    """The copying gain of each sequence, as `Behaviour.gain("shuffled")`, with edits: what is left of it without a head? Nats."""
    made = conditions(model.config.d_vocab, protocol, frequencies)
    mean = {c: _losses(model, made[c], protocol, edits)[:, 1 - protocol.half :].mean(1) for c in ("same", "shuffled")}
    return mean["shuffled"] - mean["same"]


def _course_gain(first: Float[np.ndarray, "sequence first_target"], last: Losses, seed: int) -> Interval:
    return interval(first.mean(1) - last[:, 1:].mean(1), seed)


def _losses(model: GPT, sequences: Sequences, protocol: Protocol, edits: Edits | None = None) -> Losses:
    if protocol.length - 1 > model.config.context:
        raise ValueError(
            f"{protocol.copies} copies of {protocol.half} tokens do not fit a context of {model.config.context}: "
            f"repeat at most {longest_half(model.config.context, protocol.copies)}"
        )
    return token_losses(model, sequences, edits, max(1, BATCH_TOKENS // protocol.length)).numpy()
