import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from interp_core import checkpoints, corpora, training
from interp_core.model import GPT, token_losses
from interp_core.training import Diverged, Recipe
from tests.conftest import SMALL

QUICK = Recipe(steps=60, matrix_lr=2e-2, other_lr=1e-2, batch=16, warmup=5, dropout=0.1)


def counting() -> torch.Tensor:
    """A text in which the next token is certain."""
    return torch.arange(5000) % SMALL.d_vocab


def run(recipe: Recipe, seed: int = 0) -> tuple[GPT, list[training.Record]]:
    model = GPT(SMALL, seed)
    validation = corpora.windows(counting(), SMALL.context, 20, 0)
    batches = training.text_batches(counting(), SMALL.context, recipe)
    return model, list(training.train(model, batches, recipe, validation, every=20))


def test_a_model_learns_what_is_certain() -> None:
    model, records = run(QUICK)
    assert [record.step for record in records] == [20, 40, 60]
    assert records[-1].validation_loss < 0.3 < math.log(SMALL.d_vocab) < records[0].loss + 1
    assert (
        records[-1].validation_loss
        == token_losses(model, corpora.windows(counting(), SMALL.context, 20, 0)).mean().item()
    )
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_equal_seeds_give_equal_weights() -> None:
    (one, _), (two, _), (other, _) = run(QUICK), run(QUICK), run(replace(QUICK, seed=1))
    assert torch.equal(one.head.weight, two.head.weight)
    assert not torch.equal(one.head.weight, other.head.weight)


@pytest.mark.parametrize(
    "config", [replace(SMALL, d_mlp=0), replace(SMALL, tied_head=True), replace(SMALL, norm="none")]
)
def test_every_kind_of_model_trains(config) -> None:
    model = GPT(config)
    recipe = replace(QUICK, steps=30)
    *_, last = training.train(model, training.text_batches(counting(), config.context, recipe), recipe, every=10)
    assert last.validation_loss is None
    assert last.loss < math.log(config.d_vocab)


def test_dropout_is_seeded_by_step_and_keeps_the_mean() -> None:
    drop = training._dropout(SMALL, Recipe(dropout=0.25), step=3)
    assert set(drop) == {"embed", *(f"{site}.{layer}" for site in ("attn_out", "mlp_out") for layer in range(3))}
    x = torch.ones(1, 1, 100_000)
    dropped = drop["embed"](x)
    assert dropped.mean().item() == pytest.approx(1, abs=0.01)
    assert (dropped == 0).float().mean().item() == pytest.approx(0.25, abs=0.01)
    assert torch.equal(dropped, training._dropout(SMALL, Recipe(dropout=0.25), step=3)["embed"](x))
    assert not torch.equal(dropped, training._dropout(SMALL, Recipe(dropout=0.25), step=4)["embed"](x))
    assert training._dropout(SMALL, Recipe(dropout=0.0), 0) == {}


def test_the_rate_warms_up_and_falls_to_zero() -> None:
    recipe = Recipe(steps=100, warmup=10)
    rates = [recipe.rate(step) for step in range(100)]
    assert max(rates) == rates[9] == pytest.approx(0.91)
    assert rates[0] == pytest.approx(0.1)
    assert rates[-1] == pytest.approx(0.01)


def test_divergence_is_caught() -> None:
    recipe = replace(QUICK, matrix_lr=1e30, other_lr=1e30)
    with pytest.raises(Diverged, match=r"the loss is (nan|inf) at step \d+: lower the learning rates"):
        list(training.train(GPT(SMALL), training.text_batches(counting(), SMALL.context, recipe), recipe))


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"batch": 0}, {"dropout": 1.0}, {"dropout": -0.1}, {"warmup": -1}])
def test_an_impossible_recipe_is_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match="expected"):
        Recipe(**wrong)


@pytest.mark.slow
def test_the_command_writes_a_checkpoint_with_its_card(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "docs.pt"
    shape = ["--layers", "1", "--heads", "2", "--d-model", "16", "--context", "16", "--steps", "20", "--batch", "8"]
    assert training.main(["--text", "python-docs", "--out", str(out), *shape]) == 0
    assert "step 20: loss" in capsys.readouterr().out
    card = json.loads(out.with_suffix(".json").read_text())
    checkpoint = checkpoints.load(out)
    text = corpora.load("python-docs", checkpoint.tokenizer)
    loss = token_losses(checkpoint.model, corpora.course_windows(text.validation, 16)).mean().item()
    assert card["validation_loss_nats"] == pytest.approx(loss, abs=1e-3)
    assert card["bits_per_char"] == pytest.approx(loss / math.log(2), abs=1e-3)
    assert card["text"]["sha256"] == text.sha256
    assert card["recipe"]["steps"] == card["step"] == 20
    assert card["command"].startswith("python -m interp_core.training --text python-docs")


def test_snapshots_are_spaced_in_the_logarithm_and_end_before_the_last_step() -> None:
    steps = training.snapshot_steps(800, 9)
    assert len(steps) == 9
    assert steps[0] == training.FIRST_SNAPSHOT
    assert steps[-1] < 800
    ratios = [later / earlier for earlier, later in itertools.pairwise(steps)]
    assert max(ratios) / min(ratios) < 1.1
    assert training.snapshot_steps(800, 0) == []
    assert all(step < 20 for step in training.snapshot_steps(20, 5))


def test_the_command_learns_synthetic_sequences_and_keeps_snapshots(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out = tmp_path / "small.pt"
    shape = ["--layers", "2", "--heads", "2", "--d-model", "16", "--d-mlp", "0", "--d-vocab", "9", "--context", "12"]
    few = ["--steps", "60", "--batch", "4", "--snapshots", "2"]
    assert training.main(["--text", "alphabet", "--out", str(out), *shape, *few]) == 0
    capsys.readouterr()
    checkpoint = checkpoints.load(out)
    assert checkpoint.vocabulary_source == "none: trained on numbers"
    assert (checkpoint.model.config.d_mlp, checkpoint.model.config.d_vocab) == (0, 9)
    assert checkpoint.card["text"]["name"] == "alphabet"
    assert "bits_per_char" not in checkpoint.card
    snapshots = checkpoints.find_snapshots(out)
    assert list(snapshots) == training.snapshot_steps(60, 2)
    early = checkpoints.load(snapshots[30]).model
    assert early.config == checkpoint.model.config
    assert not torch.equal(early.head.weight, checkpoint.model.head.weight)
    assert checkpoints.find(tmp_path) == [out]


def test_synthetic_batches_are_fresh_and_seeded() -> None:
    one, two = (training.synthetic_batches("successors", 9, 12, Recipe(batch=4)) for _ in range(2))
    assert torch.equal(one(3), two(3))
    assert not torch.equal(one(3), one(4))
    assert one(0).shape == (4, 13)
