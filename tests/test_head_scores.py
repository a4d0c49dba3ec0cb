"""Scores of patterns whose answer is known by hand."""

import math
from dataclasses import replace

import pytest
import torch

from interp_core import head_scores
from interp_core.model import GPT, ModelConfig, forward
from tests.conftest import SMALL, random_model, random_tokens
from tests.wired import CONFIG, D_VOCAB, wired_induction

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


@pytest.mark.parametrize("half", [4, 6])
def test_the_matching_profile_reads_the_right_cells(half: int) -> None:
    patterns = torch.rand(2, LENGTH, LENGTH)
    offsets = (-1, 0, 1, 2)
    found = head_scores.matching_profile(patterns, half, offsets)
    for place, offset in enumerate(offsets):
        queries = [q for q in range(half, LENGTH) if q - half + offset >= 0]
        expected = torch.stack([patterns[:, q, q - half + offset] for q in queries]).mean(0)
        torch.testing.assert_close(found[:, place], expected)
    torch.testing.assert_close(found[:, 2], head_scores.prefix_matching_score(patterns, half))


def test_a_profile_beyond_the_repeat_is_refused() -> None:
    with pytest.raises(ValueError, match="less than the repeat of 4 tokens"):
        head_scores.matching_profile(torch.rand(LENGTH, LENGTH), 4, (4,))


def dense(model: GPT, layer: int, head: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """One head's W_Q, W_K, W_V [d_model d_head] and W_O [d_head d_model], norms folded, written out the long way."""
    c, block = model.config, model.block(layer)
    rows = slice(head * c.d_head, (head + 1) * c.d_head)
    fold = torch.diag(block.ln1.weight) if hasattr(block.ln1, "weight") else torch.eye(c.d_model)
    centre = torch.eye(c.d_model) - 1 / c.d_model
    q, k, v = (centre @ fold @ w.weight[rows].T for w in (block.attn.query, block.attn.key, block.attn.value))
    return q, k, v, block.attn.proj.weight.T[rows]


def test_copying_scores_are_those_of_the_whole_token_by_token_matrix() -> None:
    model, centre = random_model(), torch.eye(SMALL.d_model) - 1 / SMALL.d_model
    for layer in range(SMALL.layers):
        found = head_scores.copying_scores(model, layer)
        for head in range(SMALL.heads):
            _, _, v, o = dense(model, layer, head)
            whole = model.tok.weight @ v @ o @ centre @ torch.diag(model.lnf.weight) @ model.head.weight.T
            eigenvalues = torch.linalg.eigvals(whole)
            assert found[head].item() == pytest.approx(
                (eigenvalues.real.sum() / eigenvalues.abs().sum()).item(), abs=1e-3
            )


@pytest.mark.parametrize(("sign", "score"), [(1.0, 1.0), (-1.0, -1.0)])
def test_a_head_that_copies_and_one_that_suppresses(sign: float, score: float) -> None:
    model = wired_induction()
    model.block(1).attn.proj.weight.mul_(sign)
    assert head_scores.copying_scores(model, 1).tolist() == pytest.approx([0.0, score], abs=1e-6)


def test_random_heads_copy_nothing_on_average() -> None:
    config = replace(SMALL, layers=1, heads=4, d_head=4)
    scores = torch.cat([head_scores.copying_scores(random_model(config, seed), 0) for seed in range(60)])
    assert abs(scores.mean().item()) < 3 * scores.std().item() / len(scores) ** 0.5


def test_composition_is_the_ratio_of_the_whole_matrices() -> None:
    model = random_model()
    found = head_scores.k_composition(model, 0, 2)
    for lower in range(SMALL.heads):
        for upper in range(SMALL.heads):
            _, _, v, o = dense(model, 0, lower)
            q, k, _, _ = dense(model, 2, upper)
            ratio = (q @ k.T @ (v @ o).T).norm() / ((q @ k.T).norm() * (v @ o).norm())
            assert found[lower, upper].item() == pytest.approx(ratio.item(), abs=1e-5)


def test_the_wired_heads_compose_as_computed_by_hand() -> None:
    """Both matrices are identities on d_vocab dimensions: the norm of their product over the product of norms."""
    found = head_scores.k_composition(wired_induction(), 0, 1)
    assert found.tolist() == [[0.0, pytest.approx(D_VOCAB**-0.5)], [0.0, 0.0]]


def test_random_composition_is_what_unrelated_heads_have() -> None:
    config = ModelConfig(d_vocab=11, context=12, d_model=32, heads=4, layers=2, d_head=8, d_mlp=0, norm="none")
    found = torch.stack([head_scores.k_composition(random_model(config, seed), 0, 1).mean() for seed in range(20)])
    chance = head_scores.random_composition(config, 200, seed=0)
    assert found.mean().item() == pytest.approx(chance.mean().item(), rel=0.05)
    assert torch.equal(chance, head_scores.random_composition(config, 200, seed=0))


def test_layers_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="expected a lower and a higher one below 2"):
        head_scores.k_composition(GPT(CONFIG), 1, 1)
