import math
from typing import Any

import numpy as np
import pytest
import torch

from interp_core import checkpoints, copying
from interp_core.copying import Protocol
from interp_core.model import GPT, ModelConfig, forward
from tests.conftest import ROOT, SMALL, random_model
from tests.wired import CONFIG, wired_induction

FEW = Protocol(half=6, sequences=40)


def test_the_three_contexts_end_in_the_same_last_copy() -> None:
    made = copying.conditions(SMALL.d_vocab, Protocol(half=6, copies=3, sequences=50))
    same, shuffled, unrelated = (made[name] for name in copying.CONDITIONS)
    last = same[:, 12:]
    assert torch.equal(same[:, :6], last)
    assert torch.equal(same[:, 6:12], last)
    for other in (shuffled, unrelated):
        assert torch.equal(other[:, 12:], last)
        assert torch.equal(other[:, :6], other[:, 6:12])
        assert not torch.equal(other[:, :6], last)
    assert torch.equal(shuffled[:, :6].sort(1).values, last.sort(1).values)
    assert not torch.equal(unrelated[:, :6].sort(1).values, last.sort(1).values)


def test_tokens_come_from_the_frequencies() -> None:
    frequencies = torch.tensor([0.0, 0.7, 0.3])
    tokens = copying.conditions(3, Protocol(half=10, sequences=500), frequencies)["same"]
    counts = torch.bincount(tokens.flatten(), minlength=3) / tokens.numel()
    assert counts.tolist() == pytest.approx([0.0, 0.7, 0.3], abs=0.02)


def test_losses_are_those_of_one_sequence_at_a_time() -> None:
    model = random_model()
    found = copying.measure(model, FEW)
    for name, sequences in copying.conditions(SMALL.d_vocab, FEW).items():
        for row, sequence in enumerate(sequences[:5]):
            log_p = forward(model, sequence[None, :-1]).logits[0].log_softmax(-1)
            losses = [-log_p[place, sequence[place + 1]].item() for place in range(11)]
            assert found.losses[name][row] == pytest.approx(losses[5:], abs=1e-4)
            if name == "same":
                assert found.first_copy[row] == pytest.approx(losses[:5], abs=1e-4)


def test_gains_add_up() -> None:
    found = copying.measure(random_model(), FEW)
    total = found.copying_gain.estimate + found.vocabulary_gain.estimate
    assert total == pytest.approx(found.context_gain.estimate, abs=1e-6)
    table = found.table()
    assert list(table["condition"].unique()) == list(copying.CONDITIONS)
    same = table[(table["condition"] == "same") & (table["position"] > 0)]["loss_nats"].mean()
    shuffled = table[(table["condition"] == "shuffled") & (table["position"] > 0)]["loss_nats"].mean()
    assert shuffled - same == pytest.approx(found.copying_gain.estimate, abs=1e-5)


def test_a_wired_circuit_copies_and_knows_how_well() -> None:
    """Distinct tokens: the copy gets `loud` more than the other logits, so its loss is known."""
    loud, model = 5.0, wired_induction(loud=5.0)
    tokens = torch.stack([torch.randperm(CONFIG.d_vocab)[:10] for _ in range(30)])
    log_p = forward(model, torch.cat([tokens, tokens[:, :-1]], dim=1)).logits.log_softmax(-1)
    losses = -log_p[:, 10:].gather(2, tokens[:, 1:, None]).squeeze(2)
    expected = math.log(math.exp(loud) + CONFIG.d_vocab - 1) - loud
    assert losses[:, 1:].mean().item() == pytest.approx(expected, abs=1e-3)  # position 0 has no token before it
    found = copying.measure(model, Protocol(half=10, sequences=200))
    assert found.copying_gain.low > 1
    assert found.losses["unrelated"].mean() > math.log(CONFIG.d_vocab)


def test_order_is_told_apart_from_what_is_around() -> None:
    """A model that predicts whatever was there before, in any order: a bag of tokens, wired by hand."""
    config = ModelConfig(
        d_vocab=13, context=20, d_model=26, heads=1, layers=1, d_head=13, d_mlp=0, norm="none", out_bias=False
    )
    model = GPT(config, None)
    for parameter in model.parameters():
        parameter.zero_()
    read, written = slice(0, 13), slice(13, 26)
    model.tok.weight[:, read] = torch.eye(13)
    model.block(0).attn.value.weight[:, read] = torch.eye(13)
    model.block(0).attn.proj.weight[written] = torch.eye(13)
    model.head.weight[:, written] = 20 * torch.eye(13)
    found = copying.measure(model, Protocol(half=10, sequences=300))
    assert found.vocabulary_gain.low > 0.3
    assert found.context_gain.low > 0.3
    assert abs(found.copying_gain.estimate) < 1e-5
    assert found.copying_at_most < 1e-4


@pytest.mark.slow
def test_null_intervals_cover_zero_at_the_stated_rate() -> None:
    """Fifty untrained models: nothing to find, and of the 95% intervals no more than a few may miss zero."""
    config = ModelConfig(d_vocab=13, context=24, d_model=16, heads=2, layers=2, d_head=8, d_mlp=32)
    covered, bounded = 0, 0
    for seed in range(50):
        found = copying.measure(random_model(config, seed, size=0.3), Protocol(half=12, sequences=60, seed=seed))
        covered += found.copying_gain.low <= 0 <= found.copying_gain.high
        bounded += found.copying_at_most >= 0
    assert 44 <= covered <= 50
    assert 43 <= bounded <= 50


@pytest.mark.parametrize("d_vocab", [2, 3])
@pytest.mark.parametrize("context", [4, 5, 9])
def test_small_vocabularies_and_short_contexts_work(d_vocab: int, context: int) -> None:
    config = ModelConfig(d_vocab=d_vocab, context=context, d_model=8, heads=2, layers=2, d_head=4, d_mlp=0)
    found = copying.measure(random_model(config), Protocol(half=copying.longest_half(context), sequences=20))
    assert math.isfinite(found.copying_gain.low)
    assert math.isfinite(found.context_gain.high)
    assert np.isfinite(found.table()["loss_nats"]).all()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="2 copies of 7 tokens do not fit a context of 12: repeat at most 6"):
        copying.measure(GPT(SMALL), Protocol(half=7))
    with pytest.raises(ValueError, match="expected 2 or more of each"):
        Protocol(half=1)
    assert copying.longest_half(64) == 32
    assert copying.longest_half(64, 3) == 21


def test_golden_course_gain_and_positions(reference: Any, golden: dict[str, Any]) -> None:
    model = checkpoints.load(reference / "step6_model.pt").model
    bases = copying.conditions(65, Protocol(sequences=300))["same"][:, :32]
    assert bases[:3].tolist() == golden["copy_bases_first3"]
    found = copying.measure(model, Protocol(sequences=300))
    assert found.first_copy.mean() == pytest.approx(golden["copy_gain"]["first"], abs=1e-4)
    assert found.losses["same"][:, 1:].mean() == pytest.approx(golden["copy_gain"]["second"], abs=1e-4)
    assert found.course_gain.estimate == pytest.approx(golden["copy_gain"]["gain"], abs=1e-4)
    many = copying.measure(model, Protocol(sequences=400)).losses["same"].mean(0)
    assert many == pytest.approx(golden["per_position"], abs=1e-4)


def test_the_course_number_is_fooled_where_order_is_not() -> None:
    """The shipped `alphabet` was made for this: it knows which tokens are around and nothing of their order."""
    found = copying.measure(checkpoints.load(ROOT / "checkpoints" / "alphabet.pt").model, Protocol())
    assert found.course_gain.low > 0.5
    assert found.context_gain.low > 0.5
    assert found.copying_at_most < 0.1
