"""What the curves of a training run say: how good it is, and whether it learned too little or too much by heart.

Every sentence rests on losses of the same fixed windows at different steps, so that differences are paired and narrow.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float

from interp_core import baselines
from interp_core.lessons import Lesson
from interp_core.statistics import Interval, interval, mean_interval

GAP = 0.2  # nats between training and validation loss that matter
CHANGE = 0.01  # nats of the validation loss that matter
LATE = 0.8  # share of the steps so far: what happened since tells whether there is more to come
EARLY = 0.1  # share of the planned steps before which nothing is judged

SKYLINE = "pairs so far"  # the reference that need not be beaten
FLAT = 0.03  # nats: a change of the validation loss, with its whole interval, below which it has levelled off

Kind = Literal["early", "learning", "not learning", "overfitted", "underfitted", "fits"]


@dataclass(frozen=True, eq=False)
class Curves:
    """The losses of a run, in nats. The table has step, seconds, batch_loss, and training_loss and validation_loss with
    _low and _high over windows.
    """

    table: pd.DataFrame
    training: Float[np.ndarray, "record train_window"]
    validation: Float[np.ndarray, "record window"]


@dataclass(frozen=True)
class Guidance:
    """A verdict on the curves, what to do about it, and the numbers that it rests on."""

    kind: Kind
    headline: str
    advice: str
    gain: Interval | None  # nats better than the best reference, on the windows of the validation part


def read(records: Sequence[Mapping[str, Any]], seed: int = 0) -> Curves | None:
    """The curves of the records that a run keeps; None where there are none."""
    if not records:
        return None
    training, validation = (
        np.array([record[name] for record in records], dtype=float)
        for name in ("training_windows", "validation_windows")
    )
    columns: dict[str, Any] = {
        "step": [record["step"] for record in records],
        "seconds": [record["seconds"] for record in records],
        "batch_loss": [record["loss"] for record in records],
    }
    for name, values in (("training_loss", training), ("validation_loss", validation)):
        ends = mean_interval(values.T, seed)
        columns |= dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))
    return Curves(pd.DataFrame(columns), training, validation)


def references(lesson: Lesson) -> dict[str, Float[np.ndarray, "window"]]:
    """Loss of each validation window under what a model should beat, in nats: uniform guessing and counts.

    For a text these are the counts of its training part. Where every sequence is fresh they are the counts of the window
    so far: of its tokens, which needs no circuit, and of its pairs (`SKYLINE`), which is what a circuit can reach.
    """
    windows = lesson.validation
    found = {"uniform": np.full(len(windows), baselines.uniform_loss(lesson.d_vocab))}
    if lesson.training_tokens is not None:
        unigram = baselines.unigram_losses(lesson.training_tokens, windows, lesson.d_vocab)
        bigram = baselines.bigram_losses(lesson.training_tokens, windows, lesson.d_vocab)
        found |= {"unigram counts": unigram.mean(1).numpy(), "bigram counts": bigram.mean(1).numpy()}
    else:
        tokens, pairs = baselines.in_context_losses(lesson.training, windows, lesson.d_vocab)
        found |= {"tokens so far": tokens.mean(1).numpy(), SKYLINE: pairs.mean(1).numpy()}
    return found


def to_beat(known: Mapping[str, Float[np.ndarray, "window"]]) -> str:
    """The best of the references that a model should beat."""
    return min((name for name in known if name != SKYLINE), key=lambda name: known[name].mean())


def judge(
    curves: Curves, known: Mapping[str, Float[np.ndarray, "window"]], steps: int, fresh: bool = False, seed: int = 0
) -> Guidance:
    """Names what the curves show.

    Args:
        curves: of the run so far.
        known: losses of the references on the same windows.
        steps: planned.
        fresh: whether every training sequence is new, so that nothing can be learned by heart.
        seed: of the intervals.
    """
    table, validation = curves.table, curves.validation
    step = int(table["step"].iloc[-1])
    done = step >= steps
    if len(table) < 3 or step < EARLY * steps:
        return Guidance("early", "too early to say", f"Wait until step {math.ceil(EARLY * steps)}.", None)
    best = to_beat(known)
    gain = interval(known[best] - validation[-1], seed)
    better = f"{gain.estimate:.2f} ±{gain.half_width:.2f} nats better than {best}"
    if gain.low <= 0:
        advice = "Train longer; if the curve is flat, try other learning rates."
        if fresh and not done:
            advice = "A plateau is no end: circuits often form after one, all at once."
        return Guidance("not learning", f"not better than {best}{'' if done else ' yet'}", advice, gain)
    rise = _rise(curves, seed)
    if not fresh and rise is not None and rise[1].low > CHANGE:
        turned, size = rise
        return Guidance(
            "overfitted",
            f"overfitted since about step {turned:,}",
            f"The validation loss has risen by {size.estimate:.2f} ±{size.half_width:.2f} nats since then while the training "
            "loss fell: it learns the text by heart. Stop earlier, use more text, more dropout, or a smaller model.",
            gain,
        )
    return _trend(curves, known, gain, better, done, fresh, seed)


def _trend(
    curves: Curves, known: Mapping[str, np.ndarray], gain: Interval, better: str, done: bool, fresh: bool, seed: int
) -> Guidance:
    """What a model that has learned something did lately."""
    table, validation = curves.table, curves.validation
    late = min(int(np.searchsorted(table["step"], LATE * table["step"].iloc[-1])), len(table) - 2)
    fall = interval(validation[late] - validation[-1], seed)
    gap = float(table["validation_loss"].iloc[-1] - table["training_loss"].iloc[-1])
    beside = f"the training loss is {abs(gap):.2f} nats {'below' if gap >= 0 else 'above'} it"
    if SKYLINE in known:
        away = interval(validation[-1] - known[SKYLINE], seed)
        side = "above" if away.estimate >= 0 else "below"
        beside = (
            f"it is {abs(away.estimate):.2f} ±{away.half_width:.2f} nats {side} what pairs so far in the sequence reach"
        )
    changed = f"{fall.estimate:.2f} ±{fall.half_width:.2f} nats"
    if not done:
        words = (
            "still falls"
            if fall.low > 0
            else f"fell by {changed} since step {int(table['step'].iloc[late]):,}: too little to tell"
        )
        return Guidance("learning", f"learning: {better}", f"The validation loss {words}; {beside}.", gain)
    if fall.low > CHANGE:
        trend = f"In the last fifth of the steps the validation loss fell by {changed}"
        if gap < GAP:
            more = f"{trend}; {beside}: more steps would help, perhaps a larger model."
            return Guidance("underfitted", f"underfitted: {better}, and still falling", more, gain)
    elif max(abs(fall.low), abs(fall.high)) < FLAT:
        trend = f"The validation loss has levelled off ({changed} in the last fifth of the steps)"
    else:
        trend = f"Whether it still falls cannot be told from these windows ({changed} in the last fifth of the steps)"
    advice = f"{trend}; {beside}."
    if not fresh and gap >= GAP:
        advice += (
            " The text is partly learned by heart, though that does not cost yet: more dropout or more text may help."
        )
    return Guidance("fits", better, advice, gain)


def _rise(curves: Curves, seed: int) -> tuple[int, Interval] | None:
    """Where the validation loss was lowest and how much it has risen since, if the training loss fell meanwhile.

    Half of the windows choose the step, the other half measure the rise: the lowest of many is too low on its own windows.
    """
    chosen, measured = curves.validation[:, 0::2], curves.validation[:, 1::2]
    lowest = int(chosen.mean(1).argmin())
    training = curves.table["training_loss"]
    if lowest == len(training) - 1 or measured.shape[1] < 2 or training.iloc[-1] >= training.iloc[lowest]:
        return None
    return int(curves.table["step"].iloc[lowest]), interval(measured[-1] - measured[lowest], seed)
