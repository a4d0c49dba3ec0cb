"""Low-rank adaptation: exact at step 0, exact when merged, and able to learn what is planted."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from interp_core import lora, samples
from interp_core.lora import Tuning
from interp_core.model import GPT, forward, token_losses
from tests.conftest import SMALL, random_model, random_tokens

ALL = tuple(lora.TARGETS)


def logits(model: GPT) -> Tensor:
    return forward(model, random_tokens()).logits


def batches(teacher: GPT) -> Callable[[int, int, int], Tensor]:
    """Windows of a teacher's own samples."""
    pool = samples.own_windows(teacher, 2048, seed=11)

    def draw(step: int, count: int, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(1000 * seed + step)
        return pool[torch.randint(len(pool), (count,), generator=generator)]

    return draw


def learned(model: GPT, tuning: Tuning, teacher: GPT) -> tuple[float, GPT]:
    *_, (progress, learner) = lora.tune(model, tuning, batches(teacher))
    return progress.loss, lora.finished(learner)


@pytest.mark.parametrize("rank", [1, 2, 4, 8, 16])
def test_step_zero_is_the_base_model_bit_by_bit(rank: int) -> None:
    base = random_model()
    adapted = lora.adapt(base, Tuning(rank=rank, targets=ALL))
    assert len(lora.adapters(adapted)) == 6 * SMALL.layers
    assert torch.equal(logits(adapted), logits(base))


@pytest.mark.parametrize("tied", [False, True])
def test_merging_changes_nothing_and_unmerging_gives_the_base_back(tied: bool) -> None:
    base = random_model(replace(SMALL, tied_head=tied))
    adapted = lora.adapt(base, Tuning(rank=3, targets=ALL))
    generator = torch.Generator().manual_seed(0)
    for part in lora.adapters(adapted).values():
        part.B.copy_(0.1 * torch.randn(part.B.shape, generator=generator))
    merged = lora.merge(adapted)
    assert not lora.adapters(merged)
    torch.testing.assert_close(logits(merged), logits(adapted), atol=1e-5, rtol=1e-5)
    assert (logits(merged) - logits(base)).abs().max() > 0.1
    changes = {name: part.update for name, part in lora.adapters(adapted).items()}
    back = lora.unmerge(merged, changes)
    for name, value in base.state_dict().items():
        torch.testing.assert_close(back.state_dict()[name], value, atol=1e-5, rtol=1e-5)
    found = lora.updates(base, merged)
    assert all(torch.linalg.matrix_rank(found[name], atol=1e-4) == 3 for name in changes)


@pytest.mark.parametrize("kind", ["low rank", "frozen A", "full", "head only", "dense"])
def test_the_base_is_never_touched_and_only_what_is_free_learns(kind: lora.Kind) -> None:
    base, before = random_model(), {key: value.clone() for key, value in random_model().state_dict().items()}
    tuning = Tuning(kind, rank=2, targets=("queries", "MLP in"), steps=5, lr=1e-2)
    _, tuned = learned(base, tuning, random_model(seed=5))
    assert all(torch.equal(base.state_dict()[key], value) for key, value in before.items())
    assert not any(parameter.requires_grad for parameter in tuned.parameters())
    changed = {key for key, value in tuned.state_dict().items() if not torch.equal(value, before[key])}
    matrices = {f"blocks.{i}.{name}.weight" for i in range(3) for name in ("attn.query", "mlp.fc")}
    assert changed == {"full": set(before), "head only": {"head.weight"}}.get(kind, matrices)


def test_the_number_of_what_is_learned() -> None:
    base = random_model()
    width, inner, layers = SMALL.d_model, SMALL.d_mlp, SMALL.layers
    assert lora.trainable(base, Tuning(rank=2, targets=("queries",))) == layers * 2 * 2 * width
    assert lora.trainable(base, Tuning("frozen A", rank=2, targets=("queries",))) == layers * 2 * width
    assert lora.trainable(base, Tuning("dense", targets=("MLP in",), layers=(1,))) == width * inner
    assert lora.trainable(base, Tuning("full")) == base.count()
    assert lora.trainable(base, Tuning("head only")) == width * SMALL.d_vocab


@pytest.mark.slow
def test_a_planted_update_of_rank_one_is_learned_with_rank_one() -> None:
    """A teacher that differs from the base by one direction of one matrix: rank 1 there learns it, elsewhere less."""
    base = random_model(size=0.3)
    teacher = lora.share(base)
    generator = torch.Generator().manual_seed(3)
    left, right = (torch.randn(SMALL.d_model, generator=generator) for _ in range(2))
    weight = teacher.block(2).attn.value.weight + 1.5 * torch.outer(left, right) / right.norm()
    teacher.block(2).attn.value.weight = torch.nn.Parameter(weight, requires_grad=False)
    tuning = Tuning(rank=1, targets=("values",), steps=300, batch=32, lr=2e-2)
    held_out = samples.own_windows(teacher, 1024, seed=99)
    least = float(token_losses(teacher, held_out).mean())

    def excess(model: GPT) -> float:
        """The divergence from the teacher, in nats."""
        return float(token_losses(model, held_out).mean()) - least

    _, tuned = learned(base, tuning, teacher)
    _, elsewhere = learned(base, replace(tuning, targets=("keys",)), teacher)
    assert excess(base) > 0.05
    assert excess(tuned) < 0.4 * excess(base)
    assert excess(tuned) < excess(elsewhere)
    assert lora.rank_holding(lora.updates(base, tuned)["blocks.2.attn.value"], 0.999) == 1


def test_the_spectrum_of_an_update() -> None:
    update = torch.diag(torch.tensor([3.0, 2.0, 1.0, 0.0]))
    torch.testing.assert_close(lora.spectrum(update), torch.tensor([9.0, 4.0, 1.0, 0.0]) / 14)
    assert [lora.rank_holding(update, held) for held in (0.5, 0.9, 0.95)] == [1, 2, 3]
    assert lora.spectrum(torch.zeros(3, 3)).tolist() == [0, 0, 0]


def test_two_tunings_of_one_seed_are_one() -> None:
    base, teacher, tuning = random_model(), random_model(seed=7), Tuning(steps=6, lr=1e-2)
    first, second = (learned(base, tuning, teacher)[1] for _ in range(2))
    other = learned(base, replace(tuning, seed=1), teacher)[1]
    assert torch.equal(logits(first), logits(second))
    assert not torch.equal(logits(first), logits(other))


def test_a_tuning_can_be_stopped() -> None:
    steps = list(lora.tune(random_model(), Tuning(steps=50), batches(random_model(seed=2)), stop=lambda: True))
    assert [progress.step for progress, _ in steps] == [1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, "rank 0"),
        ({"targets": ("norms",)}, "targets norms"),
        ({"targets": ()}, "none"),
        ({"lr": 0.0}, "rate 0.0"),
    ],
)
def test_bad_tunings_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Tuning(**options)


def test_a_model_without_mlps_has_none_to_adapt() -> None:
    with pytest.raises(ValueError, match="no MLPs"):
        lora.adapt(random_model(replace(SMALL, d_mlp=0)), Tuning(targets=("MLP in",)))
