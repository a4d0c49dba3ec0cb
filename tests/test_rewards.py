"""Rewards on texts whose counts are known."""

import pytest

from interp_core import rewards
from interp_core.rewards import RewardError, Term

TEXTS = ["the king\nTo be, or not to be\nis the King", "a banana", "", "short\n\nand more that does not count"]


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (Term("pattern", text=r"(?i)\bking\b"), [2, 0, 0, 0]),
        (Term("pattern", text="a"), [0, 4, 0, 2]),
        (Term("pattern", text="z*"), [0, 0, 0, 0]),
        (Term("pattern", 0.5, text="[aeiou]"), [5.5, 2, 0, 5]),
        (Term("lines of k syllables", number=6), [1, 0, 0, 0]),
        (Term("banned word", text="king"), [-2, 0, 0, 0]),
        (Term("banned word", text="ban"), [0, 0, 0, 0]),
        (Term("length", number=5), [-35, -3, -5, 0]),
        (Term("share of vowels"), [11 / 29, 4 / 7, 0, 10 / 28]),
    ],
)
def test_every_kind_counts_what_it_says(term: Term, expected: list[float]) -> None:
    assert rewards.score([term], TEXTS).tolist() == pytest.approx(expected, abs=1e-9)


def test_terms_add_up_by_their_weights() -> None:
    both = [Term("pattern", 2.0, "a"), Term("banned word", 3.0, "king")]
    assert rewards.score(both, TEXTS).tolist() == [-6, 8, 0, 4]


@pytest.mark.parametrize(
    ("line", "count"), [("to be or not to be", 6), ("table", 2), ("gate", 1), ("banana", 3), ("why", 1), ("", 0)]
)
def test_syllables_by_rule_of_thumb(line: str, count: int) -> None:
    assert rewards.syllables(line) == count


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ([], "no reward yet"),
        ([Term("pattern", text="(")], "no regular expression"),
        ([Term("pattern", text="")], "empty"),
        ([Term("pattern", text="a" * 501)], "501 characters"),
        ([Term("banned word", text=" ")], "No word is banned"),
        ([Term("lines of k syllables")], "1 or more"),
    ],
)
def test_bad_rewards_are_refused(terms: list[Term], message: str) -> None:
    with pytest.raises(RewardError, match=message):
        rewards.score(terms, TEXTS)


def test_a_pattern_that_never_ends_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewards, "SECONDS", 0.2)
    with pytest.raises(RewardError, match="takes more than"):
        rewards.score([Term("pattern", text="(a|aa)+$|(x+x+)+y")], ["a" * 60 + "b" + "x" * 60] * 5)
