import pytest
from hypothesis import given
from hypothesis import strategies as st

from interp_core.tokenizers import CharTokenizer, NumberTokenizer, UnknownCharacters


@given(st.text(min_size=1))
def test_text_comes_back(text: str) -> None:
    tokenizer = CharTokenizer.of_text(text)
    assert tokenizer.decode(tokenizer.encode(text).tolist()) == text


@given(st.text(min_size=1))
def test_numbers_are_the_places_in_the_sorted_vocabulary(text: str) -> None:
    vocabulary = sorted(set(text))
    assert CharTokenizer.of_text(text).encode(text).tolist() == [vocabulary.index(c) for c in text]


def test_the_order_of_the_vocabulary_is_kept() -> None:
    assert CharTokenizer("ba c").encode("abc ").tolist() == [1, 0, 3, 2]


def test_unknown_characters_are_named_with_counts_or_left_out() -> None:
    tokenizer = CharTokenizer("abc")
    with pytest.raises(
        UnknownCharacters, match=r"2 characters of this text \(3 places\).* among the 3 .*: ⏎ é"
    ) as caught:
        tokenizer.encode("a\n\nbé")
    assert caught.value.counts == {"\n": 2, "é": 1}
    assert tokenizer.encode("a\n\nbé", "drop").tolist() == [0, 1]
    assert tokenizer.encode("éé", "drop").tolist() == []


def test_white_space_and_control_characters_can_be_seen() -> None:
    tokenizer = CharTokenizer(" \n\ta\x00")
    assert [tokenizer.label(i) for i in range(5)] == ["␣", "⏎", "⇥", "a", "U+0000"]


@pytest.mark.parametrize(("vocabulary", "message"), [(["a", "bc"], "'bc'"), (["a", "b", "a"], "'a' twice")])
def test_what_is_no_vocabulary_is_refused(vocabulary: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CharTokenizer(vocabulary)


def test_numbers_stand_in_for_an_unknown_vocabulary() -> None:
    tokenizer = NumberTokenizer(30)
    assert tokenizer.decode([3, 29]) == "⟨3⟩⟨29⟩"
    with pytest.raises(ValueError, match="choose a synthetic text, or, if it was trained on a text, upload that"):
        tokenizer.encode("abc")
