"""What a model must beat: uniform guessing, token frequencies, pair counts.

Counts come from the training part with one added to each (Laplace), so that unseen pairs cost much but not infinity.
Losses are measured on the targets of the same windows as the model's, in nats.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor


def uniform_loss(d_vocab: int) -> float:
    """ln V: the loss of somebody who knows nothing, in nats."""
    return math.log(d_vocab)


def unigram_losses(
    train: Int[Tensor, "token"], windows: Int[Tensor, "window pos_plus_1"], d_vocab: int
) -> Float[Tensor, "window pos"]:
    """Loss of each target under the training part's token frequencies, in nats."""
    counts = torch.bincount(train, minlength=d_vocab).double() + 1
    return -(counts / counts.sum()).log()[windows[:, 1:]]


def bigram_losses(
    train: Int[Tensor, "token"], windows: Int[Tensor, "window pos_plus_1"], d_vocab: int
) -> Float[Tensor, "window pos"]:
    """Loss of each target given the token before it, under the training part's pair counts, in nats.

    Only pairs that occur are stored, so a vocabulary of 50,000 tokens costs no 50,000 × 50,000 table.
    """
    pairs, counts = torch.unique(train[:-1] * d_vocab + train[1:], return_counts=True)
    wanted = windows[:, :-1] * d_vocab + windows[:, 1:]
    place = torch.searchsorted(pairs, wanted).clamp(max=len(pairs) - 1)
    joint = torch.where(pairs[place] == wanted, counts[place], 0).double() + 1
    before = torch.bincount(train[:-1], minlength=d_vocab).double() + d_vocab
    return -(joint / before[windows[:, :-1]]).log()


def bigram_in_sample(tokens: Int[Tensor, "token"], d_vocab: int) -> float:
    """Mean loss under the pair counts of the same tokens, nothing added: how well a table fits what it was made of, in nats."""
    pairs = (
        torch.bincount(tokens[:-1] * d_vocab + tokens[1:], minlength=d_vocab * d_vocab).view(d_vocab, d_vocab).double()
    )
    share = pairs / pairs.sum(1, keepdim=True).clamp(min=1)
    return float(-(torch.xlogy(pairs, share)).sum() / pairs.sum())


STRENGTHS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # of the back-off, tried on training windows


def in_context_losses(
    train: Int[Tensor, "train_window pos_plus_1"], windows: Int[Tensor, "window pos_plus_1"], d_vocab: int
) -> tuple[Float[Tensor, "window pos"], Float[Tensor, "window pos"]]:
    """Losses of two predictors that know nothing but the window so far: its token counts, and its pair counts. Nats.

    Counts back off as in Dirichlet smoothing: tokens to uniform, pairs to tokens; how strongly is chosen on training
    windows. The first needs no knowledge of order; the second is what copying what followed the same token can reach.
    """
    token = min(STRENGTHS, key=lambda beta: float(_context(train, d_vocab, beta, 1.0)[0].mean()))
    pair = min(STRENGTHS, key=lambda gamma: float(_context(train, d_vocab, token, gamma)[1].mean()))
    return _context(windows, d_vocab, token, pair)


def _context(windows: Tensor, d_vocab: int, beta: float, gamma: float) -> tuple[Tensor, Tensor]:
    seen = torch.nn.functional.one_hot(windows[:, :-1], d_vocab).double()  # [window pos d_vocab]
    length = torch.arange(1, seen.shape[1] + 1, dtype=torch.double)[:, None]
    tokens = (seen.cumsum(1) + beta / d_vocab) / (length + beta)
    inputs, followers = windows[:, :-1], torch.nn.functional.one_hot(windows[:, 1:], d_vocab).double()
    alike = (inputs[:, :, None] == inputs[:, None, :]).tril(-1).double()  # [window pos earlier_pos]
    pairs = (alike @ followers + gamma * tokens) / (alike.sum(-1, keepdim=True) + gamma)
    target = windows[:, 1:, None]
    return -tokens.gather(2, target).log()[..., 0], -pairs.gather(2, target).log()[..., 0]
