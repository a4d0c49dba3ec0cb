"""The MLP of 2003, and the table that it stands in."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from interp_core import baselines, bengio, bits_per_char, corpora, run_files
from interp_core.tokenizers import CharTokenizer
from tests.conftest import random_model


def drawn(length: int = 20_000) -> torch.Tensor:
    """Tokens of which each is told by the one three before it: counts of pairs know nothing, three tokens back all."""
    tokens = torch.randint(5, (length,), generator=torch.Generator().manual_seed(0))
    for i in range(3, length):
        tokens[i] = (tokens[i - 3] + tokens[i] // 4) % 5  # four of five times the same, else one more
    return tokens


def test_logits_are_those_of_the_paper() -> None:
    model = bengio.new(7, context=3, width=4, hidden=6)
    generator = torch.Generator().manual_seed(1)
    for weight in vars(model).values():
        weight.copy_(torch.randn(weight.shape, generator=generator))
    words = torch.tensor([2, 5, 1])
    x = torch.cat([model.C[w] for w in words])
    by_hand = model.b + model.W.T @ x + model.U.T @ torch.tanh(model.d + model.H.T @ x)
    torch.testing.assert_close(bengio.logits(model, words[None])[0], by_hand)
    assert model.count() == 7 * 4 + 12 * 6 + 6 + 6 * 7 + 7 + 12 * 7
    windows = torch.tensor([[2, 5, 1, 6, 0]])
    expected = F.cross_entropy(by_hand[None], torch.tensor([6])).item()
    losses = bengio.losses(model, windows)
    assert losses.shape == (1, 2)
    assert losses[0, 0].item() == pytest.approx(expected, abs=1e-5)


def test_it_finds_what_lies_three_back_and_an_untrained_one_guesses() -> None:
    tokens = drawn()
    windows = tokens[-4000:].view(-1, 20)
    assert bengio.losses(bengio.new(5), windows).mean().item() == pytest.approx(math.log(5), abs=1e-5)
    *_, (step, loss, model) = bengio.train(tokens[:-4000], 5, steps=200)
    floor = -(0.8 * math.log(0.8) + 0.2 * math.log(0.2))
    assert step == 200
    assert loss == pytest.approx(floor, abs=0.05)
    assert bengio.losses(model, windows).mean().item() == pytest.approx(floor, abs=0.05)
    assert baselines.bigram_losses(tokens[:-4000], windows, 5).mean().item() > math.log(5) - 0.01
    again = [loss for _, loss, _ in bengio.train(tokens[:-4000], 5, steps=30, every=10)]
    assert again == [loss for _, loss, _ in bengio.train(tokens[:-4000], 5, steps=30, every=10)]


def test_a_file_comes_back_and_others_are_refused(tmp_path: Path) -> None:
    model, place = bengio.new(5, seed=3), tmp_path / "m.safetensors"
    bengio.write(place, model, {"text": "x", "seconds": 1.5})
    read, papers = bengio.load(place)
    assert papers == {"model": "bengio-2003", "text": "x", "seconds": 1.5}
    for name, weight in vars(model).items():
        assert torch.equal(getattr(read, name), weight)
    save_file({"C": torch.zeros(2)}, tmp_path / "other.safetensors")
    (tmp_path / "none.safetensors").write_bytes(b"no")
    for name, words in (("other", "holds no Bengio model"), ("none", "is no safetensors file")):
        with pytest.raises(ValueError, match=words):
            bengio.load(tmp_path / f"{name}.safetensors")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "t.txt").write_text("abc " * 500)
    out = tmp_path / "m.safetensors"
    assert bengio.main(["--file", str(tmp_path / "t.txt"), "--out", str(out), "--steps", "20"]) == 0
    model, papers = bengio.load(out)
    assert papers["text"] == "t.txt"
    assert model.b.shape == (4,)
    assert run_files.records(out)[-1]["step"] == 20
    assert bengio.main(["--file", str(tmp_path / "none.txt"), "--out", str(out)]) == 1
    assert "No such file" in capsys.readouterr().err


def test_every_row_has_the_same_targets() -> None:
    characters = "".join("abcde"[t] for t in drawn())
    tokenizer = CharTokenizer("abcde")
    text = corpora.encode("x", characters, tokenizer)
    plain, more = corpora.all_windows(text, 12), corpora.all_windows(text, 12, before=2)
    assert torch.equal(plain, more[:, 2:])
    whole = torch.cat([text.train, text.validation])
    assert torch.equal(more[0, :2], whole[len(text.train) - 2 : len(text.train)])
    *_, (_, _, mlp) = bengio.train(text.train, 5, steps=150)
    model = random_model()
    assert model.config.context == 12
    gpt = bits_per_char.of_gpt("x", model, text, 1.0)
    rows = [*bits_per_char.of_counts(text, 5, 12), bits_per_char.of_bengio(mlp, text, 12, 2.0)]
    assert all(len(row.windows) == len(plain) == len(gpt.windows) for row in rows)
    uniform, unigram, bigram, bengio_row = (row.bits.estimate for row in rows)
    assert uniform == pytest.approx(math.log2(5))
    assert abs(unigram - uniform) < 0.05
    assert bengio_row < bigram - 0.5
    assert [row.parameters for row in rows] == [0, 5, 25, mlp.count()]
    assert gpt.parameters == model.count()
    by_hand = baselines.bigram_losses(text.train, plain, 5).mean(1).numpy() / np.log(2)
    assert rows[2].windows == pytest.approx(by_hand)


def test_in_sample_pairs_are_the_conditional_entropy() -> None:
    tokens = torch.tensor([0, 1, 0, 1, 0, 0])  # 0 is followed by 1, 1, 0; 1 by 0, 0
    expected = (3 * (math.log(3) - 2 / 3 * math.log(2)) + 0) / 5
    assert baselines.bigram_in_sample(tokens, 2) == pytest.approx(expected)


@pytest.mark.slow
def test_bits_per_char_of_shakespeare(shakespeare: str) -> None:
    """Figures measured independently: 4.83, 3.581 held out, 3.538 in sample; the course's MLP has 2.86, its GPT 2.19."""
    from interp_core import checkpoints
    from tests.conftest import ROOT

    checkpoint = checkpoints.load(ROOT / "checkpoints" / "shakespeare.pt")
    text = corpora.encode("s", shakespeare, checkpoint.tokenizer)
    rows = bits_per_char.of_counts(text, 65, 64)
    *_, (_, _, mlp) = bengio.train(text.train, 65, steps=1000)  # a quarter of what the page trains
    rows += [bits_per_char.of_bengio(mlp, text, 64, 0.0), bits_per_char.of_gpt("s", checkpoint.model, text, 0.0)]
    uniform, unigram, bigram, bengio_row, gpt = (row.bits.estimate for row in rows)
    assert uniform == pytest.approx(math.log2(65))
    assert unigram == pytest.approx(4.83, abs=0.005)
    assert bigram == pytest.approx(3.581, abs=0.005)
    assert baselines.bigram_in_sample(torch.cat([text.train, text.validation]), 65) / math.log(2) == pytest.approx(
        3.538, abs=0.001
    )
    assert bengio_row <= 2.86
    assert gpt <= 2.19
    assert all(better.bits.high < worse.bits.low for worse, better in pairwise(rows))
