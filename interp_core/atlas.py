"""The attention atlas: what every head of a model does, over many windows at once.

`head_atlas` measures, `label_heads` gives names to what was found and says how far they can be trusted, `standout` and
`untrained_control` make the claim and its control.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp_core import head_scores, synthetic
from interp_core.model import GPT, ModelConfig, Trace, forward
from interp_core.statistics import Interval, bootstrap_means, interval, mean_interval, percentile_interval

# Scores in the order of the table, with their units. All but prefix matching are measured on the windows given;
# prefix matching needs repeated random tokens.
TEXT_SCORES = {
    "previous_token_score": "share of attention",
    "self_score": "share of attention",
    "first_token_score": "share of attention",
    "entropy": "nats",
    "relative_entropy": "share of ln(query + 1)",
    "mean_distance": "positions",
    "output_norm": "length",
    "output_share": "share of the residual stream's length",
    "fixed_offset_score": "share of attention",
}
FIXED_OFFSET = "fixed_offset_score"
PREFIX = "prefix_matching_score"
SCORES = (*TEXT_SCORES, PREFIX)

# What a head is called when a score passes the threshold; the largest score wins.
NAMED = {
    "previous-token": "previous_token_score",
    "self": "self_score",
    "fixed offset": FIXED_OFFSET,
    "first-token sink": "first_token_score",
    "induction": PREFIX,
}
DIFFUSE, UNNAMED = "diffuse", "sharp, no name"
THRESHOLD = 0.35
SHARP = 0.25  # relative entropy below which a pattern without a name is not called diffuse: two or three places
QUIET = 0.5  # a contribution below this multiple of the median head's is tiny

OFFSETS = range(2, 9)  # distances at which a head can be called "fixed offset"; 0 and 1 have names of their own
FEWEST_TOKENS = 4
MOST_CELLS = 50_000_000  # of all heads' patterns: 200 MB, held twice
ENDS = ("", "_low", "_high")

BATCH_TOKENS = 512  # read at once: what a layer writes then stays in the processor's cache
Progress = Callable[[float], None]


@dataclass(frozen=True, eq=False)
class HeadAtlas:
    """Every head measured. Heads are counted through the layers: `flat_head` = layer * heads + head."""

    patterns: Float[Tensor, "layer head query key"]  # mean over windows
    spread: Float[Tensor, "layer head query key"]  # standard deviation between windows
    profiles: Float[np.ndarray, "window flat_head offset"]  # attention k positions back
    window_scores: Float[np.ndarray, "window flat_head score"]  # TEXT_SCORES of each window
    repeat_scores: Float[np.ndarray, "sequence flat_head"]  # prefix matching on each repeated sequence
    table: pd.DataFrame  # a row a head: head, layer, index, fixed_offset, and each of SCORES with its _low and _high
    seed: int


@dataclass(frozen=True, eq=False)
class Labels:
    """What the heads are called, and how far that can be trusted."""

    table: pd.DataFrame  # head, label, score (the one that names it), stability (share of resamples with this label)
    named: Interval  # how many heads have a name


@dataclass(frozen=True)
class Standout:
    """The head with the largest score of all, chosen on one half of the windows and measured on the other."""

    head: str
    label: str
    score_name: str
    score: Interval
    windows: int  # on which it was measured
    offset: int  # the distance, of a fixed-offset head


@torch.no_grad()
def head_atlas(
    model: GPT,
    windows: Int[Tensor, "window pos_plus_1"],
    seed: int = 0,
    repeats: int = 8,
    progress: Progress | None = None,
) -> HeadAtlas:
    """Measures every head on all windows, in as few forward passes as memory allows.

    Args:
        model: the model.
        windows: disjoint windows (`corpora.windows`); the last token of each is a target only and not read.
        seed: of the repeated random tokens and of the bootstrap.
        repeats: sequences of repeated random tokens for prefix matching.
        progress: told the share that is done.

    Raises:
        ValueError: fewer than two windows, or windows of fewer than four tokens.
    """
    config, texts = model.config, windows[:, :-1]
    length = texts.shape[1]
    if length < FEWEST_TOKENS:
        raise ValueError(f"windows of {length} tokens: the atlas needs {FEWEST_TOKENS} or more to tell heads apart")
    if config.layers * config.heads * length**2 > MOST_CELLS:
        raise ValueError(
            f"{config.layers * config.heads} patterns of {length}² cells are too many: use shorter windows"
        )
    batch = max(1, BATCH_TOKENS // length)
    total, square = (torch.zeros(config.layers, config.heads, length, length) for _ in range(2))
    scores, profiles = [], []
    for done, part in enumerate(texts.split(batch)):
        trace = forward(model, part, _taps(config.layers, "pattern", "z", "resid_pre"), stop_early=True)
        scores.append(np.concatenate([_layer_scores(model, trace, layer) for layer in range(config.layers)], axis=1))
        for layer in range(config.layers):
            total[layer] += trace[f"pattern.{layer}"].sum(0)
            square[layer] += trace[f"pattern.{layer}"].square().sum(0)
        profiles.append(np.concatenate([_profile(trace, layer) for layer in range(config.layers)], axis=1))
        if progress:
            progress(min(1.0, (done + 1) * batch / len(texts)))
    joined_profiles = np.concatenate(profiles)
    offsets = _best_offsets(joined_profiles)
    window_scores = np.concatenate([np.concatenate(scores), _at_offsets(joined_profiles, offsets)[..., None]], axis=-1)
    repeat_scores = prefix_matching(model, length, repeats, seed)
    mean = total / len(texts)
    return HeadAtlas(
        patterns=mean,
        spread=(square / len(texts) - mean.square()).clamp(min=0).sqrt(),
        profiles=joined_profiles,
        window_scores=window_scores,
        repeat_scores=repeat_scores,
        table=_table(config, window_scores, repeat_scores, seed).assign(fixed_offset=offsets),
        seed=seed,
    )


@torch.no_grad()
def prefix_matching(model: GPT, length: int, sequences: int, seed: int) -> Float[np.ndarray, "sequence flat_head"]:
    """Prefix-matching score of every head on each of several sequences of repeated random tokens. Share."""
    half = length // 2
    tokens = synthetic.repeats(model.config.d_vocab, length, sequences, seed, half)
    parts = []
    for part in tokens.split(max(1, BATCH_TOKENS // length)):
        trace = forward(model, part, _taps(model.config.layers, "pattern"), stop_early=True)
        scores = [head_scores.prefix_matching_score(trace[f"pattern.{i}"], half) for i in range(model.config.layers)]
        parts.append(torch.cat(scores, dim=1))
    return torch.cat(parts).numpy()


@torch.no_grad()
def patterns_of(model: GPT, tokens: Int[Tensor, "pos"]) -> Float[Tensor, "layer head query key"]:
    """Every head's attention on one sequence."""
    trace = forward(model, tokens[None], _taps(model.config.layers, "pattern"), stop_early=True)
    return torch.stack([trace[f"pattern.{layer}"][0] for layer in range(model.config.layers)])


def label_heads(atlas: HeadAtlas, threshold: float = THRESHOLD) -> Labels:
    """Names every head whose largest named score passes the threshold, and resamples windows to test the name.

    A head without a name is `diffuse` when its attention is spread, else `sharp, no name`. In each resample the distance
    of a fixed-offset head is chosen anew.
    """
    columns = [*NAMED.values()]
    drawn = bootstrap_means(atlas.window_scores, atlas.seed)  # [draw flat_head score]
    near = bootstrap_means(atlas.profiles[..., OFFSETS.start : OFFSETS.stop], atlas.seed)  # the same draws of windows
    by_name = {name: drawn[..., i] for i, name in enumerate(TEXT_SCORES)}
    by_name |= {PREFIX: bootstrap_means(atlas.repeat_scores, atlas.seed + 1), FIXED_OFFSET: near.max(-1)}
    drawn_codes = _codes(np.stack([by_name[name] for name in columns], axis=-1), by_name["relative_entropy"], threshold)
    scores = atlas.table[columns].to_numpy()
    codes = _codes(scores, atlas.table["relative_entropy"].to_numpy(), threshold)
    low, high = percentile_interval((drawn_codes < len(NAMED)).sum(1).astype(float), len(atlas.window_scores))
    table = pd.DataFrame(
        {
            "head": atlas.table["head"],
            "label": np.array([*NAMED, DIFFUSE, UNNAMED])[codes],
            "score": scores.max(1),
            "stability": (drawn_codes == codes).mean(0),
        }
    )
    return Labels(table, Interval(float((codes < len(NAMED)).sum()), float(low), float(high)))


def standout(atlas: HeadAtlas) -> Standout:
    """Chooses the head and score on the even windows and reports them on the odd ones: the best of many flatters."""
    choosing, reporting = slice(0, None, 2), slice(1, None, 2)
    offsets = _best_offsets(atlas.profiles[choosing])

    def values(name: str, half: slice) -> Float[np.ndarray, "window flat_head"]:
        if name == PREFIX:
            return atlas.repeat_scores[half]
        if name == FIXED_OFFSET:
            return _at_offsets(atlas.profiles[half], offsets)
        return atlas.window_scores[half, :, list(TEXT_SCORES).index(name)]

    names = [*NAMED.values()]
    means = np.stack([values(name, choosing).mean(0) for name in names], axis=1)  # [flat_head name]
    head, best = (int(place) for place in np.unravel_index(means.argmax(), means.shape))
    measured = values(names[best], reporting)[:, head]
    return Standout(
        head=str(atlas.table["head"].iloc[head]),
        label=[*NAMED][best],
        score_name=names[best],
        score=interval(measured, atlas.seed),
        windows=len(measured),
        offset=int(offsets[head]),
    )


def untrained_control(
    config: ModelConfig,
    windows: Int[Tensor, "window pos_plus_1"],
    seeds: Sequence[int] = range(5),
    progress: Progress | None = None,
) -> pd.DataFrame:
    """The same atlas for models of the same shape with fresh weights: what the protocol finds where there is nothing.

    Returns:
        A row a seed and head: seed, and the columns of `HeadAtlas.table`.
    """
    tables = []
    for i, seed in enumerate(seeds):
        tables.append(head_atlas(GPT(config, seed), windows, seed).table.assign(seed=seed))
        if progress:
            progress((i + 1) / len(seeds))
    return pd.concat(tables, ignore_index=True)


def summarise_control(control: pd.DataFrame, threshold: float = THRESHOLD) -> pd.DataFrame:
    """For each untrained model, how many of its heads would get a name, and the best of each named score.

    Returns:
        A row a seed: seed, named, and each of the scores that give names.
    """
    columns = [*NAMED.values()]
    codes = _codes(control[columns].to_numpy(), control["relative_entropy"].to_numpy(), threshold)
    by_seed = control.assign(named=codes < len(NAMED)).groupby("seed")
    return by_seed[columns].max().assign(named=by_seed["named"].sum()).reset_index()


def count_named(atlas: HeadAtlas, threshold: float) -> int:
    """How many heads have a name at another threshold: how much the count owes to it."""
    return int((atlas.table[[*NAMED.values()]].max(axis=1) > threshold).sum())


def sharp_but_quiet(table: pd.DataFrame) -> pd.Series:
    """Heads whose pattern is sharp but whose contribution is tiny: the pattern alone would mislead you.

    Sharp: relative entropy below `SHARP`. Tiny: a share of the stream below `QUIET` times the median head's.
    """
    return (table["relative_entropy"] < SHARP) & (table["output_share"] < QUIET * table["output_share"].median())


def _taps(layers: int, *names: str) -> list[str]:
    return [f"{name}.{layer}" for layer in range(layers) for name in names]


def _layer_scores(model: GPT, trace: Trace, layer: int) -> Float[np.ndarray, "window head score"]:
    patterns = trace[f"pattern.{layer}"]
    norms = head_scores.output_norms(model, layer, trace[f"z.{layer}"])  # [window pos head]
    rows = head_scores.row_entropy(patterns)
    stream = trace[f"resid_pre.{layer}"].norm(dim=-1, keepdim=True)
    measured = {
        "previous_token_score": head_scores.previous_token_score(patterns),
        "self_score": head_scores.self_score(patterns),
        "first_token_score": head_scores.first_token_score(patterns),
        "entropy": head_scores.entropy(rows),
        "relative_entropy": head_scores.relative_entropy(rows),
        "mean_distance": head_scores.mean_distance(patterns),
        "output_norm": norms.mean(1),
        "output_share": (norms / stream).mean(1),
    }
    return torch.stack([measured[name] for name in TEXT_SCORES if name in measured], dim=-1).numpy()


def _profile(trace: Trace, layer: int) -> Float[np.ndarray, "window head offset"]:
    return head_scores.offset_profile(trace[f"pattern.{layer}"]).numpy()


def _best_offsets(profiles: Float[np.ndarray, "window flat_head offset"]) -> Int[np.ndarray, "flat_head"]:
    """The distance among `OFFSETS` at which each head looks most."""
    return profiles.mean(0)[:, OFFSETS.start : OFFSETS.stop].argmax(1) + OFFSETS.start


def _at_offsets(
    profiles: Float[np.ndarray, "window flat_head offset"], offsets: Int[np.ndarray, "flat_head"]
) -> Float[np.ndarray, "window flat_head"]:
    """Each head's attention at its own distance."""
    return profiles[:, np.arange(len(offsets)), offsets]


def _table(config: ModelConfig, window_scores: np.ndarray, repeat_scores: np.ndarray, seed: int) -> pd.DataFrame:
    places = [(layer, index) for layer in range(config.layers) for index in range(config.heads)]
    columns: dict[str, object] = {
        "head": [f"L{layer}H{index}" for layer, index in places],
        "layer": [layer for layer, _ in places],
        "index": [index for _, index in places],
    }
    text = mean_interval(window_scores, seed)
    copies = mean_interval(repeat_scores, seed)
    for i, name in enumerate(TEXT_SCORES):
        columns |= {name + end: part[:, i] for end, part in zip(ENDS, text, strict=True)}
    columns |= {PREFIX + end: part for end, part in zip(ENDS, copies, strict=True)}
    return pd.DataFrame(columns)


def _codes(
    named: Float[np.ndarray, "*draw flat_head name"], spread: Float[np.ndarray, "*draw flat_head"], threshold: float
) -> np.ndarray:
    """Place of each head's label in NAMED, then DIFFUSE, then UNNAMED."""
    without = np.where(spread < SHARP, len(NAMED) + 1, len(NAMED))
    return np.where(named.max(-1) > threshold, named.argmax(-1), without)
