import io
import itertools
import json
import math
import string
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from interp_core import checkpoints, corpora, lessons, plans, run_files, training
from interp_core.lessons import Lesson
from interp_core.model import GPT, ModelConfig, token_losses
from interp_core.plans import Plan, Recipe
from interp_core.training import Diverged, Record, Run
from tests.conftest import ROOT, SMALL

QUICK = Recipe(steps=60, matrix_lr=2e-2, other_lr=1e-2, batch=16, warmup=5, dropout=0.1)


def counting(config: ModelConfig = SMALL) -> Lesson:
    """A text in which the next token is certain."""
    return lessons.of_text("counting", string.ascii_letters[: config.d_vocab] * 500, config.context)


def run(recipe: Recipe, seed: int = 0, **kwargs) -> tuple[GPT, list[Record]]:
    made = Run(GPT(SMALL, seed), recipe)
    return made.model, list(training.train(made, counting(), **{"every": 20} | kwargs))


def test_a_model_learns_what_is_certain() -> None:
    model, records = run(QUICK)
    assert [record.step for record in records] == [20, 40, 60]
    assert records[-1].validation_loss < 0.3 < math.log(SMALL.d_vocab) < records[0].loss + 1
    by_hand = token_losses(model, counting().validation).mean(1)
    assert records[-1].validation_loss == pytest.approx(by_hand.mean().item(), abs=1e-5)
    assert records[-1].validation_windows == pytest.approx(by_hand.tolist(), abs=1e-5)
    assert records[-1].training_loss == pytest.approx(token_losses(model, counting().training).mean().item(), abs=1e-5)
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_equal_seeds_give_equal_weights() -> None:
    (one, _), (two, _), (other, _) = run(QUICK), run(QUICK), run(replace(QUICK, seed=1))
    assert torch.equal(one.head.weight, two.head.weight)
    assert not torch.equal(one.head.weight, other.head.weight)


@pytest.mark.parametrize(
    "config", [replace(SMALL, d_mlp=0), replace(SMALL, tied_head=True), replace(SMALL, norm="none")]
)
def test_every_kind_of_model_trains(config) -> None:
    *_, last = training.train(Run(GPT(config), replace(QUICK, steps=30)), counting(config), every=10)
    assert last.validation_loss < math.log(config.d_vocab)


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
    with pytest.raises(Diverged, match=r"the loss went to (nan|inf) at step \d+: lower the learning rates \(1e\+30"):
        list(training.train(Run(GPT(SMALL), recipe), counting()))


def test_a_loss_that_jumps_and_stays_up_is_divergence_and_one_that_comes_back_is_not() -> None:
    def spoiled(until: int) -> Lesson:
        """From step 40 on, batches of random tokens after a text that is certain."""
        lesson = counting()

        def batch(step: int, count: int, seed: int) -> torch.Tensor:
            if 40 <= step < until:
                generator = torch.Generator().manual_seed(step)
                return torch.randint(SMALL.d_vocab, (count, SMALL.context + 1), generator=generator)
            return lesson.batch(step, count, seed)

        return replace(lesson, batch=batch)

    made = Run(GPT(SMALL), QUICK)
    with pytest.raises(Diverged, match=r"the loss went from 0\.\d+ to [12]\.\d+ at step 4\d"):
        list(training.train(made, spoiled(60)))
    made = Run(GPT(SMALL), QUICK)
    *_, last = training.train(made, spoiled(42))
    assert last.step == 60


def test_a_restored_run_has_the_losses_that_it_would_have_had() -> None:
    whole = list(training.train(Run(GPT(SMALL), QUICK), counting(), every=10))
    first, buffer = Run(GPT(SMALL), QUICK), io.BytesIO()
    *_, last = training.train(first, counting(), every=10, stop=lambda: first.step == 33)
    assert last.step == 33
    torch.save(first.state(), buffer)
    buffer.seek(0)
    again = Run(GPT(SMALL, seed=5), QUICK)
    again.restore(torch.load(buffer, weights_only=True))
    rest = list(training.train(again, counting(), every=10))
    assert [record.step for record in rest] == [40, 50, 60]
    for mine, theirs in zip(rest, whole[3:], strict=True):
        assert mine.loss == pytest.approx(theirs.loss, abs=1e-6)
        assert mine.validation_loss == pytest.approx(theirs.validation_loss, abs=1e-6)
    assert torch.equal(again.model.head.weight, Run(again.model, QUICK).model.head.weight)
    with pytest.raises(ValueError, match="another steps, seed"):
        Run(GPT(SMALL), replace(QUICK, steps=61, seed=1)).restore(first.state())


def test_a_state_without_its_optimisers_would_not_do() -> None:
    """The check above can fail: with fresh optimisers the same weights go another way."""
    whole = list(training.train(Run(GPT(SMALL), QUICK), counting(), every=10))
    first = Run(GPT(SMALL), QUICK)
    list(training.train(first, counting(), stop=lambda: first.step == 30))
    again = Run(GPT(SMALL), QUICK)
    again.restore(first.state() | {"optimizers": [o.state_dict() for o in again._optimizers]})
    *_, last = training.train(again, counting(), every=10)
    assert abs(last.loss - whole[-1].loss) > 1e-4


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
    assert card["command"].startswith("python -m interp_core.training --out docs.pt --text python-docs")


def test_snapshots_are_spaced_in_the_logarithm_and_end_before_the_last_step() -> None:
    steps = plans.snapshot_steps(800, 9)
    assert len(steps) == 9
    assert steps[0] == plans.FIRST_SNAPSHOT
    assert steps[-1] < 800
    ratios = [later / earlier for earlier, later in itertools.pairwise(steps)]
    assert max(ratios) / min(ratios) < 1.1
    assert plans.snapshot_steps(800, 0) == []
    assert all(step < 20 for step in plans.snapshot_steps(20, 5))


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
    snapshots = run_files.snapshots(out)
    assert list(snapshots) == plans.snapshot_steps(60, 2)
    early = checkpoints.load(snapshots[30]).model
    assert early.config == checkpoint.model.config
    assert not torch.equal(early.head.weight, checkpoint.model.head.weight)
    assert checkpoints.find(tmp_path) == [out]


def test_the_shape_shares_the_width_among_the_heads() -> None:
    config = plans.shape(65, 64, 128, 4, 4)
    assert (config.d_head, config.d_mlp) == (32, 512)
    assert plans.shape(65, 64, 128, 4, 2, d_mlp=0).d_mlp == 0
    for heads in (3, 0):
        with pytest.raises(ValueError, match=f"128 cannot be shared among {heads} heads"):
            plans.shape(65, 64, 128, heads, 4)


def test_a_plan_survives_its_command() -> None:
    plan = Plan(
        Path("a b.pt"), text="successors", layers=2, d_mlp=0, recipe=Recipe(steps=800, matrix_lr=8e-3, dropout=0.0)
    )
    assert plans.of_arguments(plan.arguments) == plan
    assert plans.of_command(plan.command) == plan
    assert replace(plan, out=Path("/x/y.pt"), resume=True).command.endswith(
        "--out y.pt --text successors --layers 2 --d-mlp 0 --steps 800 --matrix-lr 0.008 --dropout 0.0"
    )
    for path in checkpoints.find(ROOT / "checkpoints"):
        card = json.loads(path.with_suffix(".json").read_text())
        told = plans.of_command(card["command"])
        assert asdict(told.recipe) == card["recipe"]
        assert asdict(told.config(card["config"]["d_vocab"])) == card["config"]
    with pytest.raises(ValueError, match="no training command"):
        plans.of_command("rm -rf --all")


COMMAND = ["--layers", "1", "--heads", "2", "--d-model", "16", "--context", "16", "--batch", "4", "--steps", "40"]


def test_the_command_resumes_and_reads_a_file(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "mine.txt").write_text("abcdefgh " * 400)
    out = tmp_path / "mine.pt"
    given = ["--file", str(tmp_path / "mine.txt"), "--out", str(out), *COMMAND, "--every", "10", "--snapshots", "3"]
    assert training.main([*given, "--resume"]) == 0
    whole = run_files.records(out)
    assert [record["step"] for record in whole] == [10, 20, 30, 33, 36, 40]
    card = json.loads(out.with_suffix(".json").read_text())
    assert str(tmp_path) not in json.dumps(card)
    assert card["command"].startswith("python -m interp_core.training --out mine.pt --file mine.txt")
    assert card["vocabulary"] == [" ", *"abcdefgh"]
    assert training.main([*given, "--resume"]) == 0  # done already
    assert run_files.records(out) == whole
    assert training.main(given) == 0  # anew
    again = run_files.records(out)
    assert [record["loss"] for record in again] == pytest.approx([record["loss"] for record in whole], abs=1e-6)
    assert training.main([*given, "--resume", "--seed", "1"]) == 1
    assert "the saved state has another seed" in capsys.readouterr().err


def test_what_cannot_be_trained_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "short.txt").write_text("abc")
    (tmp_path / "odd.txt").write_bytes(b"\xff\xfe")
    for more, words in [
        (["--file", str(tmp_path / "short.txt")], "short.txt has 3 characters; a context of 16 needs at least 1,530"),
        (["--file", str(tmp_path / "odd.txt")], "odd.txt is not text in UTF-8"),
        (["--file", str(tmp_path / "none.txt")], "No such file"),
        (["--text", "python-docs", "--heads", "3"], "16 cannot be shared among 3 heads"),
        (["--text", "python-docs", "--dropout", "2"], "dropout is 2.0"),
    ]:
        assert training.main(["--out", str(tmp_path / "x.pt"), *COMMAND, *more]) == 1
        said = capsys.readouterr().err
        assert words in said
        assert said.count("\n") == 1
    assert not (tmp_path / "x.pt").exists()


@pytest.mark.parametrize("rate", ["1e18", "10"])
def test_a_run_that_diverges_keeps_no_bad_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture, rate: str) -> None:
    out = tmp_path / "wild.pt"
    given = ["--text", "alphabet", "--d-vocab", "9", "--out", str(out), *COMMAND, "--every", "1", "--warmup", "15"]
    assert training.main([*given, "--other-lr", rate, "--matrix-lr", rate]) == training.GAVE_UP
    assert "the loss went " in capsys.readouterr().err
    records = {r["step"]: sum(r["validation_windows"]) / len(r["validation_windows"]) for r in run_files.records(out)}
    assert max(records.values()) > 5 or any(math.isnan(loss) for loss in records.values())
    if out.is_file():
        checkpoint = checkpoints.load(out)
        assert records[checkpoint.card["step"]] < math.log(9) + training.UNSTEADY
        loss = token_losses(checkpoint.model, lessons.of_sequences("alphabet", 9, 16).validation).mean().item()
        assert loss == pytest.approx(records[checkpoint.card["step"]], abs=1e-3)


def test_a_run_whose_loss_jumps_late_keeps_the_checkpoint_from_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rate is raised a thousandfold at step 25: everything before is good, everything after is not."""
    usual = Recipe.rate
    monkeypatch.setattr(Recipe, "rate", lambda self, step: usual(self, step) * (1000 if step >= 25 else 1))
    monkeypatch.setattr(training, "SAVE_SECONDS", 0.0)
    out = tmp_path / "late.pt"
    given = ["--text", "alphabet", "--d-vocab", "9", "--out", str(out), *COMMAND, "--every", "1", "--snapshots", "2"]
    assert training.main([*given, "--other-lr", "1e-2", "--matrix-lr", "1e-2"]) == training.GAVE_UP
    assert 20 <= checkpoints.load(out).card["step"] <= 26
    assert run_files.snapshots(out) == {}
