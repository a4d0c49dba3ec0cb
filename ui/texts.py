"""The sidebar's second question: which text."""

import streamlit as st

from interp_core import corpora, synthetic
from interp_core.checkpoints import Checkpoint
from interp_core.corpora import Text, TextUnavailable
from interp_core.tokenizers import UnknownCharacters
from ui import cache, session
from ui.progress import with_progress

OWN = corpora.OWN_SAMPLES
PASTE = "paste your own"
TEXT_HELP = (
    "own-samples: windows drawn from the checkpoint itself at temperature 1; the first token comes from what it writes in "
    "the long run. repeats, periodic, alphabet, successors: random sequences with a known structure."
)
SYNTHETIC_WINDOWS = 512


def choose_text(checkpoint: Checkpoint, length: int, asks: bool = False) -> Text | None:
    """The chosen text in the checkpoint's tokens; samples of the checkpoint where it cannot be read.

    Args:
        checkpoint: whose tokens.
        length: tokens of a window, so long are its own samples.
        asks: whether its number of heads is unknown, so that it can draw no samples; then None where nothing can be read.
    """
    brought = st.session_state.get(session.TEXTS, {})
    options = [OWN, *corpora.NAMES, *synthetic.KINDS, *brought, PASTE]
    trained_on = checkpoint.card.get("text", {}).get("name") or checkpoint.vocabulary_source
    known = trained_on in brought or trained_on in synthetic.KINDS or corpora.is_local(trained_on)
    default = trained_on if known else OWN
    name = st.selectbox("Text", options, options.index(default), key=session.TEXT, bind="query-params", help=TEXT_HELP)
    try:
        if name == OWN and asks:
            return None
        text = _text(name, checkpoint, brought, length)
    except (TextUnavailable, UnknownCharacters, ValueError) as error:
        st.error(f"{error}")
        if asks:
            return None
        text = own_samples(checkpoint, length)
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


def _text(name: str, checkpoint: Checkpoint, brought: dict[str, str], length: int) -> Text:
    if name == OWN:
        return own_samples(checkpoint, length)
    if name in synthetic.KINDS:
        d_vocab = checkpoint.model.config.d_vocab
        return corpora.from_windows(name, synthetic.KINDS[name](d_vocab, length + 1, SYNTHETIC_WINDOWS, 0))
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
    key = (name, cache.text_hash(characters), tokenizer.identity)
    try:
        return cache.text(*key, False, characters, tokenizer)
    except UnknownCharacters as error:
        share = sum(error.counts.values()) / len(characters)
        if not st.checkbox(f"Leave out what it does not know ({share:.1%} of the text)", key=session.DROP):
            raise
        return cache.text(*key, True, characters, tokenizer)


def own_samples(checkpoint: Checkpoint, length: int) -> Text:
    """Windows of `length` + 1 tokens drawn from a checkpoint itself, as a text."""
    return with_progress(
        "Drawing samples from the checkpoint",
        lambda tell: cache.own_samples(checkpoint.sha256, 0, length, checkpoint.model, tell),
    )


def fetch() -> None:
    """Brings tiny Shakespeare to this machine, or says why not."""
    try:
        corpora.read("tiny-shakespeare")
        st.session_state[session.TEXT] = "tiny-shakespeare"
    except TextUnavailable as error:
        st.toast(str(error), icon=":material/cloud_off:")
