"""Random token sequences with a known structure, for questions that no natural text can answer.

Each function returns `count` sequences of `length` tokens below `d_vocab`. The Induction page explains what each tells.
"""

from collections.abc import Callable

import torch
from jaxtyping import Int
from torch import Generator, Tensor

Sequences = Int[Tensor, "sequence pos"]


def repeats(d_vocab: int, length: int, count: int, seed: int, half: int | None = None) -> Sequences:
    """Uniform random tokens, then the same tokens again (Olsson et al. 2022, "In-context learning and induction heads").

    Args:
        d_vocab: number of tokens.
        length: of each sequence; the copies go on until it is full.
        count: number of sequences.
        seed: of the draw.
        half: tokens before the repeat begins; half the length by default.
    """
    half = length // 2 if half is None else half
    if not 1 <= half <= length:
        raise ValueError(f"a repeat after {half} tokens does not fit {length} tokens")
    base = torch.randint(d_vocab, (count, half), generator=_generator(seed))
    return base[:, torch.arange(length) % half]


def periodic(d_vocab: int, length: int, count: int, seed: int, shortest: int = 8, longest: int = 32) -> Sequences:
    """Uniform random tokens repeated with a period drawn for each sequence, `shortest` to `longest`."""
    generator = _generator(seed)
    periods = torch.randint(shortest, longest + 1, (count, 1), generator=generator)
    base = torch.randint(d_vocab, (count, longest), generator=generator)
    return base.gather(1, torch.arange(length) % periods)


def alphabet(d_vocab: int, length: int, count: int, seed: int, smallest: int = 4, largest: int = 24) -> Sequences:
    """Independent draws from an alphabet drawn for each sequence: which tokens are around tells, their order does not."""
    generator = _generator(seed)
    letters, sizes = _alphabets(d_vocab, count, smallest, largest, generator)
    return letters.gather(1, _below(sizes, (count, length), generator))


def successors(
    d_vocab: int, length: int, count: int, seed: int, smallest: int = 6, largest: int = 32, follow: float = 0.7
) -> Sequences:
    """Each sequence draws an alphabet and a random successor for each of its tokens.

    The next token is the successor with probability `follow`, else a uniform jump within the alphabet: only by finding
    the current token's earlier occurrence can one tell what follows.
    """
    generator = _generator(seed)
    letters, sizes = _alphabets(d_vocab, count, smallest, largest, generator)
    successor = _below(sizes, (count, letters.shape[1]), generator)  # index into letters
    jumps = _below(sizes, (count, length), generator)
    follows = torch.rand((count, length), generator=generator) < follow
    states = [jumps[:, :1]]
    for i in range(1, length):
        states.append(torch.where(follows[:, i : i + 1], successor.gather(1, states[-1]), jumps[:, i : i + 1]))
    return letters.gather(1, torch.cat(states, dim=1))


KINDS: dict[str, Callable[[int, int, int, int], Sequences]] = {
    "repeats": repeats,
    "periodic": periodic,
    "alphabet": alphabet,
    "successors": successors,
}


def _generator(seed: int) -> Generator:
    return torch.Generator().manual_seed(seed)


def _alphabets(d_vocab: int, count: int, smallest: int, largest: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Shuffled tokens [sequence letter] and how many of them each sequence uses [sequence 1], at most d_vocab."""
    largest = min(largest, d_vocab)
    sizes = torch.randint(min(smallest, largest), largest + 1, (count, 1), generator=generator)
    return torch.rand((count, d_vocab), generator=generator).argsort(1)[:, :largest], sizes


def _below(sizes: Tensor, shape: tuple[int, int], generator: Generator) -> Tensor:
    """Uniform numbers below each row's size."""
    return (torch.rand(shape, generator=generator) * sizes).long().clamp(max=sizes - 1)
