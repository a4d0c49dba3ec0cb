"""The sidebar: which checkpoint, which text, how many windows. Every page begins with `open_bench`."""

import math
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import streamlit as st
from torch import Tensor

from interp_core import checkpoints, corpora, run_files, synthetic
from interp_core.ablation import Donors, Mode, Sweep
from interp_core.atlas import FEWEST_TOKENS, MOST_CELLS, HeadAtlas
from interp_core.checkpoints import Checkpoint, CheckpointError
from interp_core.corpora import Text, TextUnavailable
from interp_core.model import GPT, ModelConfig
from interp_core.preflight import Preflight
from interp_core.tokenizers import NumberTokenizer, UnknownCharacters
from ui import cache, session, uploads
from ui.progress import with_progress

FIRST = "shakespeare"  # the checkpoint that the app opens on
LAST = "last"  # not a snapshot: the checkpoint itself
OWN = corpora.OWN_SAMPLES
PASTE = "paste your own"
TEXT_HELP = (
    "own-samples: windows drawn from the checkpoint itself at temperature 1; the first token comes from what it writes in "
    "the long run. repeats, periodic, alphabet, successors: random sequences with a known structure."
)
SYNTHETIC_WINDOWS = 512
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

    def heads(self) -> HeadAtlas:
        """The atlas of this checkpoint over these windows."""
        return self._atlas(self.checkpoint.sha256, self.checkpoint.model, self.windows, self.windows_hash)

    def heads_on_own_samples(self) -> HeadAtlas:
        """The atlas over as many windows of the checkpoint's own samples."""
        text = _own_samples(self.checkpoint)
        context = self.windows.shape[1] - 1
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
        return cache.preflight_report(checkpoint.sha256, self.windows_hash, self.seed, checkpoint, text, self.windows)

    def donors(self) -> Donors:
        """What the parts write on windows of the training part: what replaces them when they are taken away."""
        context = self.windows.shape[1] - 1
        count = min(DONOR_WINDOWS, corpora.count_windows(self.text.train, context))
        windows = corpora.windows(self.text.train, context, count, self.seed)
        return cache.donors(self.checkpoint.sha256, cache.digest(windows), self.checkpoint.model, windows)

    def sweep(self) -> Sweep:
        """Every part taken away, in every mode."""
        model, donors = self.checkpoint.model, self.donors()
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
        checkpoint, path = _choose_checkpoint()
        context = window_length(checkpoint.model.config)
        if context < FEWEST_TOKENS:
            st.error(
                f"This checkpoint reads {context} tokens at most, and {FEWEST_TOKENS} are the least to tell heads apart."
            )
            st.stop()
        text = _choose_text(checkpoint)
        available = corpora.count_windows(text.validation, context)
        if available < FEWEST_WINDOWS:
            st.error(
                f"The validation part of {text.name} holds {available} windows of {context + 1} tokens, and "
                f"{FEWEST_WINDOWS} are the least for an interval. Going on with samples of the checkpoint: give a longer text."
            )
            text = _own_samples(checkpoint)
            available = corpora.count_windows(text.validation, context)
        left, right = st.columns([3, 2])
        with left:
            count = _choose_tokens(context, available, by_tokens) if by_tokens else _choose_windows(context, available)
        seed = right.number_input(
            "Seed", 0, 9999, 0, key=session.SEED, bind="query-params", help="Which windows are drawn."
        )
        windows = corpora.windows(text.validation, context, count, int(seed))
        bench = Bench(checkpoint, path, text, windows, cache.digest(windows), int(seed))
        _draw_preflight(bench.preflight())
    if bench.preflight().healthy is False:
        st.warning(f"**Before you believe anything below:** {bench.preflight().verdict}")
    return bench


def _choose_windows(context: int, available: int) -> int:
    most = min(MOST_WINDOWS, available)
    return st.slider(
        "Windows", FEWEST_WINDOWS, most, min(WINDOWS, most), key=session.WINDOWS, bind="query-params",
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


def window_length(config: ModelConfig) -> int:
    """Tokens of a window: the context, or as many as leave all heads' patterns room in memory."""
    return min(config.context, math.isqrt(MOST_CELLS // (config.layers * config.heads)))


def _draw_preflight(report: Preflight) -> None:
    sick = report.healthy is False
    with st.popover(
        "Pre-flight: look here first" if sick else "Pre-flight report",
        icon=":material/error:" if sick else ":material/fact_check:",
    ):
        st.markdown(f"**{report.verdict}**")
        st.caption(f"Loss on {report.windows} disjoint windows of the validation part, with 95% intervals.")
        st.dataframe(report.losses.round(3), hide_index=True)
        st.caption("What was understood of the checkpoint, and from where.")
        st.dataframe(report.facts, hide_index=True)


def _choose_checkpoint() -> tuple[Checkpoint, Path | None]:
    """The chosen checkpoint, or the chosen snapshot of its training, and its file."""
    found = [*checkpoints.find(session.FOLDER), *checkpoints.find_runs(session.RUNS)]
    paths = {path.stem: path for path in found}
    brought = st.session_state.get(session.UPLOADS, {})
    names = sorted(paths, key=lambda name: (name != FIRST, found.index(paths[name]))) + list(brought)
    if not names:
        st.error(f"No checkpoint lies in {session.FOLDER.name}/. Put one there (.pt), or bring your own below.")
        uploads.draw()
        st.stop()
    asked = st.query_params.get(session.CHECKPOINT)
    if asked is not None and asked not in names:
        st.warning(f"The link asks for the checkpoint {asked}, which is not here: bring it below. Showing {names[0]}.")
    which, when = st.columns([3, 2])
    name = which.selectbox(
        "Checkpoint", names, key=session.CHECKPOINT, bind="query-params", on_change=session.forget_head
    )
    name = name or names[0]
    if name in paths:
        with when:
            paths[name] = _choose_step(paths[name])
    checkpoint = _load(name, paths, brought, names)
    config = checkpoint.model.config
    st.caption(
        f"{checkpoint.model.count():,} parameters · {config.layers} × {config.heads} heads · d = {config.d_model} · "
        f"T = {config.context} · V = {config.d_vocab} · {checkpoint.short_hash}"
    )
    uploads.draw()
    return checkpoint, paths.get(name)


def _choose_step(path: Path) -> Path:
    """One of the snapshots of a checkpoint's training, or the checkpoint itself."""
    snapshots = run_files.snapshots(path)
    options = [LAST, *(f"{step}" for step in snapshots)]
    if len(options) == 1:
        return path
    asked = st.query_params.get(session.STEP)
    if asked is not None and asked not in options:
        st.warning(f"No snapshot at step {asked}: showing the last.")
    step = st.selectbox(
        "At step", options, key=session.STEP, bind="query-params", on_change=session.forget_head,
        help="Snapshots of its training: the same page, earlier in the life of the model.",
    )  # fmt: skip
    return path if step is None or step == LAST else snapshots[int(step)]


def _load(name: str, paths: dict[str, Path], brought: dict, names: list[str]) -> Checkpoint:
    """The named checkpoint, or the first that can be read, with a word about the one that cannot."""
    for candidate in (name, *(other for other in names if other != name)):
        try:
            if candidate in brought:
                return brought[candidate].load()
            return cache.checkpoint_of(paths[candidate])
        except (CheckpointError, OSError) as error:
            st.error(f"{candidate}: {error}")
    st.stop()


def _choose_text(checkpoint: Checkpoint) -> Text:
    brought = st.session_state.get(session.TEXTS, {})
    options = [OWN, *corpora.NAMES, *synthetic.KINDS, *brought, PASTE]
    trained_on = checkpoint.card.get("text", {}).get("name") or checkpoint.vocabulary_source
    known = trained_on in brought or trained_on in synthetic.KINDS or corpora.is_local(trained_on)
    default = trained_on if known else OWN
    name = st.selectbox("Text", options, options.index(default), key=session.TEXT, bind="query-params", help=TEXT_HELP)
    try:
        text = _text(name, checkpoint, brought)
    except (TextUnavailable, UnknownCharacters, ValueError) as error:
        st.error(f"{error}")
        text = _own_samples(checkpoint)
        st.caption("Going on with samples of the checkpoint itself.")
    dropped = f" · {text.dropped:,} characters left out" if text.dropped else ""
    st.caption(f"{len(text):,} tokens, {len(text.validation):,} of them held out{dropped} · {text.sha256[:8]}")
    if name == OWN and not corpora.is_local("tiny-shakespeare") and trained_on == "tiny-shakespeare":
        st.caption(
            ":material/cloud_off: tiny Shakespeare is not on this machine, so the checkpoint's own samples are read. "
            "Fetch it once (1.1 MB), or set LOUPE_DATA to a folder that holds it."
        )
        st.button("Fetch tiny Shakespeare", on_click=fetch)
    return text


def _text(name: str, checkpoint: Checkpoint, brought: dict[str, str]) -> Text:
    if name == OWN:
        return _own_samples(checkpoint)
    if name in synthetic.KINDS:
        config = checkpoint.model.config
        return corpora.from_windows(
            name, synthetic.KINDS[name](config.d_vocab, config.context + 1, SYNTHETIC_WINDOWS, 0)
        )
    if name == PASTE:
        characters = st.text_area(
            "Your text", key=session.PASTE, height=120, max_chars=200_000, persist_state="session"
        )
        if not characters:
            raise ValueError("Paste a text above: at least a few thousand characters.")
    elif name in brought:
        characters = brought[name]
    elif corpora.is_local(name):
        characters = cache.characters(name)
    else:
        st.button("Fetch tiny Shakespeare", on_click=fetch)
        raise TextUnavailable("tiny Shakespeare is not on this machine: fetch it once (1.1 MB), or set LOUPE_DATA.")
    return _encoded(name, characters, checkpoint)


def _encoded(name: str, characters: str, checkpoint: Checkpoint) -> Text:
    """The text in the checkpoint's tokens; characters it does not know are left out only if the visitor says so."""
    tokenizer = checkpoint.tokenizer
    vocabulary = (
        "" if isinstance(tokenizer, NumberTokenizer) else "".join(tokenizer.label(t) for t in range(tokenizer.size))
    )
    key = (name, cache.text_hash(characters), vocabulary)
    try:
        return cache.text(*key, False, characters, tokenizer)
    except UnknownCharacters as error:
        share = sum(error.counts.values()) / len(characters)
        if not st.checkbox(f"Leave out what it does not know ({share:.1%} of the text)", key=session.DROP):
            raise
        return cache.text(*key, True, characters, tokenizer)


def _own_samples(checkpoint: Checkpoint) -> Text:
    return with_progress(
        "Drawing samples from the checkpoint",
        lambda tell: cache.own_samples(checkpoint.sha256, 0, checkpoint.model, tell),
    )


def fetch() -> None:
    """Brings tiny Shakespeare to this machine, or says why not."""
    try:
        corpora.read("tiny-shakespeare")
        st.session_state[session.TEXT] = "tiny-shakespeare"
    except TextUnavailable as error:
        st.toast(str(error), icon=":material/cloud_off:")
