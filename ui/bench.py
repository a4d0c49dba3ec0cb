"""The sidebar: which checkpoint, which text, how many windows. Every page begins with `open_bench`."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import streamlit as st
from torch import Tensor

from interp_core import ablation, corpora
from interp_core.ablation import Donors, Mode, Sweep
from interp_core.atlas import FEWEST_TOKENS, HeadAtlas
from interp_core.checkpoints import Checkpoint
from interp_core.corpora import Text
from interp_core.model import GPT
from interp_core.preflight import Preflight
from interp_core.tokenizers import CharTokenizer
from ui import cache, effort, session, understanding
from ui.choosing import Chosen, choose_checkpoint
from ui.progress import when_asked, with_progress
from ui.texts import choose_text, own_samples

ABOVE = 0.55  # share of a pass that is computed again when a part is taken away, on average
DONOR_WINDOWS = 64  # of the training part
TOKENS = FEW_TOKENS, SOME_TOKENS, MANY_TOKENS, MOST_TOKENS = "2048", "4096", "8192", "16384"  # where tokens are counted
FEWEST_WINDOWS, MOST_WINDOWS, WINDOWS = 8, 128, 32


@dataclass(frozen=True, eq=False)
class Bench:
    """What the visitor put on the bench: everything that a page measures."""

    checkpoint: Checkpoint
    path: Path | None  # its file here; None for an upload
    text: Text
    windows: Tensor  # [window pos_plus_1], disjoint, from the validation part
    windows_hash: str
    seed: int

    @property
    def provenance(self) -> str:
        """Where a page's numbers come from, in one line."""
        count, length = self.windows.shape
        return (
            f"checkpoint {self.checkpoint.name} ({self.checkpoint.short_hash}) · text {self.text.name} "
            f"({self.text.sha256[:8]}), validation part · {count} disjoint windows of {length - 1} tokens · seed {self.seed}"
        )

    @property
    def token_word(self) -> str:
        """What a token of this checkpoint is: a character, or whatever its vocabulary has."""
        return "character" if isinstance(self.checkpoint.tokenizer, CharTokenizer) else "token"

    @property
    def context(self) -> int:
        """How many tokens are read of a text that a visitor types: as many as a window has."""
        return int(self.windows.shape[1]) - 1

    @property
    def key(self) -> str:
        """Names what is measured: checkpoint, windows, seed."""
        return f"{self.checkpoint.sha256} {self.windows_hash} {self.seed}"

    def heads(self) -> HeadAtlas:
        """The atlas of this checkpoint over these windows."""
        return self._atlas(self.checkpoint.sha256, self.checkpoint.model, self.windows, self.windows_hash)

    def heads_on_own_samples(self) -> HeadAtlas:
        """The atlas over as many windows of the checkpoint's own samples."""
        context = self.windows.shape[1] - 1
        text = own_samples(self.checkpoint, context)
        count = min(len(self.windows), corpora.count_windows(text.validation, context))
        windows = corpora.windows(text.validation, context, count, self.seed)
        return self._atlas(self.checkpoint.sha256, self.checkpoint.model, windows, cache.digest(windows))

    def untrained_heads(self) -> HeadAtlas:
        """The atlas of one untrained model of the same shape."""
        config = self.checkpoint.model.config
        return self._atlas(f"untrained {config}", GPT(config, self.seed), self.windows, self.windows_hash)

    def untrained(self) -> pd.DataFrame:
        """What the atlas finds in several untrained models of the same shape."""
        config = self.checkpoint.model.config
        return with_progress(
            "Measuring untrained models of the same shape",
            lambda tell: cache.untrained_control(str(config), self.windows_hash, config, self.windows, tell),
        )

    def preflight(self) -> Preflight:
        """The pre-flight report of this checkpoint on this text."""
        checkpoint, text = self.checkpoint, self.text
        key = checkpoint.sha256 + checkpoint.tokenizer.identity
        return with_progress(
            "Does it predict this text?",
            lambda tell: cache.preflight_report(key, self.windows_hash, self.seed, checkpoint, text, self.windows),
        )

    def seconds(self, passes: float) -> float:
        """How long so many forward passes over the windows take here; none to speak of, of a model that is not large."""
        checkpoint = self.checkpoint
        if not effort.is_large(checkpoint.model):
            return 0.0
        return passes * self.windows.numel() * cache.seconds_a_token(str(checkpoint.model.config), checkpoint.model)

    def donors(self) -> Donors:
        """What the parts write on windows of the training part: what replaces them when they are taken away."""
        context = self.windows.shape[1] - 1
        count = min(DONOR_WINDOWS, corpora.count_windows(self.text.train, context))
        windows = corpora.windows(self.text.train, context, count, self.seed)
        return cache.donors(self.checkpoint.sha256, cache.digest(windows), self.checkpoint.model, windows)

    def sweep(self) -> Sweep:
        """Every part taken away, in every mode."""
        model = self.checkpoint.model
        passes = len(ablation.parts(model.config)) * len(ablation.MODES) * ABOVE
        when_asked("Taking away every part of this model in three ways", self.seconds(passes), f"sweep {self.key}")
        donors = self.donors()
        key = f"{self.windows_hash} {self.text.sha256}"
        return with_progress(
            f"Taking away every part of the model, on {len(self.windows)} windows",
            lambda tell: cache.sweep(self.checkpoint.sha256, key, self.seed, model, self.windows, donors, tell),
        )

    def ablation_pairs(self, mode: Mode) -> pd.DataFrame:
        """Every two heads taken away together."""
        given = (self.checkpoint.model, self.windows, self.donors())
        key = f"{self.windows_hash} {self.text.sha256}"
        return with_progress(
            "Taking away every two heads",
            lambda tell: cache.pairs(self.checkpoint.sha256, key, self.seed, mode, given, tell),
        )

    def _atlas(self, name: str, model: GPT, windows: Tensor, windows_hash: str) -> HeadAtlas:
        config = model.config
        return with_progress(
            f"Measuring {config.layers * config.heads} heads on {len(windows)} windows",
            lambda tell: cache.head_atlas(name, windows_hash, self.seed, model, windows, tell),
        )


def open_bench(by_tokens: str | None = None) -> Bench:
    """Draws the sidebar and reads what it says; on trouble says what it is and goes on with what works.

    Args:
        by_tokens: how many tokens are read unless the visitor says otherwise, where these and not the windows are counted.
    """
    with st.sidebar:
        chosen = choose_checkpoint()
        length = _choose_length(chosen.checkpoint)
        text = choose_text(chosen.checkpoint, length, chosen.asks)
        bench = _draw_windows(chosen, text, length, by_tokens)
        if bench is not None and not chosen.asks:
            understanding.draw_report(bench.checkpoint, bench.preflight())
            understanding.review(bench.checkpoint, bench.windows, bench.seed)
    if bench is None or chosen.asks:
        windows, seed = (None, 0) if bench is None else (bench.windows, bench.seed)
        understanding.ask_heads(chosen.checkpoint, text, windows, seed)
        st.stop()
    if bench.preflight().healthy is False:
        st.warning(f"**Before you believe anything below:** {bench.preflight().verdict}")
    return bench


def _choose_length(checkpoint: Checkpoint) -> int:
    """Tokens of a window: the context, unless the model is too large to read so much at once."""
    model = checkpoint.model
    longest, usual = effort.longest_window(model), effort.usual_window(model)
    if longest < FEWEST_TOKENS:
        st.error(
            f"This checkpoint reads {longest} tokens at most, and {FEWEST_TOKENS} are the least to tell heads apart."
        )
        st.stop()
    if usual == longest:
        return longest
    lengths = [2**power for power in range(4, 13) if 2**power < longest]
    options = [str(length) for length in sorted({*lengths, usual, longest})]
    session.keep_choice(session.LENGTH, options)
    chosen = st.select_slider(
        "Tokens of a window", options, str(usual), key=session.LENGTH, bind="query-params",
        help=f"Its context is {model.config.context}. The cost of most measurements grows with the length.",
    )  # fmt: skip
    return int(chosen)


def _draw_windows(chosen: Chosen, text: Text | None, context: int, by_tokens: str | None) -> Bench | None:
    """How much is read, and where; None while nothing can be, because the number of heads is not known."""
    available = corpora.count_windows(text.validation, context) if text is not None else 0
    if text is not None and available < FEWEST_WINDOWS:
        st.error(
            f"The validation part of {text.name} holds {available} windows of {context + 1} tokens, and "
            f"{FEWEST_WINDOWS} are the least for an interval. "
            + ("" if chosen.asks else "Going on with samples of the checkpoint: ")
            + "give a longer text."
        )
        text = None if chosen.asks else own_samples(chosen.checkpoint, context)
        available = corpora.count_windows(text.validation, context) if text is not None else 0
    if text is None:
        return None
    large = effort.is_large(chosen.checkpoint.model)
    left, right = st.columns([3, 2])
    with left:
        if by_tokens:
            count = _choose_tokens(context, available, FEW_TOKENS if large else by_tokens)
        else:
            count = _choose_windows(context, available, FEWEST_WINDOWS if large else WINDOWS)
    seed = right.number_input(
        "Seed", 0, 9999, 0, key=session.SEED, bind="query-params", help="Which windows are drawn."
    )
    windows = corpora.windows(text.validation, context, count, int(seed))
    return Bench(chosen.checkpoint, chosen.path, text, windows, cache.digest(windows), int(seed))


def _choose_windows(context: int, available: int, usual: int) -> int:
    most = min(MOST_WINDOWS, available)
    return st.slider(
        "Windows", FEWEST_WINDOWS, most, min(usual, most), key=session.WINDOWS, bind="query-params",
        help=f"Stretches of {context} tokens that do not overlap, drawn from the last tenth of the text.",
    )  # fmt: skip


def _choose_tokens(context: int, available: int, usual: str) -> int:
    """Windows that hold about as many tokens as are asked for."""
    session.keep_choice(session.TOKENS, TOKENS)
    tokens = st.select_slider(
        "Tokens", TOKENS, usual, key=session.TOKENS, bind="query-params",
        help=f"Read in windows of {context} tokens that do not overlap, drawn from the last tenth of the text.",
    )  # fmt: skip
    return min(max(int(tokens) // context, FEWEST_WINDOWS), available)
