"""Zero-ablating all 16 heads, against the course's deep copies and TransformerLens's hooks, on the same windows."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks import course, lens, timing
from interp_core import ablation, checkpoints, corpora
from interp_core.ablation import parts
from interp_core.model import next_token_losses

BATCHES = 2  # of the protocol's 60; every way takes time in proportion
OURS = "ours: restart behind the head"


def run() -> None:
    """Prints the comparison; checks first that all ways give the same effects."""
    folder = course.reference()
    if folder is None:
        print("ablation: needs the course's code beside the folder that LOUPE_DATA names")
        return
    notebook = course.notebook(folder)
    model = checkpoints.load(folder / "step6_model.pt").model
    heads = parts(model.config, ("head",))
    windows = corpora.course_windows(notebook["val_ids"], 64, batches=BATCHES)

    def ours() -> list[float]:
        return list(ablation.sweep(model, windows, ablated=heads).effects.mean(1))

    def theirs() -> list[float]:
        intact = notebook["val_loss"](notebook["model"], iters=BATCHES)
        copies = (notebook["ablate_head"](head.layer, head.head) for head in heads)
        return [notebook["val_loss"](copy, iters=BATCHES) - intact for copy in copies]

    ways: dict[str, Callable[[], list[float]]] = {OURS: ours, "the notebook: a copy and a pass for each head": theirs}
    other = lens.of(model)
    if other is not None:
        ways["TransformerLens: a hook and a pass for each head"] = lambda: _hooks(
            other, windows, [(h.layer, h.head) for h in heads]
        )
    for way in ways.values():
        torch.testing.assert_close(torch.tensor(way()), torch.tensor(ours()), atol=1e-4, rtol=0)
    timing.report(f"Zero-ablating 16 heads on {len(windows)} windows", OURS, timing.medians(ways, rounds=3))


@torch.no_grad()
def _hooks(other: Any, windows: torch.Tensor, heads: list[tuple[int, int]]) -> list[float]:
    def loss(hooks: list[tuple[str, Callable]]) -> float:
        parts = [
            next_token_losses(other.run_with_hooks(w[:, :-1], fwd_hooks=hooks), w[:, 1:]) for w in windows.split(64)
        ]
        return torch.cat(parts).mean().item()

    def zero(z: torch.Tensor, hook: Any, head: int) -> torch.Tensor:
        z[:, :, head] = 0
        return z

    intact = loss([])
    return [loss([(f"blocks.{layer}.attn.hook_z", partial(zero, head=head))]) - intact for layer, head in heads]
