"""Before anything else is believed: does this checkpoint, with this vocabulary, predict this text?"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from interp_core import baselines, corpora
from interp_core.checkpoints import Checkpoint
from interp_core.corpora import Text
from interp_core.model import batch_of, forward, token_losses
from interp_core.statistics import interval

FAR = 0.4  # total variation distance between two distributions of tokens that have little in common
CLEARLY = 0.1  # nats worse than guessing, beyond what fresh weights cost
NATS_PER_BIT = float(np.log(2))


@dataclass(frozen=True, eq=False)
class Preflight:
    """What is known of a checkpoint, and how it does on a text beside what anything must beat."""

    facts: pd.DataFrame  # what, value, source
    losses: pd.DataFrame  # predictor, nats, low, high, bits
    windows: int
    healthy: bool | None  # None: this text cannot tell
    verdict: str


@torch.no_grad()
def report(checkpoint: Checkpoint, text: Text, windows: Int[Tensor, "window pos_plus_1"], seed: int = 0) -> Preflight:
    """The pre-flight report: loss on disjoint validation windows of a text beside uniform, unigram and bigram.

    The verdict compares the model with the counts on the same windows: intervals of the paired differences.

    Raises:
        ValueError: fewer than two windows.
    """
    config = checkpoint.model.config
    columns = {
        "this model": token_losses(checkpoint.model, windows),
        "bigram counts": baselines.bigram_losses(text.train, windows, config.d_vocab),
        "unigram counts": baselines.unigram_losses(text.train, windows, config.d_vocab),
        "uniform": torch.full(windows[:, 1:].shape, baselines.uniform_loss(config.d_vocab)),
    }
    means = {name: losses.double().mean(1).numpy() for name, losses in columns.items()}  # one a window
    rows = []
    for name, values in means.items():
        nats = interval(values, seed)
        bits = nats.estimate / NATS_PER_BIT
        rows.append({"predictor": name, "nats": nats.estimate, "low": nats.low, "high": nats.high, "bits": bits})
    if text.name == corpora.OWN_SAMPLES:
        verdict = (
            f"{means['this model'].mean():.2f} nats on its own samples, which is its entropy: only a text can test it."
        )
        healthy: bool | None = None
    else:
        healthy, verdict = _verdict(means, seed)
        if healthy is False and reordered(checkpoint, text, windows):
            verdict = (
                f"{verdict.split(':')[0]}: the vocabulary is probably in another order. Its predictions are as uneven as this "
                "text's frequencies, but over other tokens."
            )
    facts = pd.DataFrame(
        [
            ("layout", checkpoint.layout, "keys"),
            ("parameters", f"{checkpoint.model.count():,}", "keys and shapes"),
            *((fact.what, fact.value, fact.source) for fact in checkpoint.facts),
            ("vocabulary", f"{checkpoint.tokenizer.size} tokens", checkpoint.vocabulary_source),
        ],
        columns=["what", "value", "source"],
    )
    return Preflight(facts, pd.DataFrame(rows), len(windows), healthy, verdict)


def reordered(checkpoint: Checkpoint, text: Text, windows: Int[Tensor, "window pos_plus_1"]) -> bool:
    """Whether the model predicts tokens as unevenly as the text has them, but not the same ones.

    The total variation distance between its mean prediction and the text's frequencies is large token by token, and small
    once both are sorted.
    """
    config = checkpoint.model.config
    parts = windows[:, :-1].split(batch_of(config, windows.shape[1]))
    said = torch.stack([forward(checkpoint.model, part).logits.softmax(-1).sum((0, 1)) for part in parts]).sum(0)
    counts = torch.bincount(text.train, minlength=config.d_vocab).float()
    said, seen = said / said.sum(), counts / counts.sum()
    in_place, sorted_ = ((a - b).abs().sum() / 2 for a, b in ((said, seen), (said.sort().values, seen.sort().values)))
    return bool(in_place > FAR and sorted_ < in_place / 2)


def _verdict(means: dict[str, np.ndarray], seed: int) -> tuple[bool, str]:
    model = means["this model"]
    gains = {name: interval(means[name] - model, seed) for name in ("bigram counts", "unigram counts", "uniform")}
    nats = f"{model.mean():.2f} nats"
    if gains["bigram counts"].low > 0:
        return True, f"{nats}: better than pair counts by {gains['bigram counts'].estimate:.2f}. It reads this text."
    if gains["unigram counts"].low > 0:
        return True, (
            f"{nats}: better than letter frequencies, but not clearly than pair counts. It has learned little, "
            "or this is not the kind of text that it was trained on."
        )
    if gains["uniform"].high < -CLEARLY:
        return False, (
            f"{nats}, worse than guessing: this is another text than it was trained on, "
            "or the vocabulary is in another order."
        )
    return False, (
        f"{nats}, no better than letter frequencies: it is untrained, the vocabulary is in another order, "
        "or this is another text than it was trained on."
    )
