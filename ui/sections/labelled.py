"""What Probing and GED ask about: a site's activations on windows of the text, and which tokens belong to a category."""

import html
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import streamlit as st
import torch

from interp_core import categories, corpora
from interp_core.activations import Activations
from interp_core.categories import IN_WINDOW, LIBRARY, NAMED, PatternError
from interp_core.model import GPT
from interp_core.tokenizers import NumberTokenizer
from ui import cache, session
from ui.bench import Bench
from ui.progress import with_progress

OWN = "your own pattern"
REST = "all other tokens"
NATURAL, BALANCED = "natural shares", "balanced"
FEW_LAYERS = 6  # that stand side by side
BEFORE, AFTER = 24, 8  # characters of a context
SITES = {
    "resid_post": "residual stream", "attn_out": "attention output", "z": "heads, before the output", "mlp_post": "MLP neurons",
}  # fmt: skip
PREVIEW = 420  # characters


@dataclass(frozen=True, eq=False)
class Labelled:
    """The rows of both categories; tokens of both, and of neither where two are compared, are left out."""

    bench: Bench
    site: str
    names: tuple[str, str]
    sources: tuple[str, str | None]  # the Python of both categories
    belongs: np.ndarray  # [window pos] of the first category
    compared: np.ndarray  # [window pos] of the second
    sampling: str
    trained: bool = True  # or a model of the same shape that has learned nothing

    @property
    def windows(self) -> torch.Tensor:
        """What is read [window pos]."""
        return self.bench.windows[:, :-1]

    @property
    def kept(self) -> np.ndarray:
        """Which positions count [window*pos]: of one category and not of the other; as many of each where balanced."""
        kept = (self.belongs ^ self.compared).ravel()
        return kept if self.sampling == NATURAL else categories.balanced(kept, self.belongs.ravel(), self.bench.seed)

    @property
    def positive(self) -> np.ndarray:
        """The first category among the rows that count."""
        return self.belongs.ravel()[self.kept]

    @property
    def key(self) -> str:
        """Names everything in a cache's key."""
        return f"{self._model[0]} {cache.digest(self.windows)} {self.site} {self.sources} {self.sampling} {self.bench.seed}"

    @property
    def both(self) -> int:
        """Tokens that belong to both categories."""
        return int((self.belongs & self.compared).sum())

    @property
    def provenance(self) -> str:
        """Where the numbers come from, in one line."""
        count, length = self.windows.shape
        positive = int(self.positive.sum())
        checkpoint, text = self.bench.checkpoint, self.bench.text
        shares = (
            f"{positive:,} tokens {self.names[0]}, {len(self.positive) - positive:,} {self.names[1]}, {self.sampling}"
        )
        return (
            f"checkpoint {checkpoint.name} ({checkpoint.short_hash}) · {self.site} · text {text.name} ({text.sha256[:8]}), "
            f"validation part · {count} disjoint windows of {length} tokens · {shares} · seed {self.bench.seed}"
        )

    def at(self, site: str) -> "Labelled":
        """The same tokens at another site."""
        return replace(self, site=site)

    def untrained(self) -> "Labelled":
        """The same tokens in a model of the same shape that has learned nothing."""
        return replace(self, trained=False)

    def activations(self) -> Activations:
        """What the model holds there."""
        windows, (name, model) = self.windows, self._model
        return with_progress(
            f"Reading {windows.numel():,} tokens",
            lambda tell: cache.gathered(name, cache.digest(windows), self.site, model, windows, tell),
        )

    @property
    def _model(self) -> tuple[str, GPT]:
        checkpoint, seed = self.bench.checkpoint, self.bench.seed
        if self.trained:
            return checkpoint.sha256, checkpoint.model
        config = checkpoint.model.config
        return f"untrained {config} {seed}", GPT(config, seed)

    def rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Vectors, windows and tokens of the rows that count."""
        found, kept = self.activations(), self.kept
        return (
            found.values.numpy()[kept].astype(np.float64), found.windows.numpy()[kept], found.tokens.numpy()[kept],
        )  # fmt: skip


def sites(bench: Bench, kind: str) -> list[str]:
    """The sites of a kind, from the embedding up."""
    layers = [f"{kind}.{layer}" for layer in range(bench.checkpoint.model.config.layers)]
    return ["embed", *layers] if kind == "resid_post" else layers


def choose(bench: Bench) -> Labelled | None:
    """The row of choices at the top of a page; None, with a word, where there is nothing to measure."""
    if isinstance(bench.checkpoint.tokenizer, NumberTokenizer):
        st.info(
            "This checkpoint's tokens are numbers, and categories are of characters: choose a checkpoint of a text."
        )
        return None
    with st.sidebar:
        sampling = st.radio(
            "Sampling", [NATURAL, BALANCED], key=session.SAMPLING, bind="query-params", horizontal=True,
            help="Balanced: as many tokens of the commoner category as of the rarer one, drawn by the seed.",
        )  # fmt: skip
    names = [*NAMED, *IN_WINDOW]
    words = {category.name: category.words for category in LIBRARY}
    words |= {category.name: category.words for category in IN_WINDOW.values()}
    helped = "; ".join(f"**{name}**: {meaning}" for name, meaning in words.items())
    kinds = {kind: words for kind, words in SITES.items() if kind != "mlp_post" or bench.checkpoint.model.config.d_mlp}
    told = " · ".join(f"{kind}: {words}" for kind, words in kinds.items())
    first, second, third, fourth = st.columns([3, 3, 2, 4])
    with first:
        mine = _select("Category", [*names, OWN], names[0], session.CATEGORY, helped)
    with second:
        against = _select("Compared with", [REST, *names], REST, session.AGAINST)
    with third:
        kind = _select("Site", list(kinds), "resid_post", session.SITE, told)
    with fourth:
        layer = _layer([site.split(".")[-1] for site in sites(bench, kind)])
    pattern = None if mine != OWN else st.text_input(
        "Regular expression", "king|queen", key=session.PATTERN_TYPED, bind="query-params", max_chars=500,
        help="Tokens whose characters a match covers belong to the category. Multi-line mode: ^ and $ are at line breaks.",
    )  # fmt: skip
    try:
        return _labelled(bench, mine, pattern, against, layer if layer == "embed" else f"{kind}.{layer}", sampling)
    except PatternError as error:
        st.error(f"{error}")
        return None


def _select(label: str, options: list[str], default: str, key: str, words: str | None = None) -> str:
    """A selectbox whose own default is `default`, so that every other choice is kept in the address."""
    session.keep_choice(key, options)
    return st.selectbox(label, options, options.index(default), key=key, bind="query-params", help=words) or default


def _layer(options: list[str]) -> str:
    """One click where there are few."""
    middle = options[len(options) // 2]
    if len(options) > FEW_LAYERS:
        return _select("Layer", options, middle, session.LAYER)
    session.keep_choice(session.LAYER, options)
    chosen = st.radio("Layer", options, options.index(middle), key=session.LAYER, bind="query-params", horizontal=True)
    return chosen or middle


def _labelled(bench: Bench, mine: str, pattern: str | None, against: str, site: str, sampling: str) -> Labelled | None:
    belongs = marks_of(bench, mine, pattern)
    compared = ~belongs if against == REST else marks_of(bench, against)
    sources = (_source(mine, pattern), None if against == REST else _source(against, None))
    if against != REST and belongs.any() and (belongs == compared).all():
        st.error(f"{mine} and {against} are the same tokens here: choose another category, or all other tokens.")
        return None
    for one, two, names in ((belongs, compared, (mine, against)), (compared, belongs, (against, mine))):
        if one.any() and not (one & ~two).any():
            st.error(f"Every token {names[0]} is {names[1]}, too: nothing is left to compare. Choose another category.")
            return None
    if not belongs.any():
        st.warning(f"No token of these {belongs.size:,} is {mine}: another pattern, another text, or more tokens.")
        return None
    if belongs.all():
        st.warning(f"Every token is {mine}: there is nothing to compare with.")
        return None
    return Labelled(bench, site, (mine, against), sources, belongs, compared, sampling)


def marks_of(bench: Bench, name: str, pattern: str | None = None) -> np.ndarray:
    """Which positions of the windows on the bench belong to a category [window pos].

    Raises:
        PatternError: the pattern cannot be used.
    """
    if name in IN_WINDOW:
        return IN_WINDOW[name].rule(bench.windows[:, :-1].numpy())
    part, tokenizer = bench.text.validation, bench.checkpoint.tokenizer
    count, context = len(bench.windows), bench.windows.shape[1] - 1
    places = corpora.window_offsets(part, context, count, bench.seed)[:, None] + torch.arange(context)
    asked = pattern if pattern is not None else NAMED[name].pattern
    return cache.labels(asked, bench.text.sha256, tokenizer.identity, part, tokenizer)[places.numpy()]


def _source(name: str, pattern: str | None) -> str:
    """The Python that marks the same positions."""
    if name in IN_WINDOW:
        return f"categories.{IN_WINDOW[name].rule.__name__}(windows[:, :-1].numpy())"
    return f"categories.label({pattern if pattern is not None else NAMED[name].pattern!r}, pieces)[places.numpy()]"


def preview(labelled: Labelled) -> None:
    """The category marked in the text, around its first token, and the counts."""
    tokenizer, windows = labelled.bench.checkpoint.tokenizer, labelled.windows
    first = int(labelled.belongs.any(1).argmax())
    pieces = []
    for window, marks in zip(windows[first:], labelled.belongs[first:], strict=True):
        for token, marked in zip(window.tolist(), marks, strict=True):
            piece = html.escape(tokenizer.decode([token]))
            pieces.append(f"<mark>{piece}</mark>" if marked else piece)
        if len(pieces) > PREVIEW:
            break
        pieces.append("<hr style='margin: 2px 0'>")
    text = "".join(pieces[:PREVIEW]).replace("</mark><mark>", "")
    st.html(
        "<div style='white-space: pre-wrap; font-family: monospace; font-size: 14px; line-height: 1.5; max-height: 126px; "
        f"overflow: auto'>{text}</div>"
    )
    share = labelled.belongs.mean()
    both = f" {labelled.both:,} belong to both and are left out." if labelled.both else ""
    st.caption(f"{int(labelled.belongs.sum()):,} of {labelled.belongs.size:,} tokens ({share:.1%}) are marked.{both}")


def contexts(labelled: Labelled, values: np.ndarray, rows: np.ndarray, name: str) -> pd.DataFrame:
    """The values of some rows with the text around them, the token in brackets."""
    places, length = np.flatnonzero(labelled.kept)[rows], labelled.windows.shape[1]
    label, windows, found = labelled.bench.checkpoint.tokenizer.label, labelled.windows, []
    for row, place in zip(rows.tolist(), places.tolist(), strict=True):
        window, position = divmod(place, length)
        pieces = [label(int(token)) for token in windows[window]]
        before = "".join(pieces[max(0, position - BEFORE) : position])
        after = "".join(pieces[position + 1 : position + 1 + AFTER])
        found.append((round(float(values[row]), 2), f"{before}[{pieces[position]}]{after}"))
    return pd.DataFrame(found, columns=[name, "context"])


def code(labelled: Labelled) -> str:
    """The Python that gathers the same rows."""
    (count, context), (source, other), seed = labelled.windows.shape, labelled.sources, labelled.bench.seed
    thinned = (
        f"\nkept = categories.balanced(kept, belongs.ravel(), seed={seed})" if labelled.sampling == BALANCED else ""
    )
    return f"""offsets = corpora.window_offsets(text.validation, {context}, count={count}, seed={seed})
places = offsets[:, None] + torch.arange({context})
pieces = [checkpoint.tokenizer.decode([token]) for token in text.validation.tolist()]
belongs = {source}
compared = {"~belongs" if other is None else other}
found = activations.gather(checkpoint.model, windows[:, :-1], ["{labelled.site}"])["{labelled.site}"]
kept = (belongs ^ compared).ravel(){thinned}
rows, blocks, positive = found.values.numpy()[kept].astype(float), found.windows.numpy()[kept], belongs.ravel()[kept]"""
