"""Trains an autoencoder with its controls and writes one file: a command, run as a job.

    python -m interp_core.sae_job --checkpoint checkpoints/shakespeare.pt --out checkpoints/shakespeare.sae.safetensors

The autoencoder itself comes first and can be used at once. Then a second one from another seed, to see which features come
back; a quick sweep of the sparsity; and one on an untrained model of the same shape. Each replaces the file by one that
knows more.
"""

import argparse
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from interp_core import activations, checkpoints, corpora, run_files, sae_files, sae_quality, sae_training
from interp_core.corpora import Text
from interp_core.model import GPT
from interp_core.sae import Shape, SparseAutoencoder
from interp_core.sae_quality import Quality, Site
from interp_core.sae_training import Recipe, Run

MAX_MEMORY = 300_000_000  # bytes of activations that are held at once
VALIDATION_WINDOWS = 128
RECORD_WINDOWS = 32  # of them, while the training runs
RECORDS = 15
SWEEP = (0.25, 0.5, 2.0, 4.0)  # times the sparsity, each for a share of the steps
SWEEP_SHARE = 0.3
MAIN, TWIN, UNTRAINED = "autoencoder", "second seed", "untrained model"


@dataclass(frozen=True)
class Plan:
    """An autoencoder that is yet to be trained, or that a card tells of."""

    out: Path
    checkpoint: Path
    site: str = "resid_post.2"
    text: str = "tiny-shakespeare"
    tokens: Path | None = None  # numbers of a text of one's own, instead of a named one (see `write_tokens`)
    of: str = ""  # hash of the checkpoint that is meant, where `checkpoint` is a copy of it
    kind: str = "TopK"
    expansion: int = 16  # features for every dimension of the site
    k: int = 16
    rows: int = 400_000  # activations that are gathered
    controls: bool = True
    recipe: Recipe = field(default_factory=Recipe)

    @property
    def arguments(self) -> list[str]:
        """Of the command that runs it; what is as by default is left out."""
        usual, given = Plan(self.out, self.checkpoint), []
        for plan, default in ((self, usual), (self.recipe, usual.recipe)):
            for name, value in ((f.name, getattr(plan, f.name)) for f in fields(plan) if f.name != "recipe"):
                if name == "controls":
                    given += ["--no-controls"] * (not value)
                elif name in ("out", "checkpoint") or value != getattr(default, name):
                    given += [_option(name), str(value)]
        return given

    @property
    def command(self) -> str:
        """As another machine would run it."""
        parts = [Path(part).name if Path(part).is_absolute() else part for part in self.arguments]
        return shlex.join(["python", "-m", "interp_core.sae_job", *parts])


def of_arguments(arguments: Sequence[str]) -> Plan:
    """The plan that a command line tells.

    Raises:
        ValueError: a number of the recipe is out of its range.
        SystemExit: no such option; argparse has said which.
    """
    parser = argparse.ArgumentParser(description="Train a sparse autoencoder with its controls.")
    for name in ("out", "checkpoint"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--tokens", type=Path, help="numbers of a text of your own, instead of a named one")
    parser.add_argument("--no-controls", dest="controls", action="store_false", help="the autoencoder alone")
    for name in ("site", "text", "of", "kind"):
        parser.add_argument(_option(name), default=getattr(Plan, name))
    for name in ("expansion", "k", "rows"):
        parser.add_argument(_option(name), type=int, default=getattr(Plan, name))
    for name, value in asdict(Recipe()).items():
        parser.add_argument(_option(name), type=type(value), default=value)
    given = vars(parser.parse_args(arguments))
    recipe = Recipe(**{f.name: given.pop(f.name) for f in fields(Recipe)})
    return Plan(**given, recipe=recipe)


def write_tokens(text: Text) -> bytes:
    """A text's numbers as a file that `--tokens` reads."""
    return safetensors.torch.save({"train": text.train, "validation": text.validation}, {"name": text.name})


@dataclass(frozen=True, eq=False)
class Material:
    """What an autoencoder is trained on and judged by."""

    model: GPT
    train: Tensor  # numbers of the text's training part
    windows: Tensor  # [window pos_plus_1] of the validation part
    plan: Plan

    def rows(self, model: GPT) -> Tensor:
        """Activations of the training part [row d], as many as are asked for and there is room for."""
        context, site = self.windows.shape[1] - 1, self.plan.site
        one = activations.gather(model, self.windows[:1, :-1], [site])[site].values
        most = min(self.plan.rows, MAX_MEMORY // (4 * one.shape[1]), len(self.train))
        count = max(1, min(most // context, corpora.count_windows(self.train, context)))
        windows = corpora.windows(self.train, context, count, self.plan.recipe.seed)
        return activations.gather(model, windows[:, :-1], [site])[site].values


def read(plan: Plan) -> tuple[Material, dict[str, Any]]:
    """Loads checkpoint and text; and what the card says of them.

    Raises:
        checkpoints.CheckpointError, corpora.TextUnavailable, ValueError, OSError: they cannot be read or do not fit.
    """
    checkpoint = checkpoints.load(plan.checkpoint)
    if plan.tokens is not None:
        held = safetensors.torch.load_file(plan.tokens)
        train, validation, sha256 = held["train"], held["validation"], ""
    else:
        text = corpora.load(plan.text, checkpoint.tokenizer)
        train, validation, sha256 = text.train, text.validation, text.sha256
    context = checkpoint.model.config.context
    count = min(VALIDATION_WINDOWS, corpora.count_windows(validation, context))
    windows = corpora.windows(validation, context, count, plan.recipe.seed)
    papers = {
        "checkpoint": plan.of or checkpoint.sha256, "checkpoint_name": checkpoint.name, "site": plan.site,
        "text": plan.text, "text_sha256": sha256, "recipe": asdict(plan.recipe), "command": plan.command,
    }  # fmt: skip
    return Material(checkpoint.model, train, windows, plan), papers


Tell = Callable[[dict[str, Any]], None]


def fit(material: Material, part: str, recipe: Recipe, shape: Shape, rows: Tensor, model: GPT, tell: Tell) -> Run:
    """Trains one autoencoder and tells records of it, with its quality on the validation windows."""
    run = Run(SparseAutoencoder(shape, recipe.seed), recipe, rows)
    site = Site.of(model, material.windows[:RECORD_WINDOWS], material.plan.site)
    for record in sae_training.train(run, max(1, recipe.steps // RECORDS)):
        found = sae_quality.of_autoencoder(site, run.sae)
        tell({"part": part, "steps": recipe.steps, **asdict(record), **asdict(found)})
    return run


def work(plan: Plan, tell: Tell) -> Iterator[None]:
    """Trains everything; the file is there, and newer, at every pause."""
    material, papers = read(plan)
    rows = material.rows(material.model)
    papers["rows"] = len(rows)
    shape = Shape(plan.kind, rows.shape[1], plan.expansion * rows.shape[1], min(plan.k, rows.shape[1]))  # type: ignore[arg-type]
    run = fit(material, MAIN, plan.recipe, shape, rows, material.model, tell)
    site = Site.of(material.model, material.windows, plan.site)
    papers |= {
        "quality": asdict(sae_quality.of_autoencoder(site, run.sae)),
        "dead": int(run.dead.sum()),
        "resampled": run.resampled,
    }
    papers["frontier"] = [_point(plan.kind, sae_quality.of_autoencoder(site, run.sae))]
    sae_files.save(plan.out, run.sae, papers)
    yield
    if not plan.controls:
        return
    twin = fit(material, TWIN, replace(plan.recipe, seed=plan.recipe.seed + 1), shape, rows, material.model, tell)
    replication = sae_quality.replication(run.sae, twin.sae)
    sae_files.save(plan.out, run.sae, papers, replication)
    yield
    papers["frontier"] += [_point(plan.kind, found) for found in _sweep(material, shape, rows, tell)]
    sae_files.save(plan.out, run.sae, papers, replication)
    yield
    model = GPT(material.model.config, plan.recipe.seed)
    control = fit(material, UNTRAINED, plan.recipe, shape, material.rows(model), model, tell)
    there = Site.of(model, material.windows, plan.site)
    papers["untrained"] = asdict(sae_quality.of_autoencoder(there, control.sae))
    sae_files.save(plan.out, run.sae, papers, replication)


def _sweep(material: Material, shape: Shape, rows: Tensor, tell: Tell) -> Iterator[Quality]:
    """The same for a shorter time, sparser and less sparse."""
    recipe, site = material.plan.recipe, Site.of(material.model, material.windows, material.plan.site)
    for times in SWEEP:
        short = replace(recipe, steps=max(1, round(SWEEP_SHARE * recipe.steps)), l1=recipe.l1 / times)
        this = shape if shape.kind == "L1" else replace(shape, k=min(max(1, round(shape.k * times)), shape.features))
        run = fit(material, f"sparsity × {times:g}", short, this, rows, material.model, tell)
        yield sae_quality.of_autoencoder(site, run.sae)


def _point(kind: str, found: Quality) -> dict[str, Any]:
    return {"kind": kind, **asdict(found)}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: trains, and writes the file and the records of its training."""
    try:
        plan = of_arguments(sys.argv[1:] if arguments is None else arguments)
        run_files.begin(plan.out, 0)

        def tell(record: dict[str, Any]) -> None:
            print(f"{record['part']}: step {record['step']}, error {record['error']:.4f}", flush=True)
            run_files.append(plan.out, record)

        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        for _ in work(plan, tell):
            pass
    except (ValueError, OSError, corpora.TextUnavailable) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


if __name__ == "__main__":
    torch.set_grad_enabled(True)
    sys.exit(main())
