"""Trains a small GPT: a generator of records, and a command that writes a checkpoint with its card.

    python -m interp_core.training --text tiny-shakespeare --out checkpoints/shakespeare.pt
    python -m interp_core.training --text successors --layers 2 --d-mlp 0 --out my-induction.pt

Matrices inside the blocks are trained by Muon (Jordan et al. 2024), all else by AdamW; both learning rates warm up, then
fall linearly to zero. The command keeps in a folder beside its checkpoint what a run needs to be watched and resumed:
records of its losses, snapshots of its weights, and its state.
"""

import math
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interp_core import checkpoints, corpora, plans, run_files
from interp_core.lessons import Lesson, step_seed
from interp_core.model import GPT, Edits, ModelConfig, forward, next_token_losses, token_losses
from interp_core.plans import Plan, Recipe

SMOOTHING = 0.98  # of the training loss that records show
RECENT = 0.9  # of the training loss that tells a spike
SPIKE = 1.0  # nats above its lowest: from there the recent loss has diverged
UNSTEADY = 0.25  # nats of the validation loss above its lowest: weights that are not kept as good ones
SETTLED = 20  # steps after which spikes are looked for
DIGITS = 5  # of a window's loss in a record
SAVE_SECONDS = 10.0  # between two checkpoints of a run
GAVE_UP = 3  # the code that a run ends with which diverged: to resume it would only repeat that


@dataclass(frozen=True)
class Record:
    """Where a training run stands. Losses in nats."""

    step: int
    loss: float  # of the training batches, smoothed over steps, dropout included
    training_windows: tuple[float, ...]  # on fixed windows of the training part, as the model is used
    validation_windows: tuple[float, ...]  # on fixed disjoint windows of the validation part
    seconds: float  # of the whole run so far

    @property
    def training_loss(self) -> float:
        """Mean over the windows of the training part."""
        return sum(self.training_windows) / len(self.training_windows)

    @property
    def validation_loss(self) -> float:
        """Mean over the windows of the validation part."""
        return sum(self.validation_windows) / len(self.validation_windows)


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


@torch.no_grad()
def _record(run: Run, lesson: Lesson) -> Record:
    training, validation = (token_losses(run.model, part).mean(1) for part in (lesson.training, lesson.validation))
    return Record(run.step, run.loss, _rounded(training), _rounded(validation), run.seconds)


def _rounded(losses: Tensor) -> tuple[float, ...]:
    return tuple(round(loss, DIGITS) for loss in losses.tolist())


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


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: trains a model and writes the checkpoint, its card, and the files of the run."""
    try:
        return _run(plans.of_arguments(sys.argv[1:] if arguments is None else arguments))
    except (Diverged, ValueError, OSError, corpora.TextUnavailable) as error:
        print(error, file=sys.stderr)
        return GAVE_UP if isinstance(error, Diverged) else 1


def _run(plan: Plan) -> int:
    lesson, out = plan.lesson(), plan.out
    run = Run(GPT(plan.config(lesson.d_vocab), plan.recipe.seed), plan.recipe)
    state = run_files.load_state(out) if plan.resume else None
    if state is not None:
        run.restore(state)
    run_files.begin(out, run.step)
    stopped: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    kept, saved = plan.snapshot_steps(), -math.inf
    lowest = min([math.log(lesson.d_vocab), *(float(np.mean(r["validation_windows"])) for r in run_files.records(out))])
    try:
        for record in train(run, lesson, plan.record_every, kept, lambda: bool(stopped)):
            print(_told(record), flush=True)
            run_files.append(out, asdict(record))
            lowest = min(lowest, record.validation_loss)
            good = record.validation_loss < lowest + UNSTEADY
            last = bool(stopped) or record.step == plan.recipe.steps or record.step in kept
            if good and (last or time.monotonic() - saved > SAVE_SECONDS):
                checkpoints.save(out, run.model, lesson.vocabulary, _papers(lesson, run, record, plan.command))
                run_files.save_state(out, run.state())
                saved = time.monotonic()
            if good and record.step in kept:
                checkpoints.save_snapshot(out, record.step, run.model)
    finally:
        signal.signal(signal.SIGTERM, before)
    return 128 + signal.SIGTERM if run.step < plan.recipe.steps else 0


def _told(record: Record) -> str:
    losses = f"loss {record.loss:.3f}, training {record.training_loss:.4f}, validation {record.validation_loss:.4f}"
    return f"step {record.step}: {losses}, {record.seconds:.0f} s"


if __name__ == "__main__":
    sys.exit(main())
