"""Trains a small GPT: a generator of records, and a command that writes a checkpoint with its card.

    python -m interp_core.training --text tiny-shakespeare --out checkpoints/shakespeare.pt
    python -m interp_core.training --text successors --layers 2 --d-mlp 0 --out my-induction.pt

Matrices inside the blocks are trained by Muon (Jordan et al. 2024), all else by AdamW; both learning rates warm up, then
fall linearly to zero. The command keeps in a folder beside its checkpoint what a run needs to be watched and resumed:
records of its losses, snapshots of its weights, and its state.
"""

import argparse
import math
import shlex
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp_core import checkpoints, corpora, lessons, run_files, synthetic
from interp_core.lessons import Lesson, step_seed
from interp_core.model import GPT, Edits, ModelConfig, forward, next_token_losses, token_losses

SMOOTHING = 0.98  # of the training loss that records show
RECENT = 0.9  # of the training loss that tells a spike
SPIKE = 1.0  # nats above its lowest: from there the recent loss has diverged
UNSTEADY = 0.25  # nats above its lowest: weights that are no longer kept as good ones
SETTLED = 20  # steps after which spikes are looked for
FIRST_SNAPSHOT = 30  # step
SAVE_SECONDS = 10.0  # between two checkpoints of a run
GAVE_UP = 3  # the code that a run ends with which diverged: to resume it would only repeat that


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
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}, expected at least 0 and below 1")

    def rate(self, step: int) -> float:
        """Share of the full learning rate at a step: warm-up, then linear decay to zero."""
        return min(1.0, (step + 1) / max(self.warmup, 1)) * (1 - step / self.steps)


@dataclass(frozen=True)
class Record:
    """Where a training run stands. Losses in nats."""

    step: int
    loss: float  # of the training batches, smoothed over steps, dropout included
    training_loss: float  # on fixed windows of the training part, as the model is used
    validation_loss: float  # on fixed windows of the validation part
    validation_windows: tuple[float, ...]  # the same, one number a window
    seconds: float  # of the whole run so far


class Diverged(RuntimeError):
    """The loss is no longer a number, or has jumped and stayed there."""


class Run:
    """A training run between two steps: model, optimisers, and how far they are."""

    def __init__(self, model: GPT, recipe: Recipe) -> None:
        self.model, self.recipe = model, recipe
        self.step, self.seconds = 0, 0.0
        self._optimizers = _optimizers(model, recipe)
        self._smoothed, self._recent, self._lowest = 0.0, 0.0, math.inf

    @property
    def loss(self) -> float:
        """The training loss, smoothed over steps. Nats."""
        return self._smoothed / (1 - SMOOTHING**self.step)

    @property
    def steady(self) -> bool:
        """Whether these weights are worth keeping: the recent loss is near its lowest."""
        return self.step <= SETTLED or self._recent_loss < self._lowest + UNSTEADY

    def advance(self, windows: Tensor) -> None:
        """One step on a batch of windows [batch pos_plus_1]; the model is in eval mode without gradients again after it.

        Raises:
            Diverged: the loss became NaN or infinite, or stays a nat above its lowest.
        """
        loss = self._learn(windows)
        if math.isfinite(loss):
            self._smoothed = SMOOTHING * self._smoothed + (1 - SMOOTHING) * loss
            self._recent = RECENT * self._recent + (1 - RECENT) * loss
            self.step += 1
            self._lowest = min(self._lowest, self._recent_loss)
        if not math.isfinite(loss) or (self.step > SETTLED and self._recent_loss > self._lowest + SPIKE):
            jumped = f"from {self._lowest:.2f} to {self._recent_loss:.2f}" if math.isfinite(loss) else f"to {loss}"
            rates = f"({self.recipe.matrix_lr:g}, {self.recipe.other_lr:g})"
            raise Diverged(f"the loss went {jumped} at step {self.step}: lower the learning rates {rates}")

    def state(self) -> dict[str, Any]:
        """All that is needed to go on, in tensors and numbers."""
        return {
            "recipe": asdict(self.recipe),
            "config": asdict(self.model.config),
            "numbers": [self.step, self.seconds, self._smoothed, self._recent, self._lowest],
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Goes back to where a run of the same recipe and shape stood.

        Raises:
            ValueError: the state is of another recipe or another shape.
        """
        for what, mine in (("recipe", asdict(self.recipe)), ("config", asdict(self.model.config))):
            other = [name for name in mine if state[what].get(name) != mine[name]]
            if other:
                raise ValueError(f"the saved state has another {', '.join(other)}: start anew, without --resume")
        self.step, self.seconds, self._smoothed, self._recent, self._lowest = state["numbers"]
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)

    @property
    def _recent_loss(self) -> float:
        return self._recent / (1 - RECENT**self.step)

    def _learn(self, windows: Tensor) -> float:
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["full_lr"] * self.recipe.rate(self.step)
        self.model.requires_grad_(True)
        edits = _dropout(self.model.config, self.recipe, self.step)
        loss = next_token_losses(forward(self.model, windows[:, :-1], edits=edits).logits, windows[:, 1:]).mean()
        loss.backward()
        for optimizer in self._optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self.model.requires_grad_(False)
        return loss.item()


def train(
    run: Run, lesson: Lesson, every: int = 100, also: Collection[int] = (), stop: Callable[[], bool] = lambda: False
) -> Iterator[Record]:
    """Trains the run's model in place and yields a record every `every` steps, at the steps `also` and at the end.

    Args:
        run: where to begin; a restored one goes on.
        lesson: the batches, and the windows of the records.
        every: steps between records.
        also: further steps with a record, for snapshots.
        stop: asked after each step; when it says so, a last record is yielded.

    Raises:
        Diverged: as `Run.advance`.
    """
    recipe, begun = run.recipe, time.perf_counter() - run.seconds
    while run.step < recipe.steps:
        run.advance(lesson.batch(run.step, recipe.batch, recipe.seed))
        run.seconds = time.perf_counter() - begun
        stopping = stop()
        if stopping or run.step % every == 0 or run.step == recipe.steps or run.step in also:
            yield _record(run, lesson)
        if stopping:
            return


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


@torch.no_grad()
def _record(run: Run, lesson: Lesson) -> Record:
    windows = token_losses(run.model, lesson.validation).mean(1)
    return Record(
        step=run.step,
        loss=run.loss,
        training_loss=token_losses(run.model, lesson.training).mean().item(),
        validation_loss=windows.mean().item(),
        validation_windows=tuple(windows.tolist()),
        seconds=run.seconds,
    )


def _optimizers(model: GPT, recipe: Recipe) -> list[torch.optim.Optimizer]:
    matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
    inside = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in inside]
    optimizers = [
        torch.optim.Muon(
            matrices, lr=recipe.matrix_lr, weight_decay=recipe.weight_decay, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(others, lr=recipe.other_lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["full_lr"] = group["lr"]
    return optimizers


def _dropout(config: ModelConfig, recipe: Recipe, step: int) -> Edits:
    """Dropout as edits of the sites that write into the residual stream."""
    if recipe.dropout == 0:
        return {}
    generator, keep = torch.Generator().manual_seed(step_seed(recipe.seed, step, 1)), 1 - recipe.dropout

    def drop(x: Tensor) -> Tensor:
        return x * torch.empty_like(x).bernoulli_(keep, generator=generator).div_(keep)

    written = ("attn_out", "mlp_out") if config.d_mlp else ("attn_out",)
    return {"embed": drop} | {f"{site}.{layer}": drop for layer in range(config.layers) for site in written}


def _lesson(given: argparse.Namespace) -> Lesson:
    if given.file is not None:
        try:
            characters = given.file.read_bytes().decode("utf-8")
        except UnicodeDecodeError as error:
            raise lessons.Unteachable(f"{given.file.name} is not text in UTF-8: save it as that.") from error
        return lessons.of_text(given.file.name, characters, given.context)
    if given.text in synthetic.KINDS:
        return lessons.of_sequences(given.text, given.d_vocab, given.context)
    return lessons.of_text(given.text, corpora.read(given.text), given.context)


def _papers(lesson: Lesson, run: Run, record: Record, command: str) -> dict[str, object]:
    """What the card says; the final loss, by the lesson's own protocol, once the run is done."""
    done = run.step == run.recipe.steps
    if done:
        with torch.no_grad():
            loss, protocol = token_losses(run.model, lesson.final).mean().item(), lesson.papers["validation_protocol"]
    else:
        loss, protocol = record.validation_loss, f"mean over {len(lesson.validation)} disjoint windows, during training"
    bits = {} if lesson.vocabulary is None else {"bits_per_char": round(loss / math.log(2), 4)}
    return {
        **lesson.papers,
        "validation_protocol": protocol,
        "recipe": asdict(run.recipe),
        "step": run.step,
        "training_loss_nats": round(record.loss, 4),
        "validation_loss_nats": round(loss, 4),
        **bits,
        "seconds": round(run.seconds),
        "command": command,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Train a small GPT and write a checkpoint with its card.")
    parser.add_argument("--text", default="tiny-shakespeare", choices=(*corpora.NAMES, *synthetic.KINDS))
    parser.add_argument("--file", type=Path, help="a text of your own in UTF-8, instead of a named one")
    parser.add_argument("--out", type=Path, required=True, help="the .pt to write; the card goes beside it")
    for name, default in (("layers", 4), ("heads", 4), ("d_model", 128), ("context", 64)):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    parser.add_argument("--d-mlp", type=int, help="0 for attention only; 4 × d_model by default")
    parser.add_argument("--d-vocab", type=int, default=65, help="tokens of a synthetic text")
    parser.add_argument("--snapshots", type=int, default=0, help="how many to keep, in a folder of its name")
    parser.add_argument("--every", type=int, help="steps between records; a hundredth of all by default")
    parser.add_argument("--resume", action="store_true", help="go on where an earlier run of the same command stood")
    for name, value in asdict(Recipe()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: trains a model and writes the checkpoint, its card, and the files of the run."""
    arguments = sys.argv[1:] if arguments is None else arguments
    given = _parser().parse_args(arguments)
    try:
        return _run(given, _shown(arguments))
    except (Diverged, ValueError, OSError, corpora.TextUnavailable) as error:
        print(error, file=sys.stderr)
        return GAVE_UP if isinstance(error, Diverged) else 1


def _run(given: argparse.Namespace, command: str) -> int:
    recipe = Recipe(**{name: getattr(given, name) for name in asdict(Recipe())})
    lesson = _lesson(given)
    config = shape(lesson.d_vocab, given.context, given.d_model, given.heads, given.layers, given.d_mlp)
    run = Run(GPT(config, recipe.seed), recipe)
    state = run_files.load_state(given.out) if given.resume else None
    if state is not None:
        run.restore(state)
    run_files.begin(given.out, run.step)
    stopped: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    kept, saved = snapshot_steps(recipe.steps, given.snapshots), -math.inf
    try:
        for record in train(run, lesson, given.every or max(1, recipe.steps // 100), kept, lambda: bool(stopped)):
            print(_told(record), flush=True)
            run_files.append(given.out, asdict(record))
            if record.step in kept:
                checkpoints.save_snapshot(given.out, record.step, run.model)
            due = time.monotonic() - saved > SAVE_SECONDS or stopped or record.step == recipe.steps or record.step in kept
            if run.steady and due:
                checkpoints.save(given.out, run.model, lesson.vocabulary, _papers(lesson, run, record, command))
                run_files.save_state(given.out, run.state())
                saved = time.monotonic()
    finally:
        signal.signal(signal.SIGTERM, before)
    return 128 + signal.SIGTERM if run.step < recipe.steps else 0


def _told(record: Record) -> str:
    losses = f"loss {record.loss:.3f}, training {record.training_loss:.4f}, validation {record.validation_loss:.4f}"
    return f"step {record.step}: {losses}, {record.seconds:.0f} s"


def _shown(arguments: Sequence[str]) -> str:
    """The command as another machine would run it: no folders of this one, and from the beginning."""
    parts = [Path(part).name if Path(part).is_absolute() else part for part in arguments if part != "--resume"]
    return shlex.join(["python", "-m", "interp_core.training", *parts])


if __name__ == "__main__":
    sys.exit(main())
