import pytest
import torch

from interp_core import corpora, lessons, synthetic
from interp_core.lessons import Unteachable
from interp_core.tokenizers import CharTokenizer

TEXT = "the quick brown fox jumps over the lazy dog. " * 200


def test_a_text_is_split_and_its_parts_do_not_meet() -> None:
    lesson = lessons.of_text("fox", TEXT, 16)
    tokens = CharTokenizer.of_text(TEXT).encode(TEXT)
    cut = int(0.9 * len(tokens))
    assert lesson.vocabulary == tuple(sorted(set(TEXT)))
    assert torch.equal(lesson.training_tokens, tokens[:cut])
    assert lesson.papers["text"]["sha256"] == corpora.encode("fox", TEXT, CharTokenizer.of_text(TEXT)).sha256
    assert lesson.validation.shape == (52, 17)  # as many as there are, 64 at most
    assert lesson.training.shape == (64, 17)
    for windows, part in ((lesson.validation, tokens[cut:]), (lesson.training, tokens[:cut])):
        starts = {tuple(row.tolist()) for row in part.unfold(0, 17, 1)}
        assert all(tuple(row.tolist()) in starts for row in windows)


def test_batches_are_seeded_by_step_and_stay_in_the_training_part() -> None:
    numbered = lessons.of_text("numbers", "".join(chr(33 + i % 90) for i in range(9000)), 16)
    one, two = numbered.batch(3, 8, 0), numbered.batch(3, 8, 0)
    assert torch.equal(one, two)
    assert not torch.equal(one, numbered.batch(4, 8, 0))
    assert not torch.equal(one, numbered.batch(3, 8, 1))
    assert one.shape == (8, 17)
    assert torch.equal((one[:, 1:] - one[:, :-1]) % 90, torch.ones(8, 16, dtype=torch.long))


def test_sequences_are_fresh_at_every_step_and_held_out_ones_are_not_among_them() -> None:
    lesson = lessons.of_sequences("successors", 9, 12)
    assert torch.equal(lesson.batch(3, 4, 0), lesson.batch(3, 4, 0))
    assert not torch.equal(lesson.batch(3, 4, 0), lesson.batch(4, 4, 0))
    assert lesson.vocabulary is None
    assert lesson.training_tokens is None
    assert torch.equal(lesson.final, synthetic.successors(9, 13, lessons.HELD_OUT, 0))
    assert not torch.equal(lesson.training, lesson.validation)


def test_seeds_of_steps_and_purposes_never_meet() -> None:
    seeds = {lessons.step_seed(seed, step, stream) for seed in range(3) for step in range(100) for stream in range(3)}
    assert len(seeds) == 900


def test_a_text_that_is_too_short_or_too_various_is_refused_with_what_it_needs() -> None:
    with pytest.raises(Unteachable, match=r"short has 100 characters; a context of 64 needs at least 5,850"):
        lessons.of_text("short", "a" * 100, 64)
    least = "ab" * 765
    assert len(lessons.of_text("just", least, 16).validation) >= lessons.FEWEST_WATCHED
    with pytest.raises(Unteachable, match="just has 1,529"):
        lessons.of_text("just", least[1:], 16)
    with pytest.raises(Unteachable, match="5,000 distinct characters, more than the 4,096"):
        lessons.of_text("many", "".join(chr(0x4E00 + i % 5000) for i in range(10_000)), 16)
