"""Trains a small GPT: a generator of records, and a command that writes a checkpoint with its card.

    python -m interp_core.training --text tiny-shakespeare --out checkpoints/shakespeare.pt
    python -m interp_core.training --text successors --layers 2 --d-mlp 0 --out my-induction.pt

Matrices inside the blocks are trained by Muon (Jordan et al. 2024), all else by AdamW; both learning rates warm up, then
fall linearly to zero. Everything random at a step depends on the seed and the step alone.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from interp_core import checkpoints, corpora, synthetic
from interp_core.model import GPT, Edits, ModelConfig, forward, next_token_losses, token_losses
from interp_core.tokenizers import CharTokenizer

Batches = Callable[[int], Int[Tensor, "batch pos_plus_1"]]  # the batch of a step
SMOOTHING = 0.98  # of the training loss that records show
FIRST_SNAPSHOT = 30  # step
HELD_OUT = 512  # sequences of a synthetic text on which the validation loss is measured


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
    """Where a training run stands."""

    step: int
    loss: float  # smoothed over steps, nats, dropout included
    validation_loss: float | None  # nats
    seconds: float


class Diverged(RuntimeError):
    """The loss is no longer a number."""


def train(
    model: GPT,
    batches: Batches,
    recipe: Recipe,
    validation: Int[Tensor, "window pos_plus_1"] | None = None,
    every: int = 100,
    also: Collection[int] = (),
) -> Iterator[Record]:
    """Trains `model` in place and yields a record every `every` steps, at the steps `also` and at the end.

    Args:
        model: changed as training goes; again in eval mode without gradients whenever a record is yielded.
        batches: the training windows of a step.
        recipe: the numbers.
        validation: windows to measure the loss on at each record.
        every: steps between records.
        also: further steps with a record, for snapshots.

    Raises:
        Diverged: the loss became NaN or infinite.
    """
    optimizers = _optimizers(model, recipe)
    begun, smoothed = time.perf_counter(), 0.0
    for step in range(recipe.steps):
        loss = _step(model, batches(step), recipe, step, optimizers)
        if not math.isfinite(loss):
            raise Diverged(
                f"the loss is {loss} at step {step}: lower the learning rates ({recipe.matrix_lr}, {recipe.other_lr})"
            )
        smoothed = SMOOTHING * smoothed + (1 - SMOOTHING) * loss
        if (step + 1) % every == 0 or step + 1 == recipe.steps or step + 1 in also:
            with torch.no_grad():
                held_out = None if validation is None else token_losses(model, validation).mean().item()
            unbiased = smoothed / (1 - SMOOTHING ** (step + 1))
            yield Record(step + 1, unbiased, held_out, time.perf_counter() - begun)


def text_batches(tokens: Int[Tensor, "pos"], context: int, recipe: Recipe) -> Batches:
    """Windows at random places of a text; they may overlap, as training may."""

    def batch(step: int) -> Tensor:
        offsets = torch.randint(len(tokens) - context, (recipe.batch,), generator=_generator(recipe, step, 0))
        return corpora.windows_at(tokens, offsets.tolist(), context)

    return batch


def _step(model: GPT, windows: Tensor, recipe: Recipe, step: int, optimizers: list[torch.optim.Optimizer]) -> float:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["full_lr"] * recipe.rate(step)
    model.requires_grad_(True)
    edits = _dropout(model.config, recipe, step)
    loss = next_token_losses(forward(model, windows[:, :-1], edits=edits).logits, windows[:, 1:]).mean()
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    model.requires_grad_(False)
    return loss.item()


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
    generator, keep = _generator(recipe, step, 1), 1 - recipe.dropout

    def drop(x: Tensor) -> Tensor:
        return x * torch.empty_like(x).bernoulli_(keep, generator=generator).div_(keep)

    written = ("attn_out", "mlp_out") if config.d_mlp else ("attn_out",)
    return {"embed": drop} | {f"{site}.{layer}": drop for layer in range(config.layers) for site in written}


def _generator(recipe: Recipe, step: int, stream: int) -> torch.Generator:
    return torch.Generator().manual_seed(_seed(recipe, step, stream))


def _seed(recipe: Recipe, step: int, stream: int) -> int:
    """Randomness of one purpose at one step, the same whether or not the steps before it ran in this process."""
    return (recipe.seed * 3 + stream) * 10_000_019 + step


def synthetic_batches(name: str, d_vocab: int, context: int, recipe: Recipe) -> Batches:
    """Fresh sequences of one of `synthetic.KINDS` at every step."""
    return lambda step: synthetic.KINDS[name](d_vocab, context + 1, recipe.batch, _seed(recipe, step, 2))


def snapshot_steps(steps: int, count: int) -> list[int]:
    """Up to `count` steps of a run before its last, spaced evenly in the logarithm: what forms early forms fast."""
    ratio = steps / FIRST_SNAPSHOT
    spaced = (round(FIRST_SNAPSHOT * ratio ** (i / count)) for i in range(count))
    return sorted({step for step in spaced if 0 < step < steps})


@dataclass(frozen=True, eq=False)
class _Lesson:
    """What a model is to learn, and how that is measured."""

    d_vocab: int
    vocabulary: tuple[str, ...] | None  # characters; None where tokens stand for nothing
    batches: Batches
    validation: Int[Tensor, "window pos_plus_1"]
    papers: dict[str, object]


def _lesson(name: str, context: int, d_vocab: int, recipe: Recipe) -> _Lesson:
    if name in synthetic.KINDS:
        windows = synthetic.KINDS[name](d_vocab, context + 1, HELD_OUT, 0)
        split = f"fresh sequences at every step; validation: {HELD_OUT} sequences, seed 0"
        protocol = "mean over the validation sequences"
        papers: dict[str, object] = {"text": {"name": name, "split": split}, "validation_protocol": protocol}
        return _Lesson(d_vocab, None, synthetic_batches(name, d_vocab, context, recipe), windows, papers)
    characters = corpora.read(name)
    tokenizer = CharTokenizer.of_text(characters)
    text = corpora.encode(name, characters, tokenizer)
    split = "first 90% train, last 10% validation"
    papers = {
        "text": {"name": name, "sha256": text.sha256, "split": split},
        "validation_protocol": corpora.COURSE_PROTOCOL,
    }
    batches = text_batches(text.train, context, recipe)
    return _Lesson(
        tokenizer.size, tokenizer.vocabulary, batches, corpora.course_windows(text.validation, context), papers
    )


def _papers(lesson: _Lesson, recipe: Recipe, record: Record, command: str) -> dict[str, object]:
    loss = record.validation_loss
    bits = {} if lesson.vocabulary is None or loss is None else {"bits_per_char": round(loss / math.log(2), 4)}
    return {
        **lesson.papers,
        "recipe": asdict(recipe),
        "step": record.step,
        "training_loss_nats": round(record.loss, 4),
        "validation_loss_nats": None if loss is None else round(loss, 4),
        **bits,
        "seconds": round(record.seconds),
        "command": command,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Train a small GPT and write a checkpoint with its card.")
    parser.add_argument("--text", default="tiny-shakespeare", choices=(*corpora.NAMES, *synthetic.KINDS))
    parser.add_argument("--out", type=Path, required=True, help="the .pt to write; the card goes beside it")
    for name, default in (("layers", 4), ("heads", 4), ("d_model", 128), ("context", 64)):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    parser.add_argument("--d-mlp", type=int, help="0 for attention only; 4 × d_model by default")
    parser.add_argument("--d-vocab", type=int, default=65, help="tokens of a synthetic text")
    parser.add_argument("--snapshots", type=int, default=0, help="how many to keep, in a folder of its name")
    for name, value in asdict(Recipe()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """The command line: trains a model on a named text and writes the checkpoint and its card."""
    given = _parser().parse_args(arguments)
    recipe = Recipe(**{name: getattr(given, name) for name in asdict(Recipe())})
    lesson = _lesson(given.text, given.context, given.d_vocab, recipe)
    config = ModelConfig(
        d_vocab=lesson.d_vocab,
        context=given.context,
        d_model=given.d_model,
        heads=given.heads,
        layers=given.layers,
        d_head=given.d_model // given.heads,
        d_mlp=4 * given.d_model if given.d_mlp is None else given.d_mlp,
    )
    model, record = GPT(config, recipe.seed), None
    kept = snapshot_steps(recipe.steps, given.snapshots)
    for record in train(model, lesson.batches, recipe, lesson.validation, every=500, also=kept):
        losses = f"loss {record.loss:.3f}, validation {record.validation_loss:.4f}"
        print(f"step {record.step}: {losses}, {record.seconds:.0f} s", flush=True)
        if record.step in kept:
            checkpoints.save_snapshot(given.out, record.step, model)
    assert record is not None
    command = " ".join(["python -m interp_core.training", *(arguments if arguments is not None else sys.argv[1:])])
    checkpoints.save(given.out, model, lesson.vocabulary, _papers(lesson, recipe, record, command))
    return 0


if __name__ == "__main__":
    sys.exit(main())
