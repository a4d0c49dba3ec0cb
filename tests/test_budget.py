from dataclasses import replace

import pytest
import torch

from interp_core import budget, plans
from interp_core.budget import OutOfBounds
from interp_core.model import GPT
from interp_core.plans import Recipe
from tests.conftest import SMALL


def test_parameters_without_making_a_model() -> None:
    for config in (SMALL, replace(SMALL, d_mlp=0), replace(SMALL, tied_head=True)):
        assert budget.parameters(config) == GPT(config).count()
    assert budget.parameters(plans.shape(65, 64, 128, 4, 4)) == 816_640


def test_operations_are_six_a_parameter_and_position_and_those_between() -> None:
    config = plans.shape(65, 64, 128, 4, 4)
    expected = 64 * 64 * (6 * 816_640 + 12 * 4 * 128 * 64)
    assert budget.operations(config, Recipe(batch=64)) == expected


def test_what_does_not_fit_is_refused_with_its_size() -> None:
    budget.check(plans.shape(65, 64, 128, 4, 4), Recipe())
    with pytest.raises(OutOfBounds, match="context of 3 leaves attention nothing"):
        budget.check(plans.shape(65, 3, 128, 4, 4), Recipe())
    with pytest.raises(OutOfBounds, match=r"parameters are more than the 200,000,000 trained here"):
        budget.check(plans.shape(50_257, 1024, 1024, 16, 24), Recipe())
    with pytest.raises(OutOfBounds, match=r"About \d+\.\d GB of memory, more than the 6"):
        budget.check(plans.shape(65, 1024, 512, 8, 8), Recipe(batch=512))


def test_a_step_is_tried_or_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    small = budget.seconds_a_step(SMALL, Recipe(batch=2))
    larger = budget.seconds_a_step(plans.shape(65, 64, 64, 4, 4), Recipe(batch=32))
    assert 0 < small < larger
    huge = plans.shape(65, 1024, 1024, 16, 12)
    assert budget.seconds_a_step(huge, Recipe()) == budget.operations(huge, Recipe()) / budget.OPERATIONS
