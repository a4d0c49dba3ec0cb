"""Labels of tokens by patterns, against labels by hand."""

import time

import numpy as np
import pytest

from interp_core import categories
from interp_core.categories import NAMED, PatternError

PLAY = "First Citizen:\nSpeak, O King!\n\nALL:\nWe're 2 kings.\n"


def marked(name: str, text: str = PLAY) -> str:
    """The characters that belong, the others as dots."""
    return "".join(
        c if m else "." for c, m in zip(text, categories.label(NAMED[name].pattern, list(text)), strict=True)
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("vowel", "iiieeaOiAeei"),
        ("capital", "FCSOKALLW"),
        ("punctuation", ":,!:'."),
        ("digit", "2"),
        ("first letter of a word", "FCSOKAWk"),  # We're is one word
        ("inside a speaker's name", "First CitizenALL"),
        ("end of line next", ":!:."),
        ("repeated letter", "LL"),
    ],
)
def test_named_categories_by_hand(name: str, expected: str) -> None:
    assert (
        "".join(c for c, m in zip(PLAY, categories.label(NAMED[name].pattern, list(PLAY)), strict=True) if m)
        == expected
    )


def test_the_last_letter_of_a_word() -> None:
    assert marked("last letter of a word", "We're the kings' men").replace(".", "") == "eesn"


def test_subword_tokens_belong_when_a_match_covers_any_of_their_characters() -> None:
    pieces = ["the ki", "ng ", "", "and qu", "een"]
    assert categories.label("king|queen", pieces).tolist() == [True, True, False, True, True]
    assert categories.label(" and", pieces).tolist() == [False, True, False, True, False]


def test_labels_equal_a_loop_over_characters() -> None:
    rng = np.random.default_rng(0)
    text = "".join(rng.choice(list("abc \n"), 3000))
    import re

    expected = np.zeros(len(text), dtype=bool)
    for match in re.finditer("a+b|c$", text, re.MULTILINE):
        expected[match.start() : match.end()] = True
    assert np.array_equal(categories.label("a+b|c$", list(text)), expected)


def test_every_named_category_is_found_in_a_text_that_has_it_and_in_no_other() -> None:
    for category in categories.LIBRARY:
        assert not categories.label(category.pattern, list("\u2603" * 50)).any(), category.name
        has = PLAY + 'He said "no, b2b" aa.\n'
        assert categories.label(category.pattern, list(has)).any(), category.name
        assert category.words


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("", "is empty"),
        ("(a", r"no regular expression: missing \)"),
        ("a" * 501, "501 characters, more than the 500"),
    ],
)
def test_patterns_that_cannot_be_used_are_explained(pattern: str, words: str) -> None:
    with pytest.raises(PatternError, match=words):
        categories.label(pattern, list("abc"))


def test_a_catastrophic_pattern_is_bounded_in_time() -> None:
    begun = time.monotonic()
    with pytest.raises(PatternError, match="takes more than 0 s on this text: nested repeats"):
        categories.label(r"(a|aa)+$", list("a" * 5000 + "!"), seconds=0.3)
    assert time.monotonic() - begun < 3


def test_a_repeated_bigram_is_one_that_the_window_has_seen() -> None:
    windows = np.array([list(b"abcab"), list(b"aaaab"), list(b"ababc")])
    expected = np.array([[0, 0, 0, 0, 1], [0, 0, 1, 1, 0], [0, 0, 0, 1, 0]], dtype=bool)
    assert np.array_equal(categories.repeated_bigram(windows), expected)
    assert categories.second_half(windows).tolist() == [[False, False, True, True, True]] * 3


def test_balanced_rows_are_as_many_of_each_and_all_of_the_rarer() -> None:
    positive = np.arange(100) < 10
    kept = np.arange(100) % 2 == 0
    chosen = categories.balanced(kept, positive, seed=0)
    assert not (chosen & ~kept).any()
    assert (chosen & positive).sum() == (kept & positive).sum() == 5
    assert (chosen & ~positive).sum() == 5
    assert not np.array_equal(chosen, categories.balanced(kept, positive, seed=1))
    other = categories.balanced(kept, ~positive, seed=0)
    assert (other & ~positive).sum() == 5
