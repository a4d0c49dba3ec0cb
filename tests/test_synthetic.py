import math
from itertools import pairwise

import pytest
import torch

from interp_core import synthetic


@pytest.mark.parametrize("kind", synthetic.KINDS)
@pytest.mark.parametrize("d_vocab", [2, 65])
def test_sequences_are_seeded_and_within_the_vocabulary(kind: str, d_vocab: int) -> None:
    draw = synthetic.KINDS[kind]
    tokens = draw(d_vocab, 40, 30, 0)
    assert tokens.shape == (30, 40)
    assert tokens.min() >= 0
    assert tokens.max() < d_vocab
    assert torch.equal(tokens, draw(d_vocab, 40, 30, 0))
    assert not torch.equal(tokens, draw(d_vocab, 40, 30, 1))


def test_repeats_repeat() -> None:
    tokens = synthetic.repeats(65, 40, 200, 0, half=16)
    assert torch.equal(tokens[:, :24], tokens[:, 16:])
    first = tokens[:, :16].flatten()
    assert torch.bincount(first, minlength=65).float().std() < 3 * math.sqrt(len(first) / 65)  # uniform


def test_a_repeat_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="after 50 tokens does not fit 40"):
        synthetic.repeats(65, 40, 1, 0, half=50)


def test_periodic_sequences_have_every_period_of_their_range() -> None:
    tokens = synthetic.periodic(1000, 64, 400, 0)
    periods = set()
    for row in tokens:
        fits = [p for p in range(1, 40) if torch.equal(row[p:], row[:-p])]
        periods.add(fits[0])
    assert periods == set(range(8, 33))


def test_alphabets_have_every_size_and_no_order() -> None:
    tokens = synthetic.alphabet(65, 2000, 200, 0)
    sizes = [len(set(row.tolist())) for row in tokens]
    assert set(sizes) == set(range(4, 25))
    row, size = tokens[0], sizes[0]
    pairs = torch.unique(torch.stack([row[:-1], row[1:]]), dim=1).shape[1]
    assert pairs > 0.95 * size**2  # anything may follow anything


def test_successors_follow_with_the_stated_probability() -> None:
    tokens = synthetic.successors(65, 3000, 60, 0)
    shares, sizes = [], set()
    for row in tokens.tolist():
        letters = set(row)
        sizes.add(len(letters))
        following = {a: [c for b, c in pairwise(row) if b == a] for a in letters}
        most = sum(max(map(f.count, set(f))) for f in following.values() if f)
        shares.append(most / (len(row) - 1) - 0.3 / len(letters))  # jumps hit the successor by chance
    assert min(sizes) >= 6
    assert max(sizes) <= 32
    assert sum(shares) / len(shares) == pytest.approx(0.7, abs=0.02)
