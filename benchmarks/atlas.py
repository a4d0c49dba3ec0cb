"""The atlas of 16 heads over 32 windows, against the course's notebook and TransformerLens."""

from collections.abc import Callable
from typing import Any

import torch

from benchmarks import course, lens, timing
from interp_core import atlas, checkpoints, corpora
from interp_core.model import GPT, forward

OURS = "ours: patterns and all scores"
WINDOWS, CONTEXT = 32, 64


def run() -> None:
    """Prints the comparison; what is not on this machine is left out by name."""
    folder = course.reference()
    if folder is None:
        print("atlas: needs the course's code beside the folder that LOUPE_DATA names")
        return
    notebook = course.notebook(folder)
    model = checkpoints.load(folder / "step6_model.pt").model
    windows = corpora.windows(notebook["val_ids"], CONTEXT, WINDOWS, seed=0)
    ways: dict[str, Callable[[], object]] = {
        OURS: lambda: atlas.head_atlas(model, windows),
        "ours: patterns only": lambda: _patterns(model, windows[:, :-1]),
        "the notebook's cell: patterns only": lambda: notebook["head_patterns"](WINDOWS),
    }
    other = lens.of(model)
    if other is not None:
        names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(model.config.layers)]
        ways["TransformerLens run_with_cache: patterns only"] = lambda: _lens_patterns(other, windows[:, :-1], names)
        torch.testing.assert_close(
            _lens_patterns(other, windows[:, :-1], names), _patterns(model, windows[:, :-1]), atol=1e-5, rtol=1e-4
        )
    timing.report(f"Atlas of 16 heads over {WINDOWS} windows", OURS, timing.medians(ways))


@torch.no_grad()
def _patterns(model: GPT, tokens: torch.Tensor) -> torch.Tensor:
    trace = forward(model, tokens, [f"pattern.{layer}" for layer in range(model.config.layers)], stop_early=True)
    return torch.stack([trace[f"pattern.{layer}"].mean(0) for layer in range(model.config.layers)])


@torch.no_grad()
def _lens_patterns(other: Any, tokens: torch.Tensor, names: list[str]) -> torch.Tensor:
    _, cache = other.run_with_cache(tokens, names_filter=names)
    return torch.stack([cache[name].mean(0) for name in names])
