"""A pool's samples come from the model, with the probabilities that it gives them."""

import numpy as np
import pytest
import torch

from interp_core import pools
from interp_core.model import forward, token_losses
from tests.conftest import SMALL, random_model


def test_probabilities_are_the_models() -> None:
    model, told = random_model(), []
    pool = pools.draw(model, 300, 9, seed=1, progress=told.append, first=3)
    assert pool.tokens.shape == (300, 9)
    whole = torch.cat([torch.full((300, 1), 3), pool.tokens], 1)
    np.testing.assert_allclose(pool.log_probabilities, -token_losses(model, whole).double().sum(1).numpy(), atol=1e-4)
    assert told[-1] == 1
    assert told == sorted(told)


def test_frequencies_are_the_models() -> None:
    model = random_model()
    pool = pools.draw(model, 6000, 2, seed=0)
    exact = forward(model, torch.zeros(1, 1, dtype=torch.long)).logits[0, 0].softmax(-1)
    seen = torch.bincount(pool.tokens[:, 0], minlength=SMALL.d_vocab) / 6000
    assert (seen - exact).abs().max() < 4 * float((exact * (1 - exact) / 6000).sqrt().max())


def test_batches_are_drawn_apart_and_a_seed_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "BATCH", 100)
    first, again = (pools.draw(random_model(), 250, 8, seed=4) for _ in range(2))
    assert torch.equal(first.tokens, again.tokens)
    assert not torch.equal(first.tokens[:100], first.tokens[100:200])


def test_what_the_context_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 12"):
        pools.draw(random_model(), 5, 13, 0)
