"""What Probing and GED ask about: a site's activations on windows of the text, and which tokens belong to a category."""

import html
from dataclasses import dataclass, replace

import numpy as np
import streamlit as st
import torch

from interp_core import corpora
from interp_core.activations import Activations
from interp_core.categories import LIBRARY, NAMED, PatternError
from interp_core.tokenizers import NumberTokenizer
from ui import cache, session
from ui.bench import Bench
from ui.progress import with_progress

OWN = "your own pattern"
REST = "all other tokens"
TOKENS, USUAL = (2048, 4096, 8192, 16384), 8192
SITES = {
    "resid_post": "residual stream", "attn_out": "attention output", "z": "heads, before the output", "mlp_post": "MLP neurons",
}  # fmt: skip
PREVIEW = 420  # characters


@dataclass(frozen=True, eq=False)
class Labelled:
    """The rows of both categories; tokens of both, and of neither where two are compared, are left out."""

    bench: Bench
    site: str
    tokens: int  # asked for
    names: tuple[str, str]
    patterns: tuple[str, str | None]
    belongs: np.ndarray  # [window pos] of the first category
    compared: np.ndarray  # [window pos] of the second
    windows: torch.Tensor  # [window pos]

    @property
    def kept(self) -> np.ndarray:
        """Which positions count [window*pos]."""
        return (self.belongs ^ self.compared).ravel()

    @property
    def positive(self) -> np.ndarray:
        """The first category among the rows that count."""
        return self.belongs.ravel()[self.kept]

    @property
    def key(self) -> str:
        """Names everything in a cache's key."""
        return f"{self.bench.checkpoint.sha256} {cache.digest(self.windows)} {self.site} {self.patterns}"

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
            f"{positive:,} tokens {self.names[0]}, {len(self.positive) - positive:,} {self.names[1]}, natural shares"
        )
        return (
            f"checkpoint {checkpoint.name} ({checkpoint.short_hash}) · {self.site} · text {text.name} ({text.sha256[:8]}), "
            f"validation part · {count} disjoint windows of {length} tokens · {shares} · seed {self.bench.seed}"
        )

    def at(self, site: str) -> "Labelled":
        """The same tokens at another site."""
        return replace(self, site=site)

    def activations(self) -> Activations:
        """What the model holds there."""
        bench, site = self.bench, self.site
        return with_progress(
            f"Reading {self.windows.numel():,} tokens",
            lambda tell: cache.gathered(
                bench.checkpoint.sha256, cache.digest(self.windows), site, bench.checkpoint.model, self.windows, tell
            ),
        )

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
    first, second, third, fourth, fifth = st.columns([3, 3, 3, 2, 2])
    names = [category.name for category in LIBRARY]
    helped = "; ".join(f"**{category.name}**: {category.words}" for category in LIBRARY)
    kinds = {kind: words for kind, words in SITES.items() if kind != "mlp_post" or bench.checkpoint.model.config.d_mlp}
    told = " · ".join(f"{kind}: {words}" for kind, words in kinds.items())
    with first:
        mine = _select("Category", [*names, OWN], names[0], session.CATEGORY, helped)
    with second:
        against = _select("Compared with", [REST, *names], REST, session.AGAINST)
    with third:
        kind = _select("Site", list(kinds), "resid_post", session.SITE, told)
    options = [site.split(".")[-1] for site in sites(bench, kind)]
    with fourth:
        layer = _select("Layer", options, options[len(options) // 2], session.LAYER)
    with fifth:
        count = int(_select("Tokens", [f"{n}" for n in TOKENS], f"{USUAL}", session.TOKENS))
    pattern = NAMED[mine].pattern if mine in NAMED else st.text_input(
        "Regular expression", "king|queen", key=session.PATTERN_TYPED, bind="query-params", max_chars=500,
        help="Tokens whose characters a match covers belong to the category. Multi-line mode: ^ and $ are at line breaks.",
    )  # fmt: skip
    try:
        return _labelled(bench, (mine, pattern), against, layer if layer == "embed" else f"{kind}.{layer}", count)
    except PatternError as error:
        st.error(f"{error}")
        return None


def _select(label: str, options: list[str], default: str, key: str, words: str | None = None) -> str:
    """A selectbox whose own default is `default`, so that every other choice is kept in the address."""
    session.keep_choice(key, options)
    return st.selectbox(label, options, options.index(default), key=key, bind="query-params", help=words) or default


def _labelled(bench: Bench, mine: tuple[str, str], against: str, site: str, tokens: int) -> Labelled | None:
    context, part = bench.windows.shape[1] - 1, bench.text.validation
    count = min(max(tokens // context, 2), corpora.count_windows(part, context))
    offsets = corpora.window_offsets(part, context, count, bench.seed)
    places = offsets[:, None] + torch.arange(context)
    tokenizer = bench.checkpoint.tokenizer
    vocabulary = "".join(tokenizer.label(token) for token in range(tokenizer.size))

    def labels(pattern: str) -> np.ndarray:
        return cache.labels(pattern, bench.text.sha256, vocabulary, part, tokenizer)[places.numpy()]

    name, pattern = mine
    belongs = labels(pattern)
    other = None if against == REST else NAMED[against].pattern
    compared = ~belongs if other is None else labels(other)
    found = Labelled(bench, site, tokens, (name, against), (pattern, other), belongs, compared, part[places])
    if other is not None and belongs.any() and (belongs == compared).all():
        st.error(f"{name} and {against} are the same tokens here: choose another category, or all other tokens.")
        return None
    for one, two, names in ((belongs, compared, (name, against)), (compared, belongs, (against, name))):
        if one.any() and not (one & ~two).any():
            st.error(f"Every token {names[0]} is {names[1]}, too: nothing is left to compare. Choose another category.")
            return None
    if not belongs.any():
        st.warning(f"No token of these {belongs.size:,} is {name}: another pattern, another text, or more tokens.")
        return None
    if belongs.all():
        st.warning(f"Every token is {name}: there is nothing to compare with.")
        return None
    return found


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
        pieces.append("<hr>")
    text = "".join(pieces[:PREVIEW]).replace("</mark><mark>", "")
    st.html(
        "<div style='white-space: pre-wrap; font-family: monospace; font-size: 14px; max-height: 190px; overflow: auto'>"
        f"{text}</div>"
    )
    share = labelled.belongs.mean()
    both = f" {labelled.both:,} belong to both and are left out." if labelled.both else ""
    st.caption(f"{int(labelled.belongs.sum()):,} of {labelled.belongs.size:,} tokens ({share:.1%}) are marked.{both}")


def code(labelled: Labelled) -> str:
    """The Python that gathers the same rows."""
    count, context = labelled.windows.shape
    (pattern, other), site, seed = labelled.patterns, labelled.site, labelled.bench.seed
    against = "~belongs" if other is None else f"categories.label({other!r}, pieces)[places]"
    return f"""offsets = corpora.window_offsets(text.validation, {context}, count={count}, seed={seed})
places = (offsets[:, None] + torch.arange({context})).numpy()
pieces = [checkpoint.tokenizer.decode([token]) for token in text.validation.tolist()]
belongs = categories.label({pattern!r}, pieces)[places]
compared = {against}
found = activations.gather(checkpoint.model, text.validation[places], ["{site}"])["{site}"]
counts = (belongs ^ compared).ravel()
rows, windows, positive = found.values.numpy()[counts].astype(float), found.windows.numpy()[counts], belongs.ravel()[counts]"""
