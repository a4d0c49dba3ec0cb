"""The atlas of a model whose heads are wired by hand, and of models that know nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from interp_core import atlas, corpora, head_scores
from interp_core.model import GPT, ModelConfig, forward
from tests.conftest import SMALL, random_model

LENGTH = 16
WIRED = ModelConfig(
    d_vocab=20, context=LENGTH, d_model=3 * LENGTH + 20, heads=4, layers=1, d_head=LENGTH, d_mlp=0, norm="none",
    out_bias=False, score_scale=1.0,
)  # fmt: skip
SHARPLY = 30.0  # scores large enough that softmax puts all on one place


def wired() -> GPT:
    """Four heads over one-hot positions: previous token, self, first token, and one that looks nowhere in particular."""
    model = GPT(WIRED)
    for parameter in model.parameters():
        parameter.zero_()
    model.pos.weight[:, :LENGTH] = torch.eye(LENGTH)
    model.tok.weight[:, 3 * LENGTH :] = torch.eye(20)
    attn = model.block(0).attn
    query, key = (w.weight.unflatten(0, (4, LENGTH)) for w in (attn.query, attn.key))
    rows = torch.arange(LENGTH)
    query[:3, :, :LENGTH] = SHARPLY * torch.eye(LENGTH)
    key[0, (rows + 1) % LENGTH, rows] = 1  # a key answers to the position after it
    key[1, rows, rows] = 1
    key[2, :, 0] = 1  # position 0 answers to every query
    attn.value.weight.unflatten(0, (4, LENGTH))[:, 0, 3 * LENGTH :] = 1
    strengths = torch.tensor([1.0, 2.0, 1e-3, 1.0])
    attn.proj.weight.unflatten(1, (4, LENGTH))[LENGTH, :, 0] = strengths
    return model


@pytest.fixture(scope="module")
def windows() -> torch.Tensor:
    tokens = torch.randint(20, (40 * (LENGTH + 1),), generator=torch.Generator().manual_seed(0))
    return corpora.windows(tokens, LENGTH, 24, seed=0)


@pytest.fixture(scope="module")
def measured(windows: torch.Tensor) -> atlas.HeadAtlas:
    return atlas.head_atlas(wired(), windows)


def test_planted_heads_are_found_and_named(measured: atlas.HeadAtlas) -> None:
    labels = atlas.label_heads(measured)
    assert list(labels.table["label"]) == ["previous-token", "self", "first-token sink", "diffuse"]
    assert list(labels.table["stability"]) == [1, 1, 1, 1]
    assert (labels.named.estimate, labels.named.low, labels.named.high) == (3, 3, 3)


def test_planted_scores_are_exact(measured: atlas.HeadAtlas) -> None:
    table = measured.table.set_index("head")
    assert table.loc["L0H0", "previous_token_score"] == pytest.approx(1, abs=1e-6)
    assert table.loc["L0H1", "self_score"] == pytest.approx(1, abs=1e-6)
    assert table.loc["L0H2", "first_token_score"] == pytest.approx(1, abs=1e-6)
    assert table.loc["L0H3", "relative_entropy"] == pytest.approx(1, abs=1e-5)
    assert table.loc["L0H0", "output_norm"] == pytest.approx(1, abs=1e-5)  # each value is 1, times the planted strength
    assert table.loc["L0H1", "output_norm"] == pytest.approx(2, abs=1e-5)
    assert table.loc["L0H1", "output_share"] == pytest.approx(2 / np.sqrt(2), abs=1e-5)  # two one-hots in the stream


def test_a_sharp_head_that_says_nothing_is_flagged(measured: atlas.HeadAtlas) -> None:
    assert list(atlas.sharp_but_quiet(measured.table)) == [False, False, True, False]


def test_a_head_that_always_looks_seven_back_is_no_induction_head(windows: torch.Tensor) -> None:
    """On repeats of 8 it attends to the token after the match, but it does so everywhere: the text tells."""
    model = wired()
    key = model.block(0).attn.key.weight.unflatten(0, (4, LENGTH))
    key[0] = 0
    rows = torch.arange(LENGTH - 7)
    key[0, rows + 7, rows] = 1
    measured = atlas.head_atlas(model, windows)
    assert measured.table[atlas.PREFIX].iloc[0] == pytest.approx(1, abs=1e-5)
    assert atlas.label_heads(measured).table["label"].iloc[0] == "fixed offset"


def test_a_head_that_matches_on_repeats_only_is_named_induction(measured: atlas.HeadAtlas) -> None:
    repeats = measured.repeat_scores.copy()
    repeats[:, 3] = 0.8  # the head that looks nowhere in particular on text
    table = measured.table.assign(**{atlas.PREFIX: repeats.mean(0)})
    labels = atlas.label_heads(replace(measured, repeat_scores=repeats, table=table)).table
    assert list(labels["label"]) == ["previous-token", "self", "first-token sink", "induction"]


@pytest.mark.parametrize("distance", [2, 8])
def test_a_planted_fixed_offset_is_named_with_its_distance(distance: int, windows: torch.Tensor) -> None:
    model = wired()
    key = model.block(0).attn.key.weight.unflatten(0, (4, LENGTH))
    key[0] = 0
    rows = torch.arange(LENGTH - distance)
    key[0, rows + distance, rows] = 1
    query = model.block(0).attn.query.weight.unflatten(0, (4, LENGTH))
    query[1:3] = 0  # the other heads look nowhere
    measured = atlas.head_atlas(model, windows)
    assert atlas.label_heads(measured).table["label"].iloc[0] == "fixed offset"
    assert measured.table["fixed_offset"].iloc[0] == distance
    best = atlas.standout(measured)
    assert (best.head, best.label, best.offset) == ("L0H0", "fixed offset", distance)
    assert best.score.estimate == pytest.approx(1, abs=1e-5)


def test_untrained_models_have_no_named_heads(windows: torch.Tensor) -> None:
    control = atlas.untrained_control(WIRED, windows)
    assert len(control) == 5 * WIRED.heads
    summary = atlas.summarise_control(control)
    assert list(summary["seed"]) == [0, 1, 2, 3, 4]
    assert (summary["named"] == 0).all()
    assert summary["previous_token_score"].max() == control["previous_token_score"].max() < 0.25
    assert (atlas.summarise_control(control, threshold=0.05)["named"] == WIRED.heads).all()


def test_the_threshold_decides(measured: atlas.HeadAtlas, windows: torch.Tensor) -> None:
    untrained = atlas.head_atlas(GPT(SMALL), windows[:, : SMALL.context + 1] % SMALL.d_vocab)
    assert atlas.label_heads(untrained, 0.05).named.estimate == SMALL.heads * SMALL.layers
    assert atlas.label_heads(measured, 1.01).named.estimate == 0


def test_the_head_that_stands_out_is_reported_on_other_windows(windows: torch.Tensor) -> None:
    """On noise the best of many flatters itself on the windows that chose it, and not on the others."""
    flattered, honest = [], []
    for seed in range(20):
        measured = atlas.head_atlas(
            random_model(seed=seed, size=0.3), windows[:, : SMALL.context + 1] % SMALL.d_vocab, seed
        )
        best = atlas.standout(measured)
        index = list(measured.table["head"]).index(best.head)
        if best.score_name == atlas.PREFIX:
            chosen = measured.repeat_scores[0::2, index].mean()
        elif best.score_name == atlas.FIXED_OFFSET:
            chosen = measured.profiles[0::2, index, best.offset].mean()
        else:
            chosen = measured.window_scores[0::2, index, list(atlas.TEXT_SCORES).index(best.score_name)].mean()
        flattered.append(chosen)
        honest.append(best.score.estimate)
        assert best.score.low <= best.score.estimate <= best.score.high
    assert np.mean(flattered) > np.mean(honest)


def test_the_table_is_the_mean_over_windows(windows: torch.Tensor) -> None:
    """Against the scores of each window alone, one forward pass each."""
    model, texts = random_model(), windows[:6, : SMALL.context + 1] % SMALL.d_vocab
    measured = atlas.head_atlas(model, texts)
    patterns = torch.stack([atlas.patterns_of(model, row[:-1]) for row in texts])  # [window layer head query key]
    torch.testing.assert_close(measured.patterns, patterns.mean(0), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(measured.spread, patterns.std(0, correction=0), atol=1e-3, rtol=1e-2)
    torch.testing.assert_close(torch.from_numpy(measured.profiles), head_scores.offset_profile(patterns).flatten(1, 2))
    for name in (
        "previous_token_score",
        "self_score",
        "first_token_score",
        "entropy",
        "relative_entropy",
        "mean_distance",
    ):
        given = head_scores.row_entropy(patterns) if "entropy" in name else patterns
        expected = getattr(head_scores, name)(given).mean(0).flatten()
        np.testing.assert_allclose(measured.table[name], expected, atol=1e-6)
    assert (measured.table["entropy_low"] <= measured.table["entropy"]).all()
    assert (measured.table["entropy"] <= measured.table["entropy_high"]).all()


def test_small_batches_change_nothing(windows: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    model, texts = random_model(), windows[:, : SMALL.context + 1] % SMALL.d_vocab
    whole = atlas.head_atlas(model, texts)
    monkeypatch.setattr(atlas, "BATCH_TOKENS", 5 * SMALL.context)
    told: list[float] = []
    parts = atlas.head_atlas(model, texts, progress=told.append)
    assert told == pytest.approx([5 / 24, 10 / 24, 15 / 24, 20 / 24, 1])
    torch.testing.assert_close(whole.patterns, parts.patterns)
    np.testing.assert_allclose(whole.table.iloc[:, 3:], parts.table.iloc[:, 3:], atol=1e-5)


def test_prefix_matching_is_measured_on_repeats() -> None:
    model = random_model()
    scores = atlas.prefix_matching(model, SMALL.context, sequences=5, seed=0)
    from interp_core import synthetic

    tokens = synthetic.repeats(SMALL.d_vocab, SMALL.context, 5, 0)
    pattern = forward(model, tokens, ["pattern.1"])["pattern.1"]
    expected = sum(pattern[:, :, 6 + i, 1 + i] for i in range(6)) / 6
    np.testing.assert_allclose(scores[:, 2:4], expected, atol=1e-6)


@pytest.mark.parametrize(("count", "length", "message"), [(1, 8, "at least 2 windows"), (4, 3, "4 or more to tell")])
def test_too_little_to_measure_is_refused(count: int, length: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        atlas.head_atlas(random_model(), torch.zeros(count, length + 1, dtype=torch.long))
