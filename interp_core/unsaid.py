"""What a file of weights does not say, and what each choice does to the loss.

Loss can suggest a number of heads, an activation of another kind, another scale of the scores. It cannot tell the two GELUs
or two epsilons apart, and it cannot show that weights were read rightly: only logits can.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int
from torch import Tensor

from interp_core import layouts
from interp_core.model import ACTIVATIONS, GPT, ModelConfig, token_losses
from interp_core.statistics import interval

FIELDS = ("heads", "activation", "score_scale", "norm", "norm_eps")  # what no key and no shape may tell
NAMES = {"gelu": "exact GELU", "gelu_tanh": "tanh GELU", "relu": "ReLU"}
MOST_HEADS = 256
COLUMNS = ["choice", "value", "nats", "low", "high", "change", "change_low", "change_high", "chosen"]


def options(config: ModelConfig, field: str) -> dict[str, Any]:
    """The choices for a field of a config, by what a page calls them.

    Raises:
        ValueError: not a field of `FIELDS`.
    """
    if field == "heads":
        width = config.heads * config.d_head
        return {str(n): n for n in range(1, min(width, MOST_HEADS) + 1) if width % n == 0}
    if field == "activation":
        return {NAMES[name]: name for name in ACTIVATIONS}
    if field == "score_scale":
        return {"1/√d_head": None, "1/√d_model": config.d_model**-0.5, "not scaled": 1.0}
    if field == "norm":
        return {"LayerNorm, its weights folded away": "plain", "no norm": "none"}
    if field == "norm_eps":
        return {"1e-5": 1e-5, "1e-6": 1e-6, "1e-8": 1e-8, "1e-12": 1e-12}
    raise ValueError(f"{field} is not asked for; expected one of {', '.join(FIELDS)}")


def with_answers(model: GPT, answers: dict[str, Any]) -> GPT:
    """The same weights under another config; they are shared, not copied.

    Raises:
        ValueError: a number of heads that does not divide the width.
    """
    config = model.config
    if "heads" in answers:
        width = config.heads * config.d_head
        if width % answers["heads"]:
            raise ValueError(f"{answers['heads']} heads do not divide {width} rows of queries")
        answers = {**answers, "d_head": width // answers["heads"]}
    weights = model.state_dict()
    if config.tied_head:
        del weights["head.weight"]
    return layouts.build(replace(config, **answers), weights)


def effects(
    model: GPT,
    field: str,
    windows: Int[Tensor, "window pos_plus_1"],
    seed: int = 0,
    progress: Callable[[float], object] = lambda share: None,
    against_lowest: bool = False,
) -> pd.DataFrame:
    """The loss of the same weights under each choice for a field, in nats, and its paired change from the present choice.

    Intervals are over windows. Columns: `COLUMNS`; `value` is the field's value of a choice. With `against_lowest` the change
    is from the choice of the lowest loss: where there is no present choice, only a stopgap.

    Raises:
        ValueError: as `options`, or fewer than two windows.
    """
    choices, present = options(model.config, field), getattr(model.config, field)
    if present not in choices.values():
        choices = {f"{present:.4g}" if isinstance(present, float) else str(present): present, **choices}
    means: dict[str, np.ndarray] = {}
    for done, (choice, value) in enumerate(choices.items()):
        means[choice] = token_losses(with_answers(model, {field: value}), windows).double().mean(1).numpy()
        progress((done + 1) / len(choices))
    lowest = min(means, key=lambda choice: means[choice].mean())
    now = means[lowest if against_lowest else next(c for c, value in choices.items() if value == present)]
    rows = []
    for choice, values in means.items():
        nats, change = interval(values, seed), interval(values - now, seed)
        rows.append((
            choice, choices[choice], nats.estimate, nats.low, nats.high, change.estimate, change.low, change.high,
            choices[choice] == present,
        ))  # fmt: skip
    return pd.DataFrame(rows, columns=COLUMNS)


def suggestion(found: pd.DataFrame) -> tuple[str, bool]:
    """Of the changes from the lowest loss: its choice, and whether every other is clearly higher on the same windows."""
    best, *others = found.sort_values("nats").itertuples()
    return str(best.choice), all(float(str(other.change_low)) > 0 for other in others)
