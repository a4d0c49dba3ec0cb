"""What a model is to learn: the batch of every step, and the fixed windows on which its progress is measured.

Everything random at a step depends on the seed and the step alone, so that a run which stopped goes on as if it had not.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from interp_core import corpora, synthetic
from interp_core.tokenizers import CharTokenizer

WATCHED = 64  # windows of the training and of the validation part on which the curves are measured
HELD_OUT = 512  # sequences of a synthetic text for the final loss
FEWEST_WATCHED = 8  # windows of the validation part, the least for an interval
STREAMS = 3  # purposes of randomness: 0 places in a text, 1 dropout, 2 synthetic sequences
MOST_TOKENS = 4096  # distinct characters of a text


class Unteachable(ValueError):
    """A text that nothing can be learned from, or too little; says how much is needed."""


@dataclass(frozen=True, eq=False)
class Lesson:
    """What is to be learned, and how that is measured."""

    name: str
    d_vocab: int
    vocabulary: tuple[str, ...] | None  # characters; None where tokens stand for nothing
    batch: Callable[[int, int, int], Int[Tensor, "batch pos_plus_1"]]  # (step, count, seed) -> training windows
    training: Int[Tensor, "train_window pos_plus_1"]  # fixed windows of the training part
    validation: Int[Tensor, "window pos_plus_1"]  # disjoint windows of the validation part
    final: Int[Tensor, "final_window pos_plus_1"]  # on which the finished model is measured, for its card
    papers: dict[str, object]  # text, split and protocol, for the card
    training_tokens: Int[Tensor, "train_pos"] | None = None  # of a text; None where every sequence is fresh


def of_text(name: str, characters: str, context: int) -> Lesson:
    """A text, split 90/10 by position; its distinct characters in the order of their code points are the vocabulary.

    Raises:
        Unteachable: too short for the context, or of too many distinct characters.
    """
    least = 10 * (FEWEST_WATCHED + 1) * (context + 1)
    if len(characters) < least:
        raise Unteachable(
            f"{name} has {len(characters):,} characters; a context of {context} needs at least {least:,}, so that its last "
            f"tenth holds {FEWEST_WATCHED} windows to measure on: give a longer text, or choose a shorter context."
        )
    tokenizer = CharTokenizer.of_text(characters)
    if tokenizer.size < 2:
        raise Unteachable(f"{name} has one distinct character: there is nothing to predict. Give another text.")
    if tokenizer.size > MOST_TOKENS:
        raise Unteachable(
            f"{name} has {tokenizer.size:,} distinct characters, more than the {MOST_TOKENS:,} taken here."
        )
    text = corpora.encode(name, characters, tokenizer)

    def batch(step: int, count: int, seed: int) -> Tensor:
        """Windows at random places; they may overlap, as training may."""
        generator = torch.Generator().manual_seed(step_seed(seed, step, 0))
        return corpora.windows_at(
            text.train, torch.randint(len(text.train) - context, (count,), generator=generator).tolist(), context
        )

    return Lesson(
        name=name,
        d_vocab=tokenizer.size,
        vocabulary=tokenizer.vocabulary,
        batch=batch,
        training=_some(text.train, context),
        validation=_some(text.validation, context),
        final=corpora.course_windows(text.validation, context),
        papers={
            "text": {"name": name, "sha256": text.sha256, "split": "first 90% train, last 10% validation"},
            "validation_protocol": corpora.COURSE_PROTOCOL,
        },
        training_tokens=text.train,
    )


def of_sequences(kind: str, d_vocab: int, context: int) -> Lesson:
    """Fresh sequences of one of `synthetic.KINDS` at every step: there is nothing to learn by heart."""
    draw = synthetic.KINDS[kind]
    final = draw(d_vocab, context + 1, HELD_OUT, 0)
    return Lesson(
        name=kind,
        d_vocab=d_vocab,
        vocabulary=None,
        batch=lambda step, count, seed: draw(d_vocab, context + 1, count, step_seed(seed, step, 2)),
        training=draw(d_vocab, context + 1, WATCHED, 1),
        validation=final[:WATCHED],
        final=final,
        papers={
            "text": {"name": kind, "split": f"fresh sequences at every step; validation: {HELD_OUT} sequences, seed 0"},
            "validation_protocol": "mean over the validation sequences",
        },
    )


def step_seed(seed: int, step: int, stream: int) -> int:
    """Of the randomness for one purpose at one step, the same whether or not the steps before it ran in this process."""
    return (seed * STREAMS + stream) * 10_000_019 + step


def _some(tokens: Int[Tensor, "pos"], context: int) -> Int[Tensor, "window pos_plus_1"]:
    return corpora.windows(tokens, context, min(WATCHED, corpora.count_windows(tokens, context)), seed=0)
