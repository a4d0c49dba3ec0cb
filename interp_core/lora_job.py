"""Sweeps low-rank tunings of a checkpoint on a second text and writes what was found: a command, run as a job.

    python -m interp_core.lora_job --checkpoint checkpoints/shakespeare.pt --target prose --out tuned/tuned.pt

The target is a part of the held-out tenth of a named text, or what `--tokens` holds (see `write_tokens`). Beside `--out`, the
model of the rank where quality saturates, lies `.tuning.json` with every outcome; it is written anew after each, so that it can
be looked at.
"""

import argparse
import json
import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch

from interp_core import checkpoints, corpora, domains, files, lora, lora_sweep, run_files
from interp_core.checkpoints import Checkpoint
from interp_core.corpora import Text
from interp_core.lora import TARGETS, Tuning
from interp_core.lora_sweep import Material, Outcome
from interp_core.tokenizers import CharTokenizer

TARGET_WINDOWS, SOURCE_WINDOWS = 96, 64
HELD_OUT = 0.25  # of the target text: it is short, and its loss is what is compared
RESULTS = ".tuning.json"
OPTIONS = ("alpha", "steps", "batch", "seed")  # of a tuning, as the command line has them


@dataclass(frozen=True)
class Plan:
    """A sweep that is yet to be made, or that a file tells of."""

    out: Path
    checkpoint: Path
    tokens: Path | None = None  # numbers of target and source, instead of parts of a named text
    text: str = "tiny-shakespeare"
    of: str = ""  # hash of the checkpoint that is meant, where `checkpoint` is a copy of it
    target: str = "prose"  # a part of a play (see `domains.part`), or what a page calls the text in `tokens`
    targets: tuple[str, ...] = ("queries", "values")
    ranks: tuple[int, ...] = lora_sweep.RANKS
    seeds: int = lora_sweep.SEEDS
    tuning: Tuning = field(default_factory=lambda: Tuning(steps=60))

    @property
    def results(self) -> Path:
        """Where the outcomes are kept."""
        return self.out.with_suffix(RESULTS)

    @property
    def arguments(self) -> list[str]:
        """Of the command that runs it."""
        given = ["--out", str(self.out), "--checkpoint", str(self.checkpoint)]
        given += ["--text", self.text] if self.tokens is None else ["--tokens", str(self.tokens)]
        given += ["--of", self.of] * bool(self.of) + ["--target", self.target, "--targets", ",".join(self.targets)]
        given += ["--ranks", ",".join(map(str, self.ranks)), "--seeds", str(self.seeds)]
        for name in OPTIONS:
            given += [f"--{name}", str(getattr(self.tuning, name))]
        return given

    @property
    def command(self) -> str:
        """As another machine would run it."""
        parts = [Path(part).name if Path(part).is_absolute() else part for part in self.arguments]
        return shlex.join(["python", "-m", "interp_core.lora_job", *parts])


def of_arguments(arguments: Sequence[str]) -> Plan:
    """The plan that a command line tells.

    Raises:
        ValueError: a number or name that cannot be.
        SystemExit: no such option; argparse has said which.
    """
    parser = argparse.ArgumentParser(description="Is the update of a fine-tuning low rank?")
    for name in ("out", "checkpoint"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--tokens", type=Path, help="numbers of target and source, instead of parts of a named text")
    for name in ("of", "target", "text"):
        parser.add_argument(f"--{name}", default=getattr(Plan, name))
    parser.add_argument(
        "--targets", type=lambda given: tuple(given.split(",")), default=Plan.targets, help=", ".join(TARGETS)
    )
    parser.add_argument("--ranks", type=lambda given: tuple(map(int, given.split(","))), default=Plan.ranks)
    parser.add_argument("--seeds", type=int, default=Plan.seeds)
    usual = Tuning(steps=60)
    for name in OPTIONS:
        parser.add_argument(f"--{name}", type=type(getattr(usual, name)), default=getattr(usual, name))
    given = vars(parser.parse_args(arguments))
    tuning = Tuning(targets=given["targets"], **{name: given.pop(name) for name in OPTIONS})
    return Plan(**given, tuning=tuning)


def write_tokens(target: Text, source: Text) -> bytes:
    """The numbers of the target text, and of the part of the source that is held out from everything."""
    numbers = torch.cat([target.train, target.validation])
    return safetensors.torch.save({"target": numbers, "source": torch.cat([source.train, source.validation])})


def material(plan: Plan, checkpoint: Checkpoint) -> Material:
    """What is learned, and the windows on which target and source are judged.

    Raises:
        ValueError: a text is too short, or has no such part.
    """
    context, tokenizer = checkpoint.model.config.context, checkpoint.tokenizer
    if plan.tokens is not None:
        held = safetensors.torch.load_file(plan.tokens)
    else:
        validation = corpora.load(plan.text, tokenizer).validation
        parts_of = domains.part(tokenizer.decode(validation.tolist()), plan.target)
        held = {name: tokenizer.encode(part) for name, part in zip(("target", "source"), parts_of, strict=True)}
    target, source = held["target"], held["source"]
    cut = int((1 - HELD_OUT) * len(target))
    parts = []
    for name, numbers, most in (("target", target[cut:], TARGET_WINDOWS), ("source", source, SOURCE_WINDOWS)):
        count = min(most, corpora.count_windows(numbers, context))
        if count < lora_sweep.FEWEST_WINDOWS:
            raise ValueError(
                f"The {name} text holds {count} windows of {context + 1} tokens to be judged by, and "
                f"{lora_sweep.FEWEST_WINDOWS} are the least: take a longer one."
            )
        parts.append(corpora.windows(numbers, context, count, plan.tuning.seed))
    return Material(target[:cut], *parts)


def work(plan: Plan, tell: Any) -> None:
    """Makes the sweep; the results are there, and more of them, after every outcome."""
    checkpoint = checkpoints.load(plan.checkpoint)
    model = checkpoint.model
    given = material(plan, checkpoint)
    chosen = lora_sweep.variants(model, plan.tuning, plan.ranks)
    total, outcomes, kept = lora_sweep.count(chosen, plan.seeds), [], {}
    papers: dict[str, Any] = {
        "checkpoint": plan.of or checkpoint.sha256, "target": plan.target, "targets": plan.targets,
        "command": plan.command, "seeds": plan.seeds, "checkpoint_name": checkpoint.name,
        "tuning": {f.name: getattr(plan.tuning, f.name) for f in fields(Tuning)},
        "windows": {"target": len(given.target), "source": len(given.source), "tokens learned": len(given.train)},
        "rates": {variant.name: variant.rates for variant in chosen},
    }  # fmt: skip
    for outcome in lora_sweep.sweep(
        model, given, chosen, plan.seeds, lambda name, done: tell({"part": name, "step": done, "steps": total})
    ):
        outcomes.append(outcome)
        if outcome.model is not None and outcome.tuning.kind in ("low rank", "full"):
            kept[outcome.variant] = outcome.model
            papers |= _of_model(outcome, model)
        papers["outcomes"] = [lora_sweep.described(one) for one in outcomes]
        files.write(plan.results, json.dumps(papers).encode())
    rank = lora_sweep.elbow(lora_sweep.table(outcomes, papers["rates"]))
    tokenizer = checkpoint.tokenizer
    checkpoints.save(
        plan.out,
        kept[f"rank {rank}"],
        tokenizer.vocabulary if isinstance(tokenizer, CharTokenizer) else None,
        {"tuned_from": papers["checkpoint"], "rank": rank, "target": plan.target, "command": plan.command},
    )


def _of_model(outcome: Outcome, base: Any) -> dict[str, Any]:
    """What only the weights can tell: spectra of the full update, and how far each head moved."""
    assert outcome.model is not None
    found: dict[str, Any] = {f"heads {outcome.variant}": lora_sweep.head_changes(base, outcome.model).tolist()}
    if outcome.variant == lora_sweep.FULL:
        updates = lora.updates(base, outcome.model)
        found["spectra"] = {name: lora.spectrum(update).tolist() for name, update in updates.items()}
    return found


@dataclass(frozen=True, eq=False)
class Results:
    """A sweep as its file tells it."""

    papers: dict[str, Any]
    outcomes: tuple[Outcome, ...]


def read(path: Path) -> Results:
    """What a sweep has found so far.

    Raises:
        FileNotFoundError: nothing yet.
    """
    papers = json.loads(path.read_text())
    outcomes = []
    for one in papers["outcomes"]:
        tuning = dict(one["tuning"])
        tuning["targets"] = tuple(tuning["targets"])
        tuning["layers"] = None if tuning["layers"] is None else tuple(tuning["layers"])
        target, source = (np.array(one[name], dtype=np.float64) for name in ("target", "source"))
        outcomes.append(Outcome(one["variant"], Tuning(**tuning), one["parameters"], target, source))
    return Results(papers, tuple(outcomes))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: sweeps, and writes results, records and the tuned model."""
    try:
        plan = of_arguments(sys.argv[1:] if arguments is None else arguments)
        run_files.begin(plan.out, 0)

        def tell(record: dict[str, Any]) -> None:
            print(f"{record['part']}: {record['step']} of {record['steps']}", flush=True)
            run_files.append(plan.out, record)

        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        work(plan, tell)
    except (ValueError, OSError, corpora.TextUnavailable) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
