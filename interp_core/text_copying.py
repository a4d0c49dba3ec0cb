"""Copying in natural text, where repeats are words and names rather than random tokens.

Two questions. *Repeated*: is a token predicted better where its trigram stood earlier in the window than where the same
trigram did not? That is a correlation: what is repeated is also what the passage is about. *Counterfactual*: replace the
token that ended the earlier copy. If the model copies from there, the repeat gets harder to predict, and harder than after
replacing the same token where it stood in other company, which takes about as much from what is *around*.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_core.model import GPT, token_losses
from interp_core.statistics import Interval, bootstrap_means, interval, percentile_interval

APART = 4  # tokens at least between the earlier copy and the repeat, so that the two do not overlap


@dataclass(frozen=True)
class Repeated:
    """The same trigrams with an earlier copy in the window and without."""

    gain: Interval  # nats by which the last token is better predicted with an earlier copy
    occurrences: int  # with an earlier copy
    types: int  # trigrams that occur both ways


@dataclass(frozen=True)
class Counterfactual:
    """What replacing one token does to the loss of a repeat further on."""

    after_copy: Interval  # nats added by replacing the last token of the earlier copy
    elsewhere: Interval  # nats added by replacing the same token where other tokens stood before it
    difference: Interval
    windows: int  # one repeat each


@torch.no_grad()
def repeated(model: GPT, windows: Int[Tensor, "window pos_plus_1"], seed: int = 0) -> Repeated | None:
    """Compares the loss of a trigram's last token with and without an earlier copy, trigram by trigram.

    Only targets in the second half of a window are compared, so that both kinds have about as much context. Whole windows
    are resampled, and the comparison is made anew in each resample. None where no trigram occurs both ways.
    """
    codes, first = _trigrams(model, windows)
    losses = token_losses(model, windows).numpy()[:, 1:]  # of the last token of each trigram
    late = np.arange(codes.shape[1])[None] >= codes.shape[1] // 2
    distance = np.arange(codes.shape[1])[None] - first
    kinds = {"with": late & (distance >= APART), "without": late & (distance == 0)}
    types = np.intersect1d(*(codes[kind] for kind in kinds.values()))
    if not len(types):
        return None
    sums = np.zeros((len(windows), len(types), 2, 2))  # [window type kind count_or_loss]
    for k, kind in enumerate(kinds.values()):
        window, place = np.nonzero(kind & np.isin(codes, types))
        which = np.searchsorted(types, codes[window, place])
        np.add.at(sums[:, :, k, 0], (window, which), 1)
        np.add.at(sums[:, :, k, 1], (window, which), losses[window, place])
    low, high = percentile_interval(_gain(bootstrap_means(sums, seed)), len(windows))
    gain = Interval(float(_gain(sums.mean(0)[None])[0]), float(low), float(high))
    return Repeated(gain, int(sums[:, :, 0, 0].sum()), len(types))


@torch.no_grad()
def counterfactual(model: GPT, windows: Int[Tensor, "window pos_plus_1"], seed: int = 0) -> Counterfactual | None:
    """Replaces, for one repeat of each window, the last token of its earlier copy; as a control, the same token elsewhere.

    Replacements are drawn from the tokens of the windows. None where fewer than two windows have such a repeat.
    """
    rng = np.random.default_rng(seed)
    codes, first = _trigrams(model, windows)
    found = [
        (row, *places) for row in range(len(windows)) if (places := _repeat(windows[row], codes[row], first[row], rng))
    ]
    if len(found) < 2:
        return None
    rows, copies, others, targets = np.array(found).T
    chosen = windows[rows]
    intact, after, away = (
        token_losses(model, tokens).numpy()[np.arange(len(rows)), targets - 1]
        for tokens in (chosen, _replace(chosen, copies, windows, rng), _replace(chosen, others, windows, rng))
    )
    return Counterfactual(
        interval(after - intact, seed), interval(away - intact, seed), interval(after - away, seed), len(rows)
    )


def _repeat(
    window: Tensor, codes: np.ndarray, first: np.ndarray, rng: np.random.Generator
) -> tuple[int, int, int] | None:
    """Of one trigram with exactly one earlier copy: where the copy ends, where else its last token stands, where it ends."""
    tokens, places = window.numpy(), np.arange(len(codes))
    once = np.tril(codes[:, None] == codes[None], -1).sum(1) == 1
    for place in rng.permutation(places[once & (places - first >= APART)]):
        copy, target = int(first[place]) + 2, int(place) + 2
        same = np.flatnonzero(tokens[: target - APART] == tokens[target])
        elsewhere = same[(same > 0) & (tokens[same - 1] != tokens[target - 1]) & ~np.isin(same, [copy - 2, copy - 1])]
        if len(elsewhere):
            return copy, int(rng.choice(elsewhere)), target
    return None


def _trigrams(model: GPT, windows: Tensor) -> tuple[Int[np.ndarray, "window place"], Int[np.ndarray, "window place"]]:
    """A number for the trigram that begins at each place, and where it began first in its window."""
    tokens, d_vocab = windows.numpy().astype(np.int64), model.config.d_vocab
    codes = (tokens[:, :-2] * d_vocab + tokens[:, 1:-1]) * d_vocab + tokens[:, 2:]
    first = np.empty_like(codes)
    for row, values in enumerate(codes):
        _, index, inverse = np.unique(values, return_index=True, return_inverse=True)
        first[row] = index[inverse]
    return codes, first


def _gain(sums: Float[np.ndarray, "draw type kind count_or_loss"]) -> Float[np.ndarray, "draw"]:
    """Loss without minus loss with an earlier copy, a mean over the occurrences with one; types that lack a kind drop out."""
    counts, totals = sums[..., 0], sums[..., 1]
    both = (counts > 0).all(-1)
    means = totals / np.where(counts > 0, counts, 1)
    weight = np.where(both, counts[..., 0], 0)
    return ((means[..., 1] - means[..., 0]) * weight).sum(1) / np.maximum(weight.sum(1), 1e-12)


def _replace(windows: Tensor, places: Int[np.ndarray, "window"], source: Tensor, rng: np.random.Generator) -> Tensor:
    """The windows with one token of each replaced by a different one."""
    pool, changed = source.flatten().numpy(), windows.clone()
    for row, place in enumerate(places):
        others = pool[pool != int(windows[row, place])]
        if len(others):
            changed[row, place] = int(rng.choice(others))
    return changed
