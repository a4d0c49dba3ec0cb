"""Pictures without a browser: what is drawn, and that every figure can be taken away as SVG."""

import base64
import io
import re

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from ui.charts import ablation, ged, induction, probing, sae, shared, train
from ui.charts import atlas as charts
from ui.charts.theme import svg


@pytest.fixture
def table() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "head": ["L0H0", "L0H1"],
            "layer": [0, 0],
            "index": [0, 1],
            "label": ["previous-token", "diffuse"],
            "score": [0.9, 0.1],
            "relative_entropy": [0.1, 0.8],
            "relative_entropy_low": [0.05, 0.7],
            "relative_entropy_high": [0.15, 0.9],
            "output_share": [0.3, 0.1],
            "output_share_low": [0.2, 0.05],
            "output_share_high": [0.4, 0.15],
            "output_norm": [3.0, 1.0],
            "quiet": [False, False],
        }
    )


def pattern(length: int = 6) -> np.ndarray:
    return np.tril(np.ones((length, length), dtype=np.float32)) / np.arange(1, length + 1, dtype=np.float32)[:, None]


def hexadecimal(pixel: np.ndarray) -> str:
    return f"#{bytes(pixel.tolist()).hex()}"


def pixels(uri: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1]))))


@pytest.mark.parametrize("dark", [False, True])
def test_the_grid_has_a_picture_and_a_frame_for_each_head(table: pd.DataFrame, dark: bool) -> None:
    drawn = svg(charts.head_grid(np.stack([pattern(), pattern()])[None], table, "L0H0", dark))
    assert drawn.count("<image") == 2
    for colour in ("#D55E00", "#999999"):
        assert colour.lower() in drawn.lower()
    assert re.search(r"previous-token.*diffuse", drawn, re.S)
    assert "induction" not in drawn  # the legend names what occurs


def test_a_tile_is_the_pattern_from_background_to_full_colour() -> None:
    picture = np.zeros((4, 4), dtype=np.float32)
    picture[2, 1] = 1
    for dark, ramp in ((False, charts.LIGHT_RAMP), (True, charts.DARK_RAMP)):
        tile = pixels(charts._tile(picture, dark))
        assert tile.shape == (4, 4, 3)
        assert hexadecimal(tile[0, 0]) == ramp[0]
        assert hexadecimal(tile[2, 1]) == ramp[-1]


def test_a_long_context_is_averaged_down() -> None:
    long = np.zeros((256, 256), dtype=np.float32)
    long[2:4, 0:2] = 1
    tile = pixels(charts._tile(long, dark=False))
    assert tile.shape == (charts.TILE, charts.TILE, 3)
    assert hexadecimal(tile[1, 0]) == charts.LIGHT_RAMP[-1]
    assert (tile[2:] == 255).all()


def test_one_head_has_a_cell_for_every_pair_in_the_past() -> None:
    chart = charts.heat_map(pattern(), ["a", "␣", "'", "\\", "⏎", "b"], dark=False)
    assert len(chart.data) == 6 * 7 // 2
    assert (chart.data["key"] <= chart.data["query"]).all()
    drawn = svg(chart)
    for label in ("␣", "⏎", "\\", "the character that looks", "the character looked at"):
        assert label in drawn


def test_positions_keep_their_numbers_when_a_part_is_shown() -> None:
    chart = charts.heat_map(pattern(), None, dark=True, first=40)
    assert set(chart.data["query_place"]) == set(range(40, 46))
    assert ">45<" in svg(chart)


def test_a_profile_shows_every_interval() -> None:
    profile = pd.DataFrame({"offset": range(30), "attention": 0.1, "low": 0.05, "high": 0.2})
    drawn = svg(charts.offset_profile(profile, most=16))
    assert drawn.count('aria-roledescription="bar"') == 16
    assert drawn.count('aria-roledescription="rule mark"') == 16


def test_sharpness_shows_both_intervals_and_names_what_stands_out(table: pd.DataFrame) -> None:
    drawn = svg(charts.sharpness(table, "L0H0"))
    assert drawn.count('aria-roledescription="rule mark"') == 4
    assert "L0H0" in drawn
    quiet = svg(charts.sharpness(table.assign(quiet=[False, True]), None))
    assert ">L0H1<" in quiet


def test_the_lines_of_a_ranking_are_named_within_the_frame() -> None:
    """At the foot of whatever height the page leaves: a fixed height is cut off where the page makes the chart fit."""
    table = pd.DataFrame({"part": ["L0H0", "L0H1"], "effect": [0.5, 0.1], "low": [0.4, 0.0], "high": [0.6, 0.2]})
    chart = ablation.ranking(table, "L0H0", "nats", {"bigram counts": 1.0, "uniform": 2.0})
    drawn = svg(chart)
    assert "bigram counts" in drawn
    assert "uniform" in drawn
    assert chart.to_dict()["layer"][-1]["encoding"]["y"] == {"value": "height"}


def test_the_plane_is_not_filled_with_noise() -> None:
    """Heads that match nothing lie together at the left, whatever their spread."""
    table = pd.DataFrame(
        {
            "head": ["L0H0", "L1H0"],
            "role": ["previous-token", "neither"],
            "matched_score": [0.0, 0.004],
            "matched_score_low": [-0.001, 0.002],
            "matched_score_high": [0.001, 0.006],
            "copying_score": [0.1, -0.2],
            "previous_token_score": [0.9, 0.1],
        }
    )
    joins = pd.DataFrame(columns=["lower", "upper", "x", "y", "x2", "y2", "k_composition", "random_high"])
    picture = svg(induction.plane(table, joins, "L1H0"))
    assert "L0H0" in picture
    assert "L1H0" in picture
    assert "0.5" in picture
    joined = pd.DataFrame([["L0H0", "L1H0", 0.0, 0.1, 0.004, -0.2, 0.3, 0.1]], columns=joins.columns)
    assert svg(induction.plane(table, joined, None)).count("<line") > picture.count("<line")


def test_every_figure_of_the_induction_page_can_be_taken_away() -> None:
    conditions = pd.DataFrame(
        [(c, i, 1.0 + i, 0.9 + i, 1.1 + i) for c in induction.CONDITIONS for i in range(3)],
        columns=["condition", "position", "loss", "low", "high"],
    )
    picture = svg(induction.by_position(conditions, 4.17))
    assert all(name in picture for name in (*induction.CONDITIONS, "guessing, ln V = 4.17"))
    around = pd.DataFrame(
        {"head": "L1H1", "offset": [0, 1], "attention": [0.0, 0.5], "low": [0, 0.4], "high": [0, 0.6]}
    )
    assert "L1H1" in svg(induction.around_match(around))
    left = pd.DataFrame(
        {"name": ["a", "b"], "kind": ["candidate", "control"], "gain": [0, 3], "low": [0, 2], "high": [1, 4]}
    )
    assert "control" in svg(induction.without(left, 3.0))
    effects = pd.DataFrame({"name": ["difference"], "effect": [0.1], "low": [0.0], "high": [0.2]})
    assert "difference" in svg(induction.differences(effects))
    steps = pd.DataFrame(
        {
            "step": [30, 100, 800],
            "copying_gain_nats": [0.0, 1.0, 3.0],
            "copying_gain_nats_low": [0.0, 0.9, 2.9],
            "copying_gain_nats_high": [0.1, 1.1, 3.1],
            "best_match": [0.0, 0.2, 0.5],
            "best_previous": [0.1, 0.5, 0.9],
        }
    )
    picture = svg(induction.emergence(steps))
    assert "copying gain, nats" in picture
    assert "share of attention" in picture


def test_every_figure_of_the_train_page_can_be_taken_away() -> None:
    steps = [1, 10, 100]
    losses = {
        f"{name}_loss{end}": [3.0, 2.0, 1.0] for name in ("training", "validation") for end in ("", "_low", "_high")
    }
    curves = pd.DataFrame({"step": steps, "batch_loss": [3.1, 2.1, 1.1], **losses})
    picture = svg(train.curves(curves, {"guessing 4.17": 4.17}, "bits/char"))
    assert all(words in picture for words in (*train.LINES, "guessing 4.17", "loss, bits/char"))
    scores = {
        f"{name}{end}": [0.1, 0.2, 0.9, 0.1, 0.1, 0.35] for name in train.ATTENTION for end in ("", "_low", "_high")
    }
    heads = pd.DataFrame(
        {
            "step": steps * 2,
            "head": ["L0H0"] * 3 + ["L1H1"] * 3,
            "layer": [0] * 3 + [1] * 3,
            "copying_score": 0.5,
            **scores,
        }
    )
    picture = svg(train.formations(heads))
    assert all(title in picture for title in train.PANELS.values())
    assert picture.count(">L0H0<") == 2, "the best head of each attention score is named"
    assert ">L1H1<" not in picture
    assert ">L0H0<" not in svg(train.formation(heads[heads["step"] < 100], "matched_score"))
    bars = pd.DataFrame(
        {
            "name": ["counts", "GPT: x"],
            "bits": [3.6, 2.2],
            "low": [3.5, 2.1],
            "high": [3.7, 2.3],
            "kind": ["counts", "GPT"],
            "shown": ["3.60 ±0.10", "2.20 ±0.10"],
        }
    )
    picture = svg(train.bits(bars))
    assert all(words in picture for words in ("GPT: x", "2.20 ±0.10"))
    assert picture.count('aria-roledescription="rule mark"') == 2


def test_every_figure_of_the_ged_page_can_be_taken_away() -> None:
    rng = np.random.default_rng(0)
    positive = rng.random(500) < 0.3
    picture = svg(
        shared.densities(
            np.where(positive, 4, 1) * rng.normal(size=500), positive, ("vowel", "the rest"), "x", 300, zero=True
        )
    )
    assert all(words in picture for words in ("vowel", "the rest", "density"))
    components = pd.DataFrame({"component": [1, 2], "ratio": [5.0, 1.1], "low": [0.9, 0.8], "high": [1.4, 1.2]})
    assert svg(ged.spectrum(components)).count('aria-roledescription="point"') == 2
    rows = [
        (size, "GED", where, value, value / 2, value * 2)
        for size in (16, 64)
        for where, value in (("in sample", 200.0), ("held out", 1.0))
    ]
    few = pd.DataFrame(rows, columns=["size", "method", "where", "value", "low", "high"])
    picture = svg(ged.trap(few, "variance ratio", 16, 32))
    assert all(words in picture for words in ("dimensions: 32", "held out", "in sample"))
    layers = pd.DataFrame(
        {
            "site": ["embed", "resid_post.0"],
            "value": [2.0, 3.0],
            "low": [1.5, 2.5],
            "high": [2.5, 3.5],
            "null_low": [0.9, 0.9],
            "null_high": [1.2, 1.2],
        }
    )
    for figure in ("variance ratio, held out", "separation of means, held out"):
        assert "resid_post.0" in svg(ged.profile(layers, figure))
    effects = pd.DataFrame({"token": ["a", "b"], "effect": [0.5, -0.4], "low": [0.4, -0.5], "high": [0.6, -0.3]})
    assert "effect on the logit" in svg(shared.logits(effects, "component", 300))


def test_the_figures_of_probes() -> None:
    path = pd.DataFrame(
        {"neurons": [1, 4, 20], "value": [0.6, 0.8, 0.9], "low": [0.55, 0.7, 0.85], "high": [0.7, 0.9, 0.95]}
    )
    both = pd.concat([path.assign(name=probing.PROBE), path.assign(name=probing.RANDOM)])
    picture = svg(probing.sparsity(both, "AUC", {"elbow": 4}))
    assert all(words in picture for words in ("neurons that the probe reads", "elbow", probing.PROBE, probing.RANDOM))
    assert svg(probing.sparsity(path.assign(name=probing.SURFACE), "accuracy", {}, "inputs")).count(
        "inputs that the probe"
    )
    kept = pd.DataFrame({"neuron": [7, 3], "frequency": [1.0, 0.4], "weight": [0.5, -0.1]})
    picture = svg(probing.stability(kept, 0.8))
    assert picture.count("#0072B2") == 1, "one neuron is above the threshold"
    sites = path.assign(site=["embed", "resid_post.0", "resid_post.1"], name=probing.UNTRAINED)
    assert "resid_post.1" in svg(probing.layers(sites, "AUC"))
    effects = pd.DataFrame(
        {"where": ["vowel", "the rest"], "value": [0.2, 0.0], "low": [0.1, -0.1], "high": [0.3, 0.1]}
    )
    random = pd.DataFrame({"where": ["vowel", "the rest"] * 3, "value": np.arange(6) / 100})
    picture = svg(shared.effects(effects, random, 200))
    assert "loss added, nats a token" in picture
    values = np.random.default_rng(0).normal(size=300)
    picture = svg(shared.densities(values, values > 0.5, ("vowel", "the rest"), "neuron 7", 300))
    assert all(words in picture for words in ("vowel", "the rest", "neuron 7"))
    assert "density" in svg(shared.densities(np.zeros(50), np.arange(50) < 9, ("a", "b"), "a dead neuron", 300))


def test_the_figures_of_autoencoders() -> None:
    records = pd.DataFrame(
        {"part": ["autoencoder"] * 2 + ["second seed"] * 2, "step": [100, 200] * 2, "recovered": [0.9, 0.95] * 2}
    )
    assert "second seed" in svg(sae.curves(records, "recovered", "cross-entropy recovered"))
    points = pd.DataFrame(
        {
            "name": ["TopK", "neurons"],
            "active": [16.0, 4.0],
            "value": [0.98, 0.4],
            "low": [0.97, 0.3],
            "high": [0.99, 0.5],
        }
    )
    picture = svg(sae.frontier(points, "variance explained"))
    assert all(words in picture for words in ("TopK", "neurons", "active parts a token"))
    rows = {
        "feature": [3, 8],
        "density": [0.01, 0.1],
        "f1": [0.9, 0.1],
        "explanation": ["vowel", ""],
        "kind": ["comes back", "this seed only"],
    }
    picture = svg(sae.features(pd.DataFrame(rows), 3))
    assert "F1 of its best category" in picture
    assert picture.count("#CC79A7") == 1, "the selected one has a ring"
    assert svg(sae.features(pd.DataFrame(rows).head(0), 3)), "nothing is left by the search"
    assert "where it fires" in svg(sae.activations(np.array([0.0, 1.0, 2.5, 0.0])))
    effects = pd.DataFrame(
        {"where": ["fires", "elsewhere"], "value": [0.2, 0.0], "low": [0.1, -0.1], "high": [0.3, 0.1]}
    )
    assert "loss added" in svg(shared.effects(effects, pd.DataFrame({"where": "fires", "value": [0.05, 0.1]}), 170))
    assert "effect on the logit" in svg(
        shared.logits(pd.DataFrame({"token": ["a", "b"], "effect": [0.5, -0.4]}), "feature", 260)
    )


def test_the_figures_of_tuning_hold_their_numbers() -> None:
    from ui.charts import tuning

    table = pd.DataFrame({
        "variant": ["rank 1", "rank 2", "all weights"], "kind": ["low rank", "low rank", "full"], "parameters": [10, 20, 500],
        "lr": [1e-3] * 3, "gain_nats": [0.1, 0.2, 0.3], "gain_nats_low": [0.0, 0.1, 0.2], "gain_nats_high": [0.2, 0.3, 0.4],
        "gain_seeds": [[0.1, 0.12], [0.19, 0.21], [0.3]],
    })  # fmt: skip
    spec = tuning.quality(table, "gain_nats", "gain", seeds=True).to_dict()
    rows = [len(data) for data in spec["datasets"].values()]
    assert sorted(rows) == [1, 3, 5]
    frontier = pd.DataFrame({"n": [1, 2], "reward": [0.0, 1.0], "kl": [0.0, 0.2], "bound": [0.0, 0.19]})
    for end in ("_low", "_high"):
        frontier[f"reward{end}"], frontier[f"kl{end}"] = frontier["reward"], frontier["kl"]
    tilted = pd.DataFrame(
        {
            "beta": [1.0, 0.5],
            "reward": [0.5, 2.0],
            "kl": [0.1, 9.0],
            "effective": [300.0, 2.0],
            "trusted": [True, False],
        }
    )
    spec = tuning.frontier(frontier, tilted, 2, 0.1).to_dict()
    assert [0.1] in [[row["kl"] for row in data if "beta" in row] for data in spec["datasets"].values()], (
        "cut where best-of-n ends"
    )
    heads = tuning.heads(np.array([[0.1, 0.2], [0.3, 0.4]]), "rank 1").to_dict()
    assert sorted(row["change"] for row in next(iter(heads["datasets"].values()))) == [0.1, 0.2, 0.3, 0.4]
