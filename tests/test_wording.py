"""Verdicts follow from the numbers, both ways."""

import pandas as pd
import pytest

from interp_core.atlas import Labels, Standout
from interp_core.statistics import Interval
from ui import wording

CONTROL = pd.DataFrame(
    {"seed": [0, 1], "named": [0, 1], "previous_token_score": [0.05, 0.06], "prefix_matching_score": [0.1, 0.2]}
)


def standout(low: float, high: float, name: str = "previous_token_score") -> Standout:
    return Standout("L0H3", "previous-token", name, Interval((low + high) / 2, low, high), 16, 5)


def labels(low: float, estimate: float, high: float) -> Labels:
    return Labels(pd.DataFrame(index=range(16)), Interval(float(estimate), float(low), float(high)))


def test_a_head_that_stands_out_is_said_to() -> None:
    assert wording.finding(standout(0.96, 0.98), CONTROL) == "L0H3 puts 97% of its attention one position back"
    words = wording.standout_evidence(standout(0.96, 0.98), CONTROL)
    assert "Previous token score 0.97 ±0.01" in words
    assert "In 2 untrained models of the same shape the best head reaches 0.06" in words


@pytest.mark.parametrize(("low", "high"), [(0.02, 0.09), (0.05, 0.9)])
def test_a_head_within_the_control_does_not_stand_out(low: float, high: float) -> None:
    assert wording.finding(standout(low, high), CONTROL).startswith("No head stands out")


def test_another_score_is_held_against_its_own_control() -> None:
    assert not wording.stands_out(standout(0.15, 0.3, "prefix_matching_score"), CONTROL)
    assert wording.stands_out(standout(0.15, 0.3), CONTROL)
    assert "what followed the same token earlier" in wording.finding(
        standout(0.5, 0.7, "prefix_matching_score"), CONTROL
    )


@pytest.mark.parametrize(
    ("named", "best", "good", "words"),
    [
        (
            labels(2, 3, 4),
            standout(0.9, 0.95),
            True,
            "3 of 16 heads have a nameable pattern; 1 of 32 untrained heads do",
        ),
        (labels(1, 2, 4), standout(0.9, 0.95), False, "not clearly more than 1 of 32 untrained heads"),
        (labels(2, 3, 4), standout(0.01, 0.95), False, "not clearly more"),
        (labels(0, 1, 1), standout(0.01, 0.95), False, "1 of 16 heads have a nameable pattern, not clearly more"),
    ],
)
def test_the_verdict_of_the_atlas(named: Labels, best: Standout, good: bool, words: str) -> None:
    assert wording.atlas_verdict(named, best, CONTROL)[0] == good
    assert words in wording.atlas_verdict(named, best, CONTROL)[1]


def test_digits_follow_the_interval() -> None:
    assert wording.plus_minus(Interval(0.9719, 0.9684, 0.9754)) == "0.972 ±0.004"
    assert wording.plus_minus(Interval(0.5, 0.4, 0.6)) == "0.50 ±0.10"


def test_a_fixed_offset_names_its_distance() -> None:
    control = CONTROL.assign(fixed_offset_score=0.06)
    assert (
        wording.finding(standout(0.9, 0.98, "fixed_offset_score"), control)
        == "L0H3 puts 94% of its attention 5 positions back"
    )
