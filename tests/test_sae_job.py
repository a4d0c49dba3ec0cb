"""The command that trains an autoencoder with its controls."""

from pathlib import Path

import pytest

from interp_core import checkpoints, corpora, run_files, sae_files, sae_job, sae_quality
from interp_core.sae_job import Plan
from interp_core.sae_training import Recipe
from tests.conftest import ROOT


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    checkpoint = checkpoints.load(ROOT / "checkpoints" / "shakespeare.pt")
    text = corpora.encode("mine.txt", corpora.read("python-docs")[:60_000], checkpoint.tokenizer, "drop")
    path = tmp_path_factory.mktemp("text") / "tokens.safetensors"
    path.write_bytes(sae_job.write_tokens(text))
    return path


def small(out: Path, tokens: Path, **options: object) -> Plan:
    recipe = Recipe(steps=30, batch=256, dead_after=2000)
    given = {"text": "mine.txt", "tokens": tokens, "expansion": 2, "k": 8, "rows": 4000, "recipe": recipe} | options
    return Plan(out, ROOT / "checkpoints" / "shakespeare.pt", **given)  # type: ignore[arg-type]


def test_a_command_says_what_a_plan_says(tmp_path: Path) -> None:
    plan = small(tmp_path / "x.sae.safetensors", Path("t"), kind="L1", controls=False, recipe=Recipe(l1=0.5, seed=3))
    assert sae_job.of_arguments(plan.arguments) == plan
    plain = Plan(Path("a.sae.safetensors"), Path("checkpoints/shakespeare.pt"))
    assert plain.command == (
        "python -m interp_core.sae_job --out a.sae.safetensors --checkpoint checkpoints/shakespeare.pt"
    )
    assert "/" not in plan.command.split("--checkpoint")[1].split()[0].replace("shakespeare.pt", "")


@pytest.mark.slow
def test_the_file_knows_all_that_was_measured(tmp_path: Path, tokens: Path) -> None:
    out = tmp_path / "mine.sae.safetensors"
    plan = small(out, tokens)
    assert sae_job.main(plan.arguments) == 0
    found = sae_files.load(out)
    checkpoint = checkpoints.load(plan.checkpoint)
    assert found.card["checkpoint"] == checkpoint.sha256
    assert found.sae.shape.features == 256
    assert found.replication is not None
    assert found.replication.shape == (256,)
    assert len(found.card["frontier"]) == 1 + len(sae_job.SWEEP)
    assert [round(entry["active"]) for entry in found.card["frontier"]] == pytest.approx([8, 2, 4, 16, 32], abs=1)
    assert found.card["untrained"]["active"] <= 8
    material, _ = sae_job.read(plan)
    site = sae_quality.Site.of(checkpoint.model, material.windows, plan.site)
    again = sae_quality.of_autoencoder(site, found.sae)
    assert again.explained.estimate == pytest.approx(found.card["quality"]["explained"]["estimate"], abs=1e-5)
    records = run_files.records(out)
    parts = list(dict.fromkeys(record["part"] for record in records))
    assert parts == [sae_job.MAIN, sae_job.TWIN, *(f"sparsity × {t:g}" for t in sae_job.SWEEP), sae_job.UNTRAINED]
    assert records[-1]["step"] == records[-1]["steps"] == 30


def test_the_autoencoder_alone_and_what_cannot_be_read(
    tmp_path: Path, tokens: Path, capsys: pytest.CaptureFixture
) -> None:
    out = tmp_path / "alone.sae.safetensors"
    assert sae_job.main(small(out, tokens, controls=False, kind="L1").arguments) == 0
    found = sae_files.load(out)
    assert found.replication is None
    assert "untrained" not in found.card
    assert sae_job.main(small(out, tmp_path / "none").arguments) == 1
    assert "none" in capsys.readouterr().err
    assert sae_job.main(small(out, tokens, site="pattern.0").arguments) == 1
    assert "expected sites that hold a vector" in capsys.readouterr().err
