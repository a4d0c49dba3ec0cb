"""The course's own numbers, on the course's own checkpoint and text, through our code."""

from pathlib import Path
from typing import Any

import pytest
import torch

from interp_core import atlas, checkpoints, corpora, layouts
from interp_core.checkpoints import Checkpoint
from interp_core.corpora import Text
from interp_core.model import forward, token_losses

CONTEXT = 64


@pytest.fixture(scope="module")
def checkpoint(reference: Path, shakespeare: str) -> Checkpoint:
    return checkpoints.load(reference / "step6_model.pt", checkpoints.vocabulary_of_text(shakespeare, "the text"))


@pytest.fixture(scope="module")
def text(checkpoint: Checkpoint) -> Text:
    return corpora.load("tiny-shakespeare", checkpoint.tokenizer)


@pytest.fixture(scope="module")
def tokens(text: Text) -> torch.Tensor:
    return torch.cat([text.train, text.validation])


def test_golden_identity(checkpoint: Checkpoint, golden: dict[str, Any]) -> None:
    assert checkpoint.sha256 == golden["sha256"]
    assert checkpoint.model.count() == 816_640


def test_golden_logits(checkpoint: Checkpoint, tokens: torch.Tensor, golden: dict[str, Any]) -> None:
    logits = forward(checkpoint.model, tokens[None, :CONTEXT]).logits
    expected = torch.tensor(golden["logits_first_window_last_pos"])
    torch.testing.assert_close(logits[0, -1], expected, atol=1e-3, rtol=0)
    assert logits.sum().item() == pytest.approx(golden["logits_first_window_sum"], abs=0.1)  # 4,160 logits, 1e-3 each


def test_golden_validation_loss(checkpoint: Checkpoint, text: Text, golden: dict[str, Any]) -> None:
    windows = corpora.course_windows(text.validation, CONTEXT)
    stated = corpora.windows_at(text.validation, [o for batch in golden["val_offsets"] for o in batch], CONTEXT)
    assert torch.equal(windows, stated)
    assert token_losses(checkpoint.model, windows).mean().item() == pytest.approx(golden["val_base"], abs=1e-4)


def test_golden_atlas(checkpoint: Checkpoint, tokens: torch.Tensor, golden: dict[str, Any]) -> None:
    table = atlas.head_atlas(checkpoint.model, corpora.windows_at(tokens, golden["atlas_offsets"], CONTEXT)).table
    for row, expected in zip(table.itertuples(), golden["atlas"], strict=True):
        assert (row.layer, row.index) == (expected["layer"], expected["head"])
        assert row.previous_token_score == pytest.approx(expected["prev"], abs=1e-4)
        assert row.self_score == pytest.approx(expected["self"], abs=1e-4)
        assert row.first_token_score == pytest.approx(expected["first"], abs=1e-4)


def test_golden_zeroed_values_as_edits(checkpoint: Checkpoint, text: Text, golden: dict[str, Any]) -> None:
    """One head of the golden ablations, through an edit of its mixed values (the course zeroes its value weights)."""
    windows = corpora.course_windows(text.validation, CONTEXT)
    row = next(row for row in golden["ablation_zero_value"] if (row["layer"], row["head"]) == (0, 3))

    def zero_head_three(z: torch.Tensor) -> torch.Tensor:
        return z * torch.tensor([1.0, 1.0, 1.0, 0.0])[:, None]

    loss = token_losses(checkpoint.model, windows, {"z.0": zero_head_three}).mean().item()
    assert loss == pytest.approx(row["val"], abs=1e-4)


def test_golden_file_is_written_back_bit_by_bit(checkpoint: Checkpoint, reference: Path) -> None:
    theirs = torch.load(reference / "step6_model.pt", weights_only=True)
    ours = layouts.write(checkpoint.model)
    assert set(ours) == set(theirs)
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
