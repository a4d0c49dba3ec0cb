"""Seconds to the validation loss that the course's plain loop reaches after 3,000 steps, on the same text and shape.

The plain loop is timed over a few steps, in turns with ours, and extrapolated; ours really runs until it is there.
"""

import statistics
import time
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks import course
from interp_core import corpora, lessons, plans
from interp_core.model import GPT, token_losses
from interp_core.plans import Recipe
from interp_core.training import Run

TARGET = 1.6108  # nats: the reference checkpoint, 3,000 steps of the course, by its own protocol
COURSE_STEPS, COURSE_BATCH, COURSE_RATE = 3000, 64, 1e-3
RECIPE = Recipe(steps=1000, batch=32, matrix_lr=2e-2, other_lr=6e-3, weight_decay=0.1, dropout=0.0)
CHECKED = range(800, RECIPE.steps + 1, 50)  # steps at which our loss is measured; that time is not counted
TURN = 5  # steps of the plain loop between two hundred of ours


def run() -> None:
    """Prints both times and their ratio."""
    folder = course.reference()
    if folder is None:
        print("training: needs the course's code beside the folder that LOUPE_DATA names")
        return
    notebook = course.notebook(folder)
    lesson = lessons.of_text("tiny-shakespeare", corpora.read("tiny-shakespeare"), 64)
    plain, ours = _plain(notebook), Run(GPT(plans.shape(lesson.d_vocab, 64, 128, 4, 4)), RECIPE)
    next(plain)
    plain_steps, seconds, loss = [], 0.0, float("inf")
    while ours.step < RECIPE.steps:
        begun = time.perf_counter()
        ours.advance(lesson.batch(ours.step, RECIPE.batch, RECIPE.seed))
        seconds += time.perf_counter() - begun
        if ours.step % 200 == 100:
            plain_steps += [next(plain) for _ in range(TURN)]
        if ours.step in CHECKED:
            with torch.no_grad():
                loss = token_losses(ours.model, lesson.final).mean().item()
            if loss <= TARGET:
                break
    a_step = statistics.median(plain_steps)
    print(f"\nTraining to {TARGET} nats, 816,640 parameters, tiny Shakespeare")
    print(f"  ours: {ours.step} steps of {RECIPE.batch} windows, run           {seconds:8.1f} s to {loss:.4f} nats")
    print(
        f"  the course's loop: {COURSE_STEPS} steps of {COURSE_BATCH}, extrapolated {COURSE_STEPS * a_step:8.1f} s "
        f"(median of {len(plain_steps)} steps: {1000 * a_step:.0f} ms)  {COURSE_STEPS * a_step / seconds:5.2f} ×"
    )
    if loss > TARGET:
        print(f"  ours did not reach {TARGET}: the ratio above is to {loss:.4f} nats")


def _plain(notebook: dict[str, Any]) -> Iterator[float]:
    """The course's loop: seconds of each step."""
    ids = notebook["ids"]
    train = ids[: int(0.9 * len(ids))]
    torch.manual_seed(0)
    model = notebook["GPT"](V=65, T=64, d=128, H=4, L=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=COURSE_RATE)
    while True:
        begun = time.perf_counter()
        starts = torch.randint(len(train) - 65, (COURSE_BATCH,))
        x = torch.stack([train[i : i + 64] for i in starts])
        y = torch.stack([train[i + 1 : i + 65] for i in starts])
        _, loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield time.perf_counter() - begun
