"""Training sparse autoencoders: ours of every kind, against the companion's loop and SAELens, on the same activations."""

import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks import course, timing
from interp_core.sae import KINDS, Shape, SparseAutoencoder
from interp_core.sae_training import Recipe, Run

WIDTH, FEATURES, BATCH, STEPS, ROWS = 128, 2048, 1024, 20, 50_000
OURS = "ours: TopK, gradients of active features only"


def run() -> None:
    """Prints the comparison: twenty steps of a batch of 1,024 each."""
    torch.manual_seed(0)
    rows = torch.randn(ROWS, 40) @ torch.randn(40, WIDTH) + 0.3 * torch.randn(ROWS, WIDTH)
    ways: dict[str, Callable[[], object]] = {}
    for kind in KINDS:
        ours = Run(SparseAutoencoder(Shape(kind, WIDTH, FEATURES)), Recipe(steps=10**6, batch=BATCH), rows)
        ways[OURS if kind == "TopK" else f"ours: {kind}"] = _steps(ours)
    folder = course.reference()
    if folder is None or importlib.util.find_spec("sklearn") is None:
        print(
            "sae: the companion's side needs the course's code beside the folder that LOUPE_DATA names, and scikit-learn"
        )
    else:
        ways["the companion's loop: L1"] = _companion(course.companion(folder), rows)
    ways |= _saelens(rows)
    found = timing.medians(ways, rounds=5)
    timing.report(f"{STEPS} steps of {BATCH} activations, {WIDTH} × {FEATURES}", OURS, found)
    for name, seconds in found.items():
        print(f"    {name}: {STEPS * BATCH / seconds:,.0f} tokens a second")


def _steps(run: Run) -> Callable[[], None]:
    def way() -> None:
        for _ in range(STEPS):
            run.advance()

    return way


def _companion(code: dict[str, Any], rows: Tensor) -> Callable[[], None]:
    sae = code["SparseAutoencoder"](d_in=WIDTH, expansion=FEATURES // WIDTH)
    optimizer = torch.optim.Adam(sae.parameters(), lr=1e-3)

    def way() -> None:
        for step in range(STEPS):
            total, _, _ = sae.loss(rows[step * BATCH : (step + 1) * BATCH])
            optimizer.zero_grad()
            total.backward()
            with torch.no_grad():
                sae.dec.weight /= sae.dec.weight.norm(dim=0, keepdim=True)
            optimizer.step()

    return way


def _saelens(rows: Tensor) -> dict[str, Callable[[], None]]:
    """SAELens' own training step, where it is installed."""
    if importlib.util.find_spec("sae_lens") is None:
        print("SAELens is not installed, its side is left out")
        return {}
    from sae_lens import StandardTrainingSAE, StandardTrainingSAEConfig, TopKTrainingSAE, TopKTrainingSAEConfig
    from sae_lens.saes.sae import TrainStepInput

    shape = {"d_in": WIDTH, "d_sae": FEATURES, "dtype": "float32", "device": "cpu"}
    saes = {
        "SAELens: standard": StandardTrainingSAE(StandardTrainingSAEConfig(**shape)),
        "SAELens: TopK": TopKTrainingSAE(TopKTrainingSAEConfig(**shape, k=16)),
    }

    def steps(sae: Any) -> Callable[[], None]:
        optimizer = torch.optim.Adam(sae.parameters(), lr=1e-3)

        def way() -> None:
            for step in range(STEPS):
                given = TrainStepInput(
                    sae_in=rows[step * BATCH : (step + 1) * BATCH], coefficients={"l1": 1e-3}, dead_neuron_mask=None,
                    n_training_steps=step, is_logging_step=False,
                )  # fmt: skip
                loss = sae.training_forward_pass(given).loss
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

        return way

    return {name: steps(sae) for name, sae in saes.items()}
