"""Parts of a play as second texts: one speaker's lines, verse, prose.

A play is speeches with blank lines between them; the first line of a speech is the speaker's name and a colon.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

SPEAKER = re.compile(r"[A-Z][^\n:]{0,40}:")
SPEAKER_OF, VERSE, PROSE = "speaker ", "verse", "prose"
CAPITALS = 0.8  # share of lines that begin with a capital letter, from which a speech is verse


@dataclass(frozen=True)
class Speech:
    """What one speaker says before another does."""

    speaker: str
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """The speech with its speaker's name, as it stands in the play."""
        return "\n".join([f"{self.speaker}:", *self.lines])

    @property
    def verse(self) -> bool | None:
        """Whether its lines begin with capitals, as verse does; None where one line cannot tell."""
        if len(self.lines) < 2:
            return None
        return sum(line[:1].isupper() for line in self.lines[1:]) / (len(self.lines) - 1) >= CAPITALS


def speeches(text: str) -> list[Speech]:
    """The speeches of a play; of any other text none."""
    found = []
    for part in text.split("\n\n"):
        name, _, rest = part.strip("\n").partition("\n")
        if SPEAKER.fullmatch(name) and rest:
            found.append(Speech(name[:-1], tuple(rest.split("\n"))))
    return found


def speakers(text: str, least: int = 0) -> dict[str, int]:
    """Who speaks at least so many characters, the most talkative first."""
    said: Counter[str] = Counter()
    for speech in speeches(text):
        said[speech.speaker] += len(speech.text)
    return {name: count for name, count in said.most_common() if count >= least}


def part(text: str, name: str) -> tuple[str, str]:
    """The part of a play that a name tells, and the rest: `speaker ROMEO`, `verse`, `prose`.

    Raises:
        ValueError: another name, or nothing of that kind.
    """
    if name.startswith(SPEAKER_OF):
        found = of_speaker(text, name.removeprefix(SPEAKER_OF))
    elif name in (VERSE, PROSE):
        found = of_form(text, verse=name == VERSE)
    else:
        raise ValueError(f"{name!r} is no part of a play: expected 'verse', 'prose' or '{SPEAKER_OF}NAME'")
    if not found[0]:
        raise ValueError(f"the text has no {name}")
    return found


def of_speaker(text: str, speaker: str) -> tuple[str, str]:
    """One speaker's speeches, and all others'."""
    return _parted(text, lambda speech: speech.speaker == speaker)


def of_form(text: str, verse: bool) -> tuple[str, str]:
    """The speeches in verse and those in prose, or the other way round; speeches of one line are in neither."""
    return _parted(text, lambda speech: None if speech.verse is None else speech.verse is verse)


def _parted(text: str, belongs: Callable[[Speech], bool | None]) -> tuple[str, str]:
    found = [(belongs(speech), speech.text) for speech in speeches(text)]
    return tuple("\n\n".join(words for wanted, words in found if wanted is side) for side in (True, False))  # type: ignore[return-value]
