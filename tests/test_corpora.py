import hashlib
from pathlib import Path

import numpy as np
import pooch
import pytest
import torch

from interp_core import corpora
from interp_core.corpora import TextUnavailable
from interp_core.tokenizers import CharTokenizer


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without LOUPE_DATA, without a cache and without a network."""

    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("no network")

    monkeypatch.delenv("LOUPE_DATA", raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda _: tmp_path)
    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", refuse)
    return tmp_path


@pytest.mark.parametrize("name", ["python-docs", "python-source"])
def test_python_texts_need_no_network(name: str, nowhere: Path) -> None:
    assert corpora.is_local(name)
    characters = corpora.read(name)
    assert len(characters) > 400_000
    text = corpora.load(name, CharTokenizer.of_text(characters))
    assert len(text) == len(characters)
    assert len(text.train) == int(0.9 * len(characters))
    assert text.sha256 == hashlib.sha256(characters.encode()).hexdigest()


def test_shakespeare_is_what_it_should_be(shakespeare: str) -> None:
    assert corpora.read("tiny-shakespeare") == shakespeare
    assert len(shakespeare) == 1_115_394
    assert len(set(shakespeare)) == 65


def test_shakespeare_without_a_network_says_what_to_do(nowhere: Path) -> None:
    assert not corpora.is_local("tiny-shakespeare")
    with pytest.raises(TextUnavailable, match="set LOUPE_DATA to that folder"):
        corpora.read("tiny-shakespeare")


def test_another_file_by_that_name_is_refused(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (nowhere / "tinyshakespeare.txt").write_text("To be")
    monkeypatch.setenv("LOUPE_DATA", str(nowhere))
    with pytest.raises(TextUnavailable, match="another file than tiny Shakespeare"):
        corpora.read("tiny-shakespeare")


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="no text is named 'moby-dick'; expected one of tiny-shakespeare, python-docs"):
        corpora.read("moby-dick")


def test_windows_are_disjoint_whole_and_seeded() -> None:
    tokens = torch.arange(1000)
    windows = corpora.windows(tokens, context=9, count=60, seed=1)
    assert windows.shape == (60, 10)
    assert len(set(windows.flatten().tolist())) == 600  # every token at most once
    assert (windows.diff(dim=1) == 1).all()
    assert torch.equal(windows, corpora.windows(tokens, 9, 60, seed=1))
    assert not torch.equal(windows, corpora.windows(tokens, 9, 60, seed=2))
    assert torch.equal(corpora.windows(tokens, 9, 100, seed=5).flatten(), tokens)


def test_more_windows_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match=r"101 windows of 10 tokens .* this text of 1,000 tokens holds 100"):
        corpora.windows(torch.arange(1000), 9, 101, 0)


def test_independent_windows_are_not_cut_by_the_split() -> None:
    samples = torch.arange(7 * 10).view(7, 10)
    text = corpora.from_windows("samples", samples)
    assert torch.equal(corpora.windows(text.validation, 9, 4, seed=0), samples[3:])
    assert torch.equal(text.train, samples[:3].flatten())


def test_odd_characters_are_pointed_out() -> None:
    odd = corpora.odd_characters("abc\n\t " * 9 + "é" * 9 + "\u200b" * 7 + "\r" * 9 + "\ufffd" + "z")
    assert dict(zip(odd["character"], odd["count"], strict=True)) == {"\\r": 9, "z": 1, "\\u200b": 7, "\\ufffd": 1}
    assert list(odd["name"]) == ["no name", "LATIN SMALL LETTER Z", "ZERO WIDTH SPACE", "REPLACEMENT CHARACTER"]
    assert odd["why"].iloc[1] == "occurs 1 times only"


def test_repeats_of_the_training_part_are_found_in_the_held_out_part() -> None:
    rng = np.random.default_rng(0)
    fresh = "".join(rng.choice(list("abcdefgh"), 5000))
    assert corpora.repeated_share(fresh) == 0
    assert corpora.repeated_share("a sentence, " * 500) == 1
    half = fresh[:4500] + fresh[4500:4750] + fresh[:250]
    assert corpora.repeated_share(half) == pytest.approx(0.5, abs=0.1)
