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


def test_counts_of_the_window_so_far_by_hand() -> None:
    windows = torch.tensor([[0, 1, 0, 1]])
    tokens, pairs = baselines._context(windows, 3, 1.5, 2.0)
    expected = [
        0.5 / 2.5,
        1.5 / 3.5,
        1.5 / 4.5,
    ]  # 1 after [0]; 0 after [0 1]; 1 after [0 1 0]; half a token added to each
    assert tokens[0].exp().tolist() == pytest.approx([1 / p for p in expected])
    last = (1 + 2.0 * expected[2]) / (1 + 2.0)  # 0 was followed by 1 once
    assert pairs[0].exp().tolist() == pytest.approx([1 / expected[0], 1 / expected[1], 1 / last])


def test_counts_of_the_window_see_nothing_to_come() -> None:
    one = torch.randint(5, (3, 9), generator=torch.Generator().manual_seed(0))
    other = one.clone()
    other[:, 6:] = (other[:, 6:] + 1) % 5
    for a, b in zip(baselines._context(one, 5, 1.0, 1.0), baselines._context(other, 5, 1.0, 1.0), strict=True):
        torch.testing.assert_close(a[:, :5], b[:, :5])
