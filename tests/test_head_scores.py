"""Scores of patterns whose answer is known by hand."""

import math

import pytest
import torch

from interp_core import head_scores
from interp_core.model import forward
from tests.conftest import SMALL, random_model, random_tokens

LENGTH = 10


def looking_back(offset: int) -> torch.Tensor:
    """All attention `offset` back, or on position 0 where there is no such position."""
    pattern = torch.zeros(LENGTH, LENGTH)
    rows = torch.arange(LENGTH)
    pattern[rows, (rows - offset).clamp(min=0)] = 1
    return pattern


def uniform() -> torch.Tensor:
    return torch.ones(LENGTH, LENGTH).tril() / torch.arange(1, LENGTH + 1)[:, None]


def test_a_perfect_previous_token_head() -> None:
    pattern = looking_back(1)
    assert head_scores.previous_token_score(pattern) == 1
    assert head_scores.self_score(pattern) == 0
    assert head_scores.first_token_score(pattern) == 0
    assert head_scores.entropy(head_scores.row_entropy(pattern)) == 0
    assert head_scores.mean_distance(pattern) == 1


def test_a_perfect_self_head() -> None:
    pattern = looking_back(0)
    assert head_scores.self_score(pattern) == 1
    assert head_scores.previous_token_score(pattern) == 0
    assert head_scores.mean_distance(pattern) == 0


def test_a_perfect_sink() -> None:
    pattern = looking_back(LENGTH)
    assert head_scores.first_token_score(pattern) == 1
    assert head_scores.mean_distance(pattern) == pytest.approx(sum(range(1, LENGTH)) / (LENGTH - 1))


def test_the_first_two_queries_do_not_count() -> None:
    pattern = looking_back(1)
    pattern[:2] = looking_back(0)[:2]
    assert head_scores.previous_token_score(pattern) == 1
    assert head_scores.self_score(pattern) == 0


def test_uniform_attention() -> None:
    rows = range(2, LENGTH)
    share = sum(1 / (row + 1) for row in rows) / len(rows)
    for score in (head_scores.previous_token_score, head_scores.self_score, head_scores.first_token_score):
        assert score(uniform()) == pytest.approx(share)
    expected = sum(math.log(row + 1) for row in range(1, LENGTH)) / (LENGTH - 1)
    assert head_scores.entropy(head_scores.row_entropy(uniform())) == pytest.approx(expected)
    assert head_scores.relative_entropy(head_scores.row_entropy(uniform())) == pytest.approx(1)
    assert head_scores.mean_distance(uniform()) == pytest.approx(
        sum(row / 2 for row in range(1, LENGTH)) / (LENGTH - 1)
    )


def test_the_profile_says_how_far_back() -> None:
    profile = head_scores.offset_profile(torch.stack([looking_back(3), uniform()]))
    assert profile.shape == (2, LENGTH)
    assert profile[0, 3] == 1
    assert profile[0, 4] == pytest.approx(0)
    assert profile[0, 1] == pytest.approx(1 / (LENGTH - 1))  # query 1 can go no further than position 0
    assert profile[1, 9] == pytest.approx(1 / LENGTH)


def test_the_profile_is_the_mean_of_each_diagonal() -> None:
    patterns = torch.rand(3, 2, LENGTH, LENGTH, generator=torch.Generator().manual_seed(0)).tril()
    means = [patterns.diagonal(-k, dim1=-2, dim2=-1).mean(-1) for k in range(LENGTH)]
    torch.testing.assert_close(head_scores.offset_profile(patterns), torch.stack(means, dim=-1))
    transposed = patterns.transpose(0, 1)  # another layout in memory
    torch.testing.assert_close(head_scores.offset_profile(transposed), torch.stack(means, dim=-1).transpose(0, 1))


def test_prefix_matching_looks_at_the_token_after_the_match() -> None:
    half = 4
    assert head_scores.prefix_matching_score(looking_back(half - 1), half) == 1
    for wrong in (half, half - 2, 1):  # the duplicate itself, one too late, the previous token
        assert head_scores.prefix_matching_score(looking_back(wrong), half) == 0


def test_prefix_matching_counts_the_second_copy_only() -> None:
    pattern = looking_back(3)
    pattern[:4] = 0
    assert head_scores.prefix_matching_score(pattern, 4) == 1


@pytest.mark.parametrize("half", [1, 0, LENGTH])
def test_a_repeat_without_room_is_refused(half: int) -> None:
    with pytest.raises(ValueError, match="expected 2 or more, and room for a copy"):
        head_scores.prefix_matching_score(uniform(), half)


@pytest.mark.parametrize("layer", [0, 2])
def test_contributions_and_bias_sum_to_the_attention_output(layer: int) -> None:
    model = random_model()
    trace = forward(model, random_tokens(), [f"z.{layer}", f"attn_out.{layer}"])
    heads = head_scores.output_contributions(model, layer, trace[f"z.{layer}"])
    total = heads.sum(2) + model.block(layer).attn.proj.bias
    error = (total - trace[f"attn_out.{layer}"]).norm() / trace[f"attn_out.{layer}"].norm()
    assert error < 1e-5
    slices = trace[f"attn_out.{layer}"].unflatten(-1, (SMALL.heads, -1)).norm(dim=-1)
    assert not torch.allclose(slices, heads.norm(dim=-1), rtol=0.05)  # cutting the output into slices is something else


def test_norms_are_those_of_the_contributions() -> None:
    model = random_model()
    z = forward(model, random_tokens(), ["z.1"])["z.1"]
    norms = head_scores.output_norms(model, 1, z)
    torch.testing.assert_close(norms, head_scores.output_contributions(model, 1, z).norm(dim=-1), atol=1e-5, rtol=1e-4)
