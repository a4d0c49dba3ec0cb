"""The pre-flight report tells a checkpoint that reads its text from one that does not."""

import pytest
import torch

from interp_core import checkpoints, corpora, lessons, preflight, samples, training
from interp_core.checkpoints import Checkpoint
from interp_core.model import GPT
from interp_core.plans import Recipe
from interp_core.tokenizers import CharTokenizer
from interp_core.training import Run
from tests.conftest import ROOT, SMALL

TEXT = "abcdefghijk" * 600  # the next character is certain, the frequencies say nothing


@pytest.fixture(scope="module")
def model() -> GPT:
    run = Run(GPT(SMALL), Recipe(steps=250, batch=16, dropout=0.0))
    list(training.train(run, lessons.of_text("text", TEXT, SMALL.context)))
    return run.model


def examined(checkpoint: Checkpoint, text: corpora.Text) -> preflight.Preflight:
    return preflight.report(checkpoint, text, corpora.windows(text.validation, SMALL.context, 32, 0))


def checked(model: GPT, characters: str, text: str = TEXT) -> preflight.Preflight:
    checkpoint = Checkpoint("x", "0" * 64, model, CharTokenizer(characters), "course", (), "a test")
    return examined(checkpoint, corpora.encode("text", text, checkpoint.tokenizer))


def noisy(seed: int) -> str:
    """A text with pairs that tell a little and frequencies that tell some."""
    tokens = torch.multinomial(
        torch.arange(1.0, 12), 20_000, replacement=True, generator=torch.Generator().manual_seed(seed)
    )
    return "".join("abcdefghijk"[t] for t in tokens)


def test_a_model_on_its_own_text_is_healthy(model: GPT) -> None:
    # Counts are certain here too, so the model cannot beat them: what it must beat is the frequencies.
    found = checked(model, "abcdefghijk")
    assert found.healthy
    assert found.losses.set_index("predictor").loc["this model", "nats"] < 0.5


def test_a_vocabulary_in_another_order_is_diagnosed(model: GPT) -> None:
    found = checked(model, "kbcdefghija"[::-1])
    assert not found.healthy
    assert "vocabulary is in another order" in found.verdict


def test_an_untrained_model_is_diagnosed() -> None:
    found = checked(GPT(SMALL), "abcdefghijk", noisy(0))
    assert not found.healthy
    assert "untrained" in found.verdict


def test_own_samples_give_no_clean_bill() -> None:
    """Nothing can beat a model on what it wrote itself, an untrained one neither."""
    untrained = GPT(SMALL)
    checkpoint = Checkpoint("x", "0" * 64, untrained, CharTokenizer("abcdefghijk"), "course", (), "a test")
    text = corpora.from_windows(corpora.OWN_SAMPLES, samples.own_windows(untrained, 200, 0))
    found = examined(checkpoint, text)
    assert found.healthy is None
    assert "only a text can test it" in found.verdict


def test_losses_stand_beside_what_must_be_beaten(model: GPT) -> None:
    losses = checked(model, "abcdefghijk", noisy(0)).losses.set_index("predictor")
    assert list(losses.index) == ["this model", "bigram counts", "unigram counts", "uniform"]
    assert losses.loc["uniform", "bits"] == pytest.approx(3.459, abs=1e-3)  # log2 of 11
    assert losses.loc["unigram counts", "nats"] == pytest.approx(2.208, abs=0.1)  # the entropy of 1/66, 2/66, …
    assert (losses["low"] <= losses["nats"]).all()
    assert (losses["nats"] <= losses["high"]).all()


def test_the_facts_name_their_sources(model: GPT) -> None:
    facts = checked(model, "abcdefghijk").facts.set_index("what")
    assert facts.loc["vocabulary", "source"] == "a test"
    assert facts.loc["parameters", "value"] == f"{model.count():,}"


@pytest.mark.parametrize("seed", range(3))
def test_another_order_is_told_from_another_text(seed: int) -> None:
    checkpoint = checkpoints.load(ROOT / "checkpoints" / "shakespeare.pt")
    assert isinstance(checkpoint.tokenizer, CharTokenizer)
    letters = list(checkpoint.tokenizer.vocabulary)
    order = torch.randperm(len(letters), generator=torch.Generator().manual_seed(seed)).tolist()
    written = checkpoint.tokenizer.decode(samples.own_windows(checkpoint.model, 200, 0)[:, 1:].flatten().tolist())
    for shuffled, words in ((False, "reads this text"), (True, "probably in another order")):
        named = [letters[i] for i in order] if shuffled else letters
        same = checkpoints.with_vocabulary(checkpoint, checkpoints.Vocabulary(tuple(named), "here"))
        text = corpora.encode("its own words", written, same.tokenizer)
        windows = corpora.windows(text.validation, 64, 16, 0)
        report = preflight.report(same, text, windows)
        assert words in report.verdict
        assert report.healthy is not shuffled


def test_another_text_is_not_taken_for_another_order() -> None:
    checkpoint = checkpoints.load(ROOT / "checkpoints" / "shakespeare.pt")
    text = corpora.load("python-docs", checkpoint.tokenizer, "drop")
    assert not preflight.reordered(checkpoint, text, corpora.windows(text.validation, 64, 16, 0))
