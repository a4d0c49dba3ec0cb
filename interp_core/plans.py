"""What is to be trained, and how: the numbers of a run, as a page's form, a command line and a card have them."""

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from interp_core import corpora, lessons, synthetic
from interp_core.lessons import Lesson
from interp_core.model import ModelConfig

FIRST_SNAPSHOT = 30  # step
RECORDS = 100  # of a run, unless said otherwise


@dataclass(frozen=True)
class Recipe:
    """How a model is trained.

    Raises:
        ValueError: a number out of its range.
    """

    steps: int = 5000
    batch: int = 64  # windows a step
    matrix_lr: float = 5e-3  # Muon's, for the matrices inside the blocks
    other_lr: float = 3e-3  # AdamW's, for embeddings, norms, biases and the head
    weight_decay: float = 0.2  # of the matrices
    dropout: float = 0.1  # of what the embedding, attention and MLP write into the residual stream
    warmup: int = 20  # steps
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch < 1 or self.warmup < 0:
            raise ValueError(f"steps {self.steps}, batch {self.batch}, warm-up {self.warmup}: expected 1, 1, 0 or more")
        if self.seed < 0:
            raise ValueError(f"the seed is {self.seed}, expected 0 or more")
        if not min(self.matrix_lr, self.other_lr) > 0:
            raise ValueError(f"the learning rates are {self.matrix_lr:g} and {self.other_lr:g}, expected above 0")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}, expected at least 0 and below 1")

    def rate(self, step: int) -> float:
        """Share of the full learning rate at a step: warm-up, then linear decay to zero."""
        return min(1.0, (step + 1) / max(self.warmup, 1)) * (1 - step / self.steps)


@dataclass(frozen=True)
class Plan:
    """A run that is yet to begin, or that a card tells of."""

    out: Path  # the .pt to write; the card goes beside it
    text: str = "tiny-shakespeare"  # or one of `synthetic.KINDS`
    file: Path | None = None  # a text of one's own in UTF-8, instead of a named one
    layers: int = 4
    heads: int = 4
    d_model: int = 128
    context: int = 64
    d_mlp: int | None = None  # 0 for attention only; 4 × d_model by default
    d_vocab: int = 65  # tokens of a synthetic text
    snapshots: int = 0  # how many to keep, in a folder of its name
    every: int | None = None  # steps between records
    resume: bool = False  # go on where an earlier run of the same command stood
    recipe: Recipe = field(default_factory=Recipe)

    @property
    def record_every(self) -> int:
        """Steps between records."""
        return self.every or max(1, self.recipe.steps // RECORDS)

    def lesson(self) -> Lesson:
        """What is to be learned.

        Raises:
            ValueError, OSError, corpora.TextUnavailable: the text cannot be read, or nothing can be learned from it.
        """
        if self.file is not None:
            return lessons.of_text(self.file.name, corpora.read_file(self.file), self.context)
        if self.text in synthetic.KINDS:
            return lessons.of_sequences(self.text, self.d_vocab, self.context)
        return lessons.of_text(self.text, corpora.read(self.text), self.context)

    def config(self, d_vocab: int) -> ModelConfig:
        """The shape of the model.

        Raises:
            ValueError: as `shape`.
        """
        return shape(d_vocab, self.context, self.d_model, self.heads, self.layers, self.d_mlp)

    def snapshot_steps(self) -> list[int]:
        """Steps whose weights are kept."""
        return snapshot_steps(self.recipe.steps, self.snapshots)

    @property
    def arguments(self) -> list[str]:
        """Of the command that runs it; what is as by default is left out."""
        usual, given = Plan(self.out), []
        for plan, default in ((self, usual), (self.recipe, usual.recipe)):
            for name, value in ((f.name, getattr(plan, f.name)) for f in fields(plan) if f.name != "recipe"):
                if name == "resume":
                    given += ["--resume"] * value
                elif name == "out" or value != getattr(default, name):
                    given += [_option(name), str(value)]
        return given

    @property
    def command(self) -> str:
        """As another machine would run it: no folders of this one, and from the beginning."""
        parts = [Path(part).name if Path(part).is_absolute() else part for part in self.arguments if part != "--resume"]
        return shlex.join(["python", "-m", "interp_core.training", *parts])


def shape(d_vocab: int, context: int, d_model: int, heads: int, layers: int, d_mlp: int | None = None) -> ModelConfig:
    """The config of a model in the course's manner; the MLP is four times as wide as the stream unless said otherwise.

    Raises:
        ValueError: the width cannot be shared among the heads, or a size is out of range.
    """
    if heads < 1 or d_model % heads:
        raise ValueError(f"a width of {d_model} cannot be shared among {heads} heads: choose a multiple of {heads}")
    return ModelConfig(
        d_vocab=d_vocab,
        context=context,
        d_model=d_model,
        heads=heads,
        layers=layers,
        d_head=d_model // heads,
        d_mlp=4 * d_model if d_mlp is None else d_mlp,
    )


def snapshot_steps(steps: int, count: int) -> list[int]:
    """Up to `count` steps of a run before its last, spaced evenly in the logarithm: what forms early forms fast."""
    ratio = steps / FIRST_SNAPSHOT
    spaced = (round(FIRST_SNAPSHOT * ratio ** (i / count)) for i in range(count))
    return sorted({step for step in spaced if 0 < step < steps})


def of_arguments(arguments: Sequence[str]) -> Plan:
    """The plan that a command line tells.

    Raises:
        ValueError: a number of the recipe is out of its range.
        SystemExit: no such option; argparse has said which.
    """
    parser = argparse.ArgumentParser(description="Train a small GPT and write a checkpoint with its card.")
    parser.add_argument("--out", type=Path, required=True, help="the .pt to write; the card goes beside it")
    parser.add_argument("--text", default="tiny-shakespeare", choices=(*corpora.NAMES, *synthetic.KINDS))
    parser.add_argument("--file", type=Path, help="a text of your own in UTF-8, instead of a named one")
    for name in ("layers", "heads", "d_model", "context", "d_vocab", "snapshots"):
        parser.add_argument(_option(name), type=int, default=getattr(Plan, name))
    parser.add_argument("--d-mlp", type=int, help="0 for attention only; 4 × d_model by default")
    parser.add_argument("--every", type=int, help=f"steps between records; a {RECORDS}th of all by default")
    parser.add_argument("--resume", action="store_true", help="go on where an earlier run of the same command stood")
    for name, value in asdict(Recipe()).items():
        parser.add_argument(_option(name), type=type(value), default=value)
    given = vars(parser.parse_args(arguments))
    recipe = Recipe(**{f.name: given.pop(f.name) for f in fields(Recipe)})
    return Plan(**given, recipe=recipe)


def of_command(command: str) -> Plan:
    """The plan that the command on a card tells.

    Raises:
        ValueError: it is no training command.
    """
    try:
        return of_arguments(shlex.split(command)[3:])
    except SystemExit as error:
        raise ValueError(f"no training command of this version: {command}") from error


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
