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
