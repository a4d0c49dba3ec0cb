"""How well each generation of language models predicts the same held-out characters: a table of bits a character.

All rows have the same targets, those of all disjoint windows of the validation part; each predictor sees of what comes
before them as much as it can use: nothing, one token, k tokens (also from before the window), or the window so far.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp_core import baselines, bengio, corpora
from interp_core.bengio import Bengio
from interp_core.corpora import Text
from interp_core.model import GPT, token_losses
from interp_core.statistics import Interval, interval

BATCH = 64  # windows
NATS_PER_BIT = float(np.log(2))
Kind = Literal["counts", "MLP", "GPT"]
SHANNON = (0.6, 1.3)  # bits a letter of English, 27 letters, readers who know 100 before it (Shannon 1951, figure 4)


@dataclass(frozen=True, eq=False)
class Row:
    """One predictor: bits a character with the interval over windows, its size, and how long its training took."""

    name: str
    kind: Kind
    bits: Interval
    parameters: int
    seconds: float
    windows: Float[np.ndarray, "window"]  # bits, for paired differences


def of_counts(text: Text, d_vocab: int, context: int, seed: int = 0) -> list[Row]:
    """Uniform guessing, the frequencies of single tokens, and those of pairs; counted on the training part."""
    windows = corpora.all_windows(text, context)
    rows = [_row("uniform", "counts", torch.full(windows[:, 1:].shape, baselines.uniform_loss(d_vocab)), 0, 0.0, seed)]
    for name, losses, size in (
        ("unigram counts", baselines.unigram_losses, d_vocab),
        ("bigram counts", baselines.bigram_losses, d_vocab**2),
    ):
        begun = time.perf_counter()
        found = losses(text.train, windows, d_vocab)
        rows.append(_row(name, "counts", found, size, time.perf_counter() - begun, seed))
    return rows


def of_bengio(model: Bengio, text: Text, context: int, seconds: float, seed: int = 0) -> Row:
    """The MLP over the last k tokens."""
    windows = corpora.all_windows(text, context, before=model.context - 1)
    losses = bengio.losses(model, windows)
    return _row(f"Bengio 2003 MLP, k = {model.context}", "MLP", losses, model.count(), seconds, seed)


@torch.no_grad()
def of_gpt(
    name: str, model: GPT, text: Text, seconds: float, seed: int = 0, progress: Callable[[float], None] | None = None
) -> Row:
    """A GPT, window by window: its first target has one token to go by, its last a whole context."""
    windows, parts = corpora.all_windows(text, model.config.context), []
    for part in windows.split(BATCH):
        parts.append(token_losses(model, part))
        if progress:
            progress(min(1.0, len(parts) * BATCH / len(windows)))
    return _row(f"GPT: {name}", "GPT", torch.cat(parts), model.count(), seconds, seed)


def _row(
    name: str, kind: Kind, losses: Float[Tensor, "window target"], parameters: int, seconds: float, seed: int
) -> Row:
    bits = losses.double().mean(1).numpy() / NATS_PER_BIT
    return Row(name, kind, interval(bits, seed), parameters, seconds, bits)
