"""What several test modules need. Nothing here reads the network."""

import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault(
    "GOMP_SPINCOUNT", "1000"
)  # before torch: tests beside a running training would crawl, as the app would

import pytest
import torch

from interp_core.model import GPT, ModelConfig

ROOT = Path(__file__).parent.parent
DATA = os.environ.get("LOUPE_DATA")
REFERENCE = Path(DATA).resolve().parent / "reference" if DATA else None


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder with the course's checkpoint and golden numbers."""
    if REFERENCE is None or not (REFERENCE / "golden.json").is_file():
        pytest.skip("no reference checkpoint: LOUPE_DATA is not set, or reference/ is not beside it")
    return REFERENCE


@pytest.fixture(scope="session")
def golden(reference: Path) -> dict[str, Any]:
    return json.loads((reference / "golden.json").read_text())


@pytest.fixture(scope="session")
def shakespeare() -> str:
    """The text itself, where it lies on this machine."""
    if not DATA or not (Path(DATA) / "tinyshakespeare.txt").is_file():
        pytest.skip("no tiny Shakespeare: LOUPE_DATA does not name a folder that holds it")
    return (Path(DATA) / "tinyshakespeare.txt").read_text()


SMALL = ModelConfig(d_vocab=11, context=12, d_model=16, heads=2, layers=3, d_head=8, d_mlp=24)


def random_model(config: ModelConfig = SMALL, seed: int = 0, size: float = 0.4) -> GPT:
    """A model whose every parameter is non-trivial, biases and norms too, so that a dropped one shows."""
    model = GPT(config, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    for name, parameter in model.named_parameters():
        centre = 1.0 if "ln" in name and name.endswith("weight") else 0.0
        parameter.copy_(centre + size * torch.randn(parameter.shape, generator=generator))
    return model


def random_tokens(
    config: ModelConfig = SMALL, batch: int = 4, length: int | None = None, seed: int = 0
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(config.d_vocab, (batch, length or config.context), generator=generator)
