import numpy as np
import pytest
import torch

from interp_core import checkpoints, synthetic, text_copying
from tests.conftest import ROOT, SMALL, random_model
from tests.wired import CONFIG, wired_induction


def test_repeats_are_found_and_paired_by_hand() -> None:
    """One window repeats a trigram, another holds it once; the gain is the difference of two losses read off the model."""
    model = random_model()
    once = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 1])
    twice = torch.tensor([7, 8, 9, 3, 4, 5, 6, 10, 7, 8, 9, 0, 1])
    windows = torch.stack([once, twice])
    found = text_copying.repeated(model, windows)
    assert found is not None
    assert (found.occurrences, found.types) == (1, 1)
    from interp_core.model import token_losses

    losses = token_losses(model, windows)
    assert found.gain.estimate == pytest.approx((losses[0, 8] - losses[1, 9]).item(), abs=1e-5)


def test_the_replaced_token_is_the_one_after_the_earlier_copy() -> None:
    window = torch.tensor([7, 8, 9, 3, 9, 5, 6, 10, 7, 8, 9, 0, 1])
    codes, first = text_copying._trigrams(random_model(), window[None])
    place = text_copying._repeat(window, codes[0], first[0], np.random.default_rng(0))
    assert place == (2, 4, 10)  # the copy's 9, the 9 in other company, the repeat's 9


def test_nothing_to_compare_is_said() -> None:
    tokens = torch.arange(13).expand(3, 13) % SMALL.d_vocab
    assert text_copying.repeated(random_model(), tokens) is None
    assert text_copying.counterfactual(random_model(), tokens) is None


def test_a_wired_circuit_copies_in_text() -> None:
    windows = synthetic.successors(CONFIG.d_vocab, CONFIG.context + 1, 200, 0, smallest=6, largest=10, follow=0.6)
    found = text_copying.counterfactual(wired_induction(loud=3.0), windows)
    assert found is not None
    assert found.difference.low > 0.5
    repeats = text_copying.repeated(wired_induction(loud=3.0), windows)
    assert repeats is not None
    assert repeats.gain.low > 0.1


def test_an_untrained_model_does_not_copy_in_text() -> None:
    windows = synthetic.successors(SMALL.d_vocab, SMALL.context + 1, 200, 0, smallest=4, largest=6)
    missed = 0
    for seed in range(10):
        found = text_copying.counterfactual(random_model(seed=seed), windows, seed)
        assert found is not None
        missed += not found.difference.low <= 0 <= found.difference.high
    assert missed <= 2


@pytest.mark.parametrize(("name", "copies"), [("induction", True), ("alphabet", False)])
def test_the_control_takes_as_much_from_what_is_around(name: str, copies: bool) -> None:
    """`alphabet` suffers from the replacement too, but no more than from the same token replaced elsewhere."""
    model = checkpoints.load(ROOT / "checkpoints" / f"{name}.pt").model
    kind = synthetic.successors if copies else synthetic.alphabet
    found = text_copying.counterfactual(model, kind(65, 65, 200, 9))
    assert found is not None
    assert found.after_copy.low > 0.1
    assert (found.difference.low > 0.1) == copies
    assert copies or found.difference.low <= 0 <= found.difference.high
