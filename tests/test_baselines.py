import math

import pytest
import torch

from interp_core import baselines


def test_unigram_by_hand() -> None:
    train, windows = torch.tensor([0, 0, 0, 1]), torch.tensor([[2, 0, 1]])
    losses = baselines.unigram_losses(train, windows, d_vocab=3)  # counts plus one: 4, 2, 1 of 7
    torch.testing.assert_close(losses, torch.tensor([[math.log(7 / 4), math.log(7 / 2)]], dtype=torch.float64))


def test_bigram_by_hand() -> None:
    train, windows = torch.tensor([0, 1, 0, 1, 1]), torch.tensor([[0, 1, 0, 0, 2]])
    losses = baselines.bigram_losses(train, windows, d_vocab=3)
    expected = [math.log(5 / 3), math.log(5 / 2), math.log(5 / 1), math.log(5 / 1)]  # 0→1 twice; 1→0 once; never; never
    torch.testing.assert_close(losses, torch.tensor([expected], dtype=torch.float64))


def test_bigram_probabilities_sum_to_one() -> None:
    train = torch.randint(7, (500,), generator=torch.Generator().manual_seed(0))
    windows = torch.cartesian_prod(torch.arange(7), torch.arange(7))
    totals = (-baselines.bigram_losses(train, windows, 7)).exp().view(7, 7).sum(1)
    torch.testing.assert_close(totals, torch.ones(7, dtype=torch.float64))


def test_bigram_beats_unigram_only_where_order_tells() -> None:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(5, (20_000,), generator=generator)
    walk = noise.cumsum(0) % 2 * 3 + torch.arange(20_000) % 2  # alternates parity
    for tokens, better in ((noise, False), (walk, True)):
        windows = tokens[-4000:].view(-1, 10)
        gain = (
            baselines.unigram_losses(tokens[:-4000], windows, 5) - baselines.bigram_losses(tokens[:-4000], windows, 5)
        ).mean()
        assert (gain.item() > 0.1) == better


def test_uniform() -> None:
    assert baselines.uniform_loss(65) == pytest.approx(4.174, abs=1e-3)


def test_bigram_of_shakespeare_held_out(shakespeare: str) -> None:
    """3.581 bits a character, measured independently on all of the validation part with add-one counts."""
    from interp_core.tokenizers import CharTokenizer

    tokens = CharTokenizer.of_text(shakespeare).encode(shakespeare)
    cut = int(0.9 * len(tokens))
    losses = baselines.bigram_losses(tokens[:cut], tokens[cut:][None], 65)
    assert losses.mean().item() / math.log(2) == pytest.approx(3.581, abs=0.002)
