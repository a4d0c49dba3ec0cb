"""Verdicts follow from the numbers, both ways."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from interp_core import induction
from interp_core.atlas import Labels, Standout
from interp_core.features import Cause
from interp_core.probing import Causal
from interp_core.sae_quality import Quality
from interp_core.statistics import Interval
from tests.conftest import SMALL, random_model
from tests.wired import wired_induction
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


def test_bits_are_credited_to_what_they_are_better_than() -> None:
    clear, none = Interval(1.0, 0.9, 1.1), Interval(0.0, -0.01, 0.01)
    assert wording.bits_verdict("x", clear, None) == (
        True,
        "x beats pair counts; what three characters can do, the MLP will tell",
    )
    assert wording.bits_verdict("x", clear, clear)[1].endswith("an MLP that sees three characters by 1.00 ±0.10")
    assert wording.bits_verdict("x", clear, none) == (
        False,
        "x beats pair counts, but not clearly an MLP that sees three characters",
    )
    assert wording.bits_verdict("x", none, clear) == (False, "x is not clearly better than pair counts")


def test_the_heads_of_a_circuit_are_named_with_those_of_an_untrained_model() -> None:
    wired = induction.measure_heads(wired_induction(), 10, 64)
    chance = induction.measure_heads(random_model(wired_induction().config), 10, 64)
    good, words, numbers = wording.formation_verdict(wired, chance)
    assert (good, words) == (True, "both heads of an induction circuit are there")
    assert wired.candidate is not None
    assert wired.candidate in numbers
    assert "untrained" in numbers
    good, words, _ = wording.formation_verdict(chance, chance)
    assert not good
    assert words.startswith(("no matching head", "a previous-token head, but"))
    one = induction.measure_heads(random_model(replace(SMALL, layers=1)), 4, 64)
    assert wording.formation_verdict(one, one)[1] == "one layer has no room for the two heads of an induction circuit"


def test_times_speeds_and_sizes_as_people_say_them() -> None:
    assert [wording.duration(s) for s in (12, 89, 300, 9000)] == ["12 s", "89 s", "5 min", "2.5 h"]
    assert [wording.rate(r) for r in (25.2, 0.5)] == ["25 a second", "30 a minute"]
    assert [wording.size(b) for b in (0, 53e6, 2.5e9)] == ["0 MB", "53 MB", "2.5 GB"]


def test_what_a_probe_shows() -> None:
    clear, none = Interval(0.9, 0.85, 0.95), Interval(0.51, 0.45, 0.57)
    assert wording.probe_verdict("vowel", none, 0.5, 0.04, (3, 128), True)[0] is False
    assert wording.probe_verdict("vowel", clear, 0.5, 0.2, (3, 128), True)[0] is False
    good, words = wording.probe_verdict("vowel", clear, 0.5, 0.048, (3, 128), True)
    assert good
    assert words.startswith("vowel can be read, concentrated: 3 of 128")
    assert "distributed: 40 of 128" in wording.probe_verdict("vowel", clear, 0.5, 0.048, (40, 128), False)[1]
    said = [wording.surface_verdict(Interval(m, m - 0.1, m + 0.1)).split(" the last")[0] for m in (0.2, 0.0, -0.2)]
    assert said == ["more than", "no more than", "less than"]


def test_what_a_model_loses_without_neurons() -> None:
    small, large, none = Interval(0.1, 0.05, 0.15), Interval(0.5, 0.4, 0.6), Interval(0.1, -0.1, 0.3)
    random = np.zeros((3, 2))
    assert wording.causal_verdict(Causal(large, small, random, none))[0] is False
    assert wording.causal_verdict(Causal(large, small, random, large))[1].endswith("most at tokens of the category")
    assert "not clearly more" in wording.causal_verdict(Causal(small, large, random, small))[1]


def test_what_an_autoencoder_shows() -> None:
    recovered, chance = Interval(0.9, 0.85, 0.95), np.linspace(0, 0.4, 200)
    found = Quality(16.0, recovered, recovered)
    good, words = wording.sae_verdict(found, 0.5, np.linspace(0, 1, 100), chance)
    assert good
    assert "62% have a better name than 19 of 20 random directions" in words
    assert wording.sae_verdict(found, 0.9, np.linspace(0, 1, 100), chance)[0] is False
    assert "no better names than chance" in wording.sae_verdict(found, 0.5, chance, chance)[1]


def test_whether_a_model_needs_a_feature() -> None:
    large, none = Interval(0.5, 0.4, 0.6), Interval(0.0, -0.1, 0.1)
    others = np.array([0.1, 0.2, 0.3])
    assert wording.feature_verdict(Cause(large, none, others))[0] is True
    assert wording.feature_verdict(Cause(none, none, others))[1].startswith("no loss can be measured")
    assert "not clearly more than most" in wording.feature_verdict(Cause(large, none, others + 1))[1]
    assert "as much where it does not fire" in wording.feature_verdict(Cause(large, large, others))[1]
