"""Parts of a play, on one that is small enough to check by eye."""

import pytest

from interp_core import domains

PLAY = """ROMEO:
But soft, what light
Through yonder window breaks

NURSE:
Madam! I am a foolish old
woman, and talk in prose, which
never ends.

ROMEO:
She speaks.

Exeunt

JULIET:
O Romeo, Romeo
Wherefore art thou Romeo
"""


def test_speeches_and_their_speakers() -> None:
    assert [speech.speaker for speech in domains.speeches(PLAY)] == ["ROMEO", "NURSE", "ROMEO", "JULIET"]
    assert list(domains.speakers(PLAY)) == ["NURSE", "ROMEO", "JULIET"]
    assert list(domains.speakers(PLAY, least=60)) == ["NURSE", "ROMEO"]


def test_one_speaker_and_all_others() -> None:
    mine, others = domains.part(PLAY, "speaker ROMEO")
    assert mine == "ROMEO:\nBut soft, what light\nThrough yonder window breaks\n\nROMEO:\nShe speaks."
    assert others.startswith("NURSE:")
    assert "JULIET" in others
    assert "ROMEO:" not in others


def test_verse_begins_its_lines_with_capitals() -> None:
    assert [speech.verse for speech in domains.speeches(PLAY)] == [True, False, None, True]
    verse, prose = domains.part(PLAY, "verse")
    assert "But soft" in verse
    assert "O Romeo" in verse
    assert prose.startswith("NURSE")
    assert (prose, verse) == domains.part(PLAY, "prose")
    assert "She speaks" not in verse + prose


@pytest.mark.parametrize(
    ("name", "message"), [("speaker HAMLET", "has no speaker HAMLET"), ("rhyme", "is no part of a play")]
)
def test_what_is_not_there_is_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        domains.part(PLAY, name)


def test_another_text_has_no_speeches() -> None:
    assert domains.speeches("Once upon a time\nthere was no play.\n\nReally: none.") == []
