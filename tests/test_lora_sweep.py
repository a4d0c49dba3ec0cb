"""The sweep of ranks: what is compared, what it finds where the truth is planted, and its command."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from interp_core import checkpoints, corpora, lora, lora_job, lora_sweep, run_files, samples
from interp_core.lora import Tuning
from interp_core.lora_sweep import BASE, FULL, Material, Outcome
from tests.conftest import SMALL, random_model


def outcome(name: str, kind: lora.Kind, rank: int, target: float, seed: int = 0, lr: float = 1e-3) -> Outcome:
    rng = np.random.default_rng([seed, rank])
    hard = np.random.default_rng(99).normal(0, 0.5, 40)  # what makes a window hard for all
    return Outcome(
        name, Tuning(kind, rank=rank, lr=lr), 100 * rank, target + hard + rng.normal(0, 0.01, 40), np.full(30, 1.5)
    )


def test_the_table_pairs_windows_and_finds_the_elbow() -> None:
    found = [outcome(BASE, "low rank", 4, 2.0)]
    for rank, target in ((1, 1.9), (2, 1.8), (4, 1.7), (8, 1.7), (16, 1.7)):
        found += [outcome(f"rank {rank}", "low rank", rank, target, seed, lr=3e-3) for seed in range(3)]
    found += [outcome(FULL, "full", 4, 1.68)]
    table = lora_sweep.table(found, {"rank 1": (1e-3, 3e-3)}).set_index("variant")
    assert table.loc["rank 4", "gain_nats"] == pytest.approx(0.3, abs=0.01)
    assert table.loc["rank 4", "gain_nats_high"] - table.loc["rank 4", "gain_nats_low"] < 0.02
    assert table.loc["rank 4", "target_nats_high"] - table.loc["rank 4", "target_nats_low"] > 0.2
    assert table.loc["rank 1", "edge"]
    assert not table.loc["rank 2", "edge"]
    assert table.loc["rank 8", "seeds"] == 3
    assert lora_sweep.elbow(table.reset_index()) == 4
    with pytest.raises(ValueError, match="no low-rank"):
        lora_sweep.elbow(lora_sweep.table(found[:1], {}))


@pytest.fixture(scope="module")
def material() -> tuple[torch.nn.Module, Material]:
    """A base model, and what a teacher writes that differs from it in one head's values."""
    base = random_model(size=0.3)
    teacher = lora.share(base)
    weight = teacher.block(1).attn.value.weight.clone()
    weight[: SMALL.d_head] += torch.randn(SMALL.d_head, SMALL.d_model, generator=torch.Generator().manual_seed(1))
    teacher.block(1).attn.value.weight = torch.nn.Parameter(weight, requires_grad=False)
    written = samples.own_windows(teacher, 600, seed=0)
    return base, Material(written[:400].flatten(), written[400:500], samples.own_windows(base, 60, seed=1))


@pytest.mark.slow
def test_a_sweep_tunes_every_variant_at_its_own_rate(material: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    base, given = material
    monkeypatch.setattr(lora_sweep, "RATES", (1e-3, 2e-2))
    monkeypatch.setattr(lora_sweep, "FULL_RATES", (1e-3, 3e-3))
    variants = lora_sweep.variants(base, Tuning(steps=40, targets=("values",)), ranks=(1, 2))
    assert [variant.name for variant in variants] == [
        "rank 1", "rank 2", FULL, "frozen A, rank 2", "unembedding only", *(f"dense values of layer {i}" for i in range(3)),
    ]  # fmt: skip
    told: list[int] = []
    found = list(lora_sweep.sweep(base, given, variants, seeds=2, tell=lambda name, done: told.append(done)))
    assert told == list(range(1, lora_sweep.count(variants, 2) + 1))
    assert len(found) == 1 + 2 * len(variants)
    table = lora_sweep.table(found, {variant.name: variant.rates for variant in variants}).set_index("variant")
    assert table.loc["rank 2", "gain_nats_low"] > 0
    assert table.loc["dense values of layer 1", "gain_nats"] > table.loc["dense values of layer 0", "gain_nats"]
    assert table.loc["rank 2", "forgetting_nats"] > 0, "what it learned is not what the source is"


def test_only_the_head_that_differs_has_moved() -> None:
    base = random_model()
    other = lora.share(base)
    for name in ("value", "proj"):
        weight = getattr(base.block(1).attn, name).weight.clone()
        part = weight[SMALL.d_head :] if name == "value" else weight[:, SMALL.d_head :]
        part *= 1.5
        getattr(other.block(1).attn, name).weight = torch.nn.Parameter(weight, requires_grad=False)
    moved = lora_sweep.head_changes(base, other)
    assert (moved > 0).nonzero().tolist() == [[1, 1]]
    sizes = [getattr(base.block(1).attn, name).weight for name in ("query", "key", "value")]
    sizes = [float(weight[SMALL.d_head :].square().sum()) for weight in sizes]
    out = float(base.block(1).attn.proj.weight[:, SMALL.d_head :].square().sum())
    assert moved[1, 1] == pytest.approx(0.5 * ((sizes[2] + out) / (sum(sizes) + out)) ** 0.5, rel=1e-5)


@pytest.mark.slow
def test_the_command_writes_results_records_and_a_tuned_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = random_model(size=0.3)
    checkpoints.save(tmp_path / "base.pt", base, tuple("abcdefghijk"), {})
    written = corpora.from_windows("x", samples.own_windows(random_model(size=0.3, seed=4), 400, 0))
    (tmp_path / "tokens.safetensors").write_bytes(lora_job.write_tokens(written, written))
    plan = lora_job.Plan(
        tmp_path / "mine" / "mine.pt", tmp_path / "base.pt", tmp_path / "tokens.safetensors", target="another's words",
        ranks=(1, 2), seeds=2, tuning=Tuning(steps=3),
    )  # fmt: skip
    assert lora_job.of_arguments(plan.arguments) == plan
    assert str(tmp_path) not in plan.command
    plan.out.parent.mkdir()
    assert lora_job.main(plan.arguments) == 0
    found = lora_job.read(plan.results)
    assert found.papers["checkpoint"] == checkpoints.load(tmp_path / "base.pt").sha256
    assert set(found.papers["spectra"]) == {f"blocks.{i}.{name}" for i in range(3) for name in (
        "attn.query", "attn.key", "attn.value", "attn.proj", "mlp.fc", "mlp.proj")}  # fmt: skip
    records = run_files.records(plan.out)
    assert records[-1]["step"] == records[-1]["steps"]
    tuned = checkpoints.load(plan.out)
    assert tuned.card["tuned_from"] == found.papers["checkpoint"]
    assert tuned.tokenizer.decode([0, 1]) == "ab"
    assert lora_job.main([*plan.arguments[:4], "--tokens", str(tmp_path / "none")]) == 1


def test_too_short_a_text_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    checkpoints.save(tmp_path / "base.pt", random_model(), None, {})
    short = corpora.from_windows("x", samples.own_windows(random_model(), 20, 0))
    (tmp_path / "t.safetensors").write_bytes(lora_job.write_tokens(short, short))
    given = [
        "--out",
        str(tmp_path / "o.pt"),
        "--checkpoint",
        str(tmp_path / "base.pt"),
        "--tokens",
        str(tmp_path / "t.safetensors"),
    ]
    assert lora_job.main(given) == 1
    assert "16 are the least" in capsys.readouterr().err
    assert not json.loads((tmp_path / "base.json").read_text()).get("tuned_from")
