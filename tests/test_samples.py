import math

import pytest
import torch

from interp_core import samples
from interp_core.model import forward, token_losses
from tests.conftest import SMALL, random_model, random_tokens


@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, None), (0.7, 3), (0.0, None)])
def test_cached_and_uncached_generation_agree(temperature: float, top_k: int | None) -> None:
    """Also beyond the context, where the window slides."""
    model, prompt = random_model(), random_tokens(length=3)
    options = {"temperature": temperature, "top_k": top_k, "seed": 5}
    cached = samples.generate(model, prompt, 20, **options)
    assert torch.equal(cached, samples.generate(model, prompt, 20, **options, use_cache=False))
    assert cached.shape == (4, 23)
    assert torch.equal(cached[:, :3], prompt)


def test_a_long_prompt_is_read_from_its_end() -> None:
    model, long = random_model(), random_tokens(length=12).repeat(1, 2)
    assert torch.equal(
        samples.generate(model, long, 1, 0.0)[:, -1], samples.generate(model, long[:, -12:], 1, 0.0)[:, -1]
    )


def test_temperature_zero_takes_the_likeliest() -> None:
    model, prompt = random_model(), random_tokens(length=4)
    token = samples.generate(model, prompt, 1, temperature=0.0)[:, -1]
    assert torch.equal(token, forward(model, prompt).logits[:, -1].argmax(-1))


def test_top_k_takes_from_the_k_likeliest_only() -> None:
    model, prompt = random_model(), random_tokens(batch=1, length=4).repeat(500, 1)
    allowed = set(forward(model, prompt[:1]).logits[0, -1].topk(3).indices.tolist())
    drawn = set(samples.generate(model, prompt, 1, temperature=5.0, top_k=3)[:, -1].tolist())
    assert drawn == allowed


def test_frequencies_are_the_probabilities() -> None:
    model, prompt = random_model(size=0.2), random_tokens(batch=1, length=4).repeat(20_000, 1)
    probabilities = (forward(model, prompt[:1]).logits[0, -1] / 1.5).softmax(-1)
    drawn = torch.bincount(samples.generate(model, prompt, 1, temperature=1.5)[:, -1], minlength=SMALL.d_vocab) / 20_000
    torch.testing.assert_close(drawn, probabilities, atol=0.015, rtol=0)


def test_seeds() -> None:
    model, prompt = random_model(), random_tokens(length=2)
    assert torch.equal(samples.generate(model, prompt, 9, seed=1), samples.generate(model, prompt, 9, seed=1))
    assert not torch.equal(samples.generate(model, prompt, 9, seed=1), samples.generate(model, prompt, 9, seed=2))


@pytest.mark.parametrize(
    ("length", "options", "message"),
    [(0, {}, "prompt is empty"), (2, {"temperature": -1.0}, "temperature -1"), (2, {"top_k": 0}, "top_k 0")],
)
def test_what_cannot_be_sampled(length: int, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        samples.generate(random_model(), torch.zeros(1, length, dtype=torch.long), 1, **options)


def test_under_its_own_samples_a_models_loss_is_its_entropy() -> None:
    """The identity that makes own samples worth drawing; under another model's samples it fails."""
    model, other = random_model(size=0.25), random_model(seed=9, size=0.25)
    windows = samples.own_windows(model, 600, seed=0)
    assert windows.shape == (600, SMALL.context + 1)
    trace = forward(model, windows[:, :-1]).logits.log_softmax(-1)
    entropy = -(trace.exp() * trace).sum(-1)
    gap = token_losses(model, windows) - entropy
    error = gap.mean(1).std() / math.sqrt(len(windows))
    assert abs(gap.mean()) < 4 * error
    theirs = samples.own_windows(other, 600, seed=0)
    trace = forward(model, theirs[:, :-1]).logits.log_softmax(-1)
    foreign = token_losses(model, theirs) + (trace.exp() * trace).sum(-1)
    assert foreign.mean() > 20 * error


def test_first_tokens_follow_the_stated_distribution() -> None:
    model = random_model(size=0.3)
    stated = samples.first_token_distribution(model, seed=4)
    assert stated.sum().item() == pytest.approx(1)
    drawn = torch.bincount(samples.own_windows(model, 5000, seed=4)[:, 0], minlength=SMALL.d_vocab) / 5000
    torch.testing.assert_close(drawn, stated, atol=0.03, rtol=0)


def test_progress_ends_at_one() -> None:
    told: list[float] = []
    samples.own_windows(random_model(), 1500, 0, told.append)
    assert told == sorted(told)
    assert told[-1] == 1
    assert len(told) == math.ceil(1500 / (samples.BATCH_TOKENS // SMALL.context)) > 1
