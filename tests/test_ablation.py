"""Ablation against edited weights, against the edits of a full pass, and on models where the answer is known."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from interp_core import ablation, checkpoints, corpora
from interp_core.ablation import MODES, Mode, Part, edits_for, parts
from interp_core.model import GPT, forward, token_losses
from tests.conftest import SMALL, random_model, random_tokens

LONG = SMALL.context + 1


def windows(count: int = 6, seed: int = 0) -> torch.Tensor:
    return random_tokens(batch=count, length=LONG, seed=seed)


@pytest.fixture(scope="module")
def donors() -> ablation.Donors:
    return ablation.gather_donors(random_model(), windows(9, seed=5))


@pytest.mark.parametrize("part", parts(SMALL, ("head",)), ids=lambda part: part.name)
def test_zero_ablation_equals_editing_the_weights(part: Part) -> None:
    model, given = random_model(replace(SMALL, qkv_bias=True)), windows()
    effect = ablation.sweep(model, given, ablated=[part]).effects[0]
    intact = token_losses(model, given).mean(1)
    columns = slice(part.head * SMALL.d_head, (part.head + 1) * SMALL.d_head)
    model.block(part.layer).attn.value.weight[columns] = 0
    model.block(part.layer).attn.value.bias[columns] = 0  # the head's values, biases too
    np.testing.assert_allclose(effect, token_losses(model, given).mean(1) - intact, atol=1e-5)
    assert np.abs(effect).max() > 1e-2


@pytest.mark.parametrize("mode", MODES)
def test_the_shortcut_equals_a_whole_pass_with_edits(mode: Mode, donors: ablation.Donors) -> None:
    """For every part: the change behind it, against an edit of its site on the way up."""
    model, given = random_model(), windows()
    found = ablation.sweep(model, given, donors, [mode], seed=3)
    intact = token_losses(model, given).mean(1)
    rows = ablation.assign(donors, len(given), seed=3)
    for effect, part in zip(found.effects, parts(SMALL), strict=True):
        whole = token_losses(model, given, edits_for([part], mode, donors, rows)).mean(1) - intact
        np.testing.assert_allclose(effect, whole, atol=1e-5, err_msg=part.name)
    np.testing.assert_allclose(found.intact, intact, atol=1e-6)


def test_the_table_has_a_row_a_part_and_mode(donors: ablation.Donors) -> None:
    table = ablation.sweep(random_model(), windows(), donors, MODES).table
    assert list(table["part"][:8]) == [
        "L0H0",
        "L0H1",
        "L0 attention",
        "L0 MLP",
        "L1H0",
        "L1H1",
        "L1 attention",
        "L1 MLP",
    ]
    assert len(table) == 3 * 3 * 4
    assert (table["effect_nats_low"] <= table["effect_nats"]).all()
    assert (table["effect_nats"] <= table["effect_nats_high"]).all()
    assert table.groupby("mode")["effect_nats"].mean().nunique() == 3  # they disagree


def test_divergence_is_that_of_the_two_models() -> None:
    model, given = random_model(), windows()
    table = ablation.sweep(model, given, ablated=[Part(1, "mlp")]).table
    p = forward(model, given[:, :-1]).logits.softmax(-1)
    q = forward(model, given[:, :-1], edits=edits_for([Part(1, "mlp")], "zero")).logits.softmax(-1)
    expected = (p * (p / q).log()).sum(-1).mean()
    assert table["kl_nats"].iloc[0] == pytest.approx(expected.item(), rel=1e-4)
    assert (table["kl_nats"] > 0).all()


def test_all_heads_of_a_layer_are_its_attention_but_for_the_bias() -> None:
    heads = [Part(1, "head", 0), Part(1, "head", 1)]
    for bias in (True, False):
        model, given = random_model(replace(SMALL, out_bias=bias)), windows()
        by_head = ablation.set_effect(model, given, heads)
        whole = ablation.set_effect(model, given, [Part(1, "attention")])
        assert np.allclose(by_head, whole, atol=1e-5) != bias
        if bias:
            model.block(1).attn.proj.bias.zero_()
            shifted = ablation.set_effect(model, given, heads)
            np.testing.assert_allclose(shifted, ablation.set_effect(model, given, [Part(1, "attention")]), atol=1e-5)


def test_mean_ablating_a_constant_changes_nothing() -> None:
    model = random_model(replace(SMALL, qkv_bias=True))
    model.block(1).attn.value.weight.zero_()  # every value of layer 1 is its bias
    donors = ablation.gather_donors(model, windows(9, seed=5))
    table = ablation.sweep(model, windows(), donors, ["zero", "mean", "resample"], parts(SMALL, ("head",))).table
    constant = table[table["layer"] == 1].set_index(["mode", "part"])["effect_nats"]
    assert constant["mean"].abs().max() < 1e-5
    assert constant["resample"].abs().max() < 1e-5
    assert constant["zero"].abs().max() > 1e-2


def test_a_head_that_writes_nothing_costs_nothing() -> None:
    model = random_model()
    model.block(0).attn.proj.weight[:, SMALL.d_head :] = 0
    table = ablation.sweep(model, windows()).table.set_index("part")
    assert table.loc["L0H1", "effect_nats"] == pytest.approx(0, abs=1e-6)
    assert abs(table.loc["L0H0", "effect_nats"]) > 1e-3


def test_a_redundant_pair_backs_each_other_up() -> None:
    """Two equal heads whose joint output is clipped by the norm: either alone keeps the direction, both gone lose it."""
    model = random_model(replace(SMALL, layers=1, d_mlp=0), size=0.6)
    attn = model.block(0).attn
    for weights in (attn.query.weight, attn.key.weight, attn.value.weight):
        weights[SMALL.d_head :] = weights[: SMALL.d_head]
    attn.proj.weight[:, : SMALL.d_head] *= 20  # far larger than the stream, so that the norm saturates
    attn.proj.weight[:, SMALL.d_head :] = attn.proj.weight[:, : SMALL.d_head]
    table = ablation.pairs(model, windows(12))
    intact = ablation.sweep(model, windows(12)).table.set_index("part")["effect_nats"]
    assert abs(intact["L0H0"]) < 0.05 * abs(table["joint_nats"].iloc[0])
    assert table["interaction_nats"].iloc[0] == pytest.approx(table["joint_nats"].iloc[0], rel=0.1)


@pytest.mark.parametrize("mode", ["zero", "resample"])
def test_pairs_equal_whole_passes(mode: Mode, donors: ablation.Donors) -> None:
    model, given = random_model(), windows()
    table = ablation.pairs(model, given, mode, donors, seed=2)
    heads = {part.name: part for part in parts(SMALL, ("head",))}
    assert len(table) == 15
    for row in table.itertuples():
        first, second = heads[row.first], heads[row.second]
        both = ablation.set_effect(model, given, [first, second], mode, donors, seed=2)
        alone = [ablation.set_effect(model, given, [part], mode, donors, seed=2) for part in (first, second)]
        assert row.joint_nats == pytest.approx(both.mean(), abs=1e-5)
        assert row.sum_nats == pytest.approx(alone[0].mean() + alone[1].mean(), abs=1e-5)
        assert row.interaction_nats_low <= row.interaction_nats <= row.interaction_nats_high
        interaction = both - alone[0] - alone[1]
        assert row.choosing_nats == pytest.approx(interaction[0::2].mean(), abs=1e-5)
        assert row.held_out_nats == pytest.approx(interaction[1::2].mean(), abs=1e-5)


def test_the_strongest_head_is_reported_on_other_windows() -> None:
    """On pure chance the best of many flatters itself on the windows that chose it, and not on the others."""
    flattered, honest = [], []
    for seed in range(30):
        found = ablation.sweep(GPT(SMALL, seed), windows(12, seed), ablated=parts(SMALL, ("head",)), seed=seed)
        best = ablation.strongest_head(found, "zero")
        row = list(found.table["part"]).index(best.head)
        flattered.append(found.effects[row, 0::2].mean())
        honest.append(best.effect.estimate)
        assert best.effect.estimate == pytest.approx(found.effects[row, 1::2].mean())
    assert np.mean(flattered) > 3 * abs(np.mean(honest))


def test_a_claim_is_held_against_all_other_heads() -> None:
    found = ablation.sweep(random_model(), windows())
    heads = found.table[found.table["kind"] == "head"].sort_values("effect_nats", ascending=False)
    for place, name in enumerate(heads["part"], 1):
        rank, total, difference = ablation.against_other_heads(found, name, "zero")
        assert (rank, total) == (place, 6)
        assert difference.low <= difference.estimate <= difference.high
    strongest, weakest = heads["part"].iloc[0], heads["part"].iloc[-1]
    assert ablation.against_other_heads(found, strongest, "zero")[2].estimate > 0
    assert ablation.against_other_heads(found, weakest, "zero")[2].estimate < 0


def test_the_change_of_each_token_adds_up_to_the_effect() -> None:
    model, given = random_model(), windows(1)
    part = Part(0, "mlp")
    intact, ablated = ablation.token_effects(model, given[0], part, "zero")
    assert (ablated - intact).mean().item() == pytest.approx(ablation.set_effect(model, given, [part])[0], abs=1e-5)


def test_too_many_heads_for_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match=r"33 heads make 528 pairs: at most 32"):
        ablation.pairs(GPT(replace(SMALL, layers=33, heads=1)), windows())


def test_a_mode_without_its_donors_is_refused() -> None:
    with pytest.raises(ValueError, match="the mode mean needs donors"):
        ablation.sweep(random_model(), windows(), modes=["mean"])


def test_progress_and_batches_change_nothing(monkeypatch: pytest.MonkeyPatch, donors: ablation.Donors) -> None:
    whole = ablation.sweep(random_model(), windows(), donors, ["resample"])
    monkeypatch.setattr(ablation, "BATCH_TOKENS", 2 * SMALL.context)
    told: list[float] = []
    parts_ = ablation.sweep(random_model(), windows(), donors, ["resample"], progress=told.append)
    np.testing.assert_allclose(whole.effects, parts_.effects, atol=1e-6)
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1)
    assert len(told) > 3, "it moves with every part, not with every batch only"


@pytest.mark.slow
def test_null_effects_cover_zero_as_often_as_stated() -> None:
    """A head whose contribution is pure chance: of an untrained model on random tokens, over 50 seeds of each."""
    covered, total = 0, 0
    for seed in range(50):
        table = ablation.sweep(GPT(SMALL, seed), windows(24, seed), ablated=parts(SMALL, ("head",)), seed=seed).table
        covered += int(((table["effect_nats_low"] <= 0) & (table["effect_nats_high"] >= 0)).sum())
        total += len(table)
    assert 0.90 <= covered / total <= 0.985


@pytest.mark.slow
def test_golden_zero_ablation_of_every_head(reference: Path, golden: dict[str, Any], shakespeare: str) -> None:
    checkpoint = checkpoints.load(reference / "step6_model.pt", checkpoints.vocabulary_of_text(shakespeare, "the text"))
    text = corpora.load("tiny-shakespeare", checkpoint.tokenizer)
    given = corpora.course_windows(text.validation, 64)
    found = ablation.sweep(checkpoint.model, given, ablated=parts(checkpoint.model.config, ("head",)))
    assert found.intact.mean() == pytest.approx(golden["val_base"], abs=1e-4)
    for effect, row in zip(found.effects, golden["ablation_zero_value"], strict=True):
        assert effect.mean() == pytest.approx(row["delta"], abs=1e-4)
