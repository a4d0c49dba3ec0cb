"""What a visit remembers, and how it comes in. Nothing here imports torch, so a page can draw its title at once.

Widgets keep their own values under these keys; those with `bind="query-params"` are in the address too, so that a copied
address opens the same view.
"""

import importlib
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

import streamlit as st

APP = Path(__file__).parent.parent / "app.py"
FOLDER = APP.parent / "checkpoints"
RUNS = Path(os.environ.get("LOUPE_RUNS", FOLDER / "runs"))  # what is trained here

# Idle threads of torch then wait a moment and no longer: a training beside the app would otherwise slow both many times.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

# What each page asks; the start page lists them, app.py makes the navigation of them.
QUESTIONS = {
    "pages/train.py": ("Train", "what does a model learn, in which order, and how good is it?"),
    "pages/atlas.py": ("Atlas", "which heads can a person name?"),
    "pages/ablation.py": ("Ablation", "which parts does the model depend on?"),
    "pages/induction.py": ("Induction", "does it copy from its context, and by which circuit?"),
    "pages/probing.py": ("Probing", "is a category readable from a few neurons, and which, stably?"),
    "pages/sae.py": ("SAE", "which features does a layer write, and are they real?"),
    "pages/ged.py": ("GED", "does a category vary along a direction of its own, out of sample?"),
    "pages/tuning.py": ("Tuning", "is an update low rank, and what does it cost to please a reward?"),
}

CHECKPOINT = "checkpoint"  # widget: which checkpoint
STEP = "step"  # widget: which snapshot of its training
TEXT = "text"  # widget: which text
WINDOWS, LENGTH = "windows", "length"  # widgets: how many windows, and tokens of each
STARTED = "started"  # long measurements that this visitor asked for
SEED = "seed"  # widget
HEAD = "head"  # the selected head, "L0H3": goes along from page to page
DROP = "drop_unknown"  # widget: leave out characters that the vocabulary has not
PASTE = "pasted"  # widget: a text typed in
UPLOAD, PAPERS = "upload_checkpoint", "upload_papers"  # widgets: a file of weights; its text, vocabulary or card
UPLOADS, TEXTS = "uploads", "texts"  # checkpoints and texts that this visitor brought
UPLOAD_ERROR, UPLOAD_NOTE = "upload_error", "upload_note"  # what was wrong with the last file, or worth knowing
ANSWERS = "answers"  # what this visitor said of checkpoints whose files do not tell, by name
ASK = {f: f"ask_{f}" for f in ("heads", "activation", "score_scale", "norm", "norm_eps")}  # widgets of the form for it
EFFECTS, WRITE = "effects_of_choices", "let_it_write"  # widgets: what each choice does; a sample of its text
VIEW = "view"  # widget: which figure a page shows
THRESHOLD = "threshold"  # widget: what a score must pass to name a head
PATTERN, FROM = "pattern", "from_position"  # widgets: which pattern of one head, and from where
UNTRAINED = "untrained"  # widget: show an untrained model in the grid
PART, PAIR = "part", "pair"  # widgets: what is taken away, and the two heads looked at together
ABLATION_VIEW = "show"  # widget: which figure of the Ablation page
SEEN_HEAD = "seen_head"  # the selected head when the Ablation page last ran
MODE, UNIT = "mode", "unit"  # widgets: how it is taken away; nats or bits/char
CONTROL = "control_head"  # widget: the head beside it
LAYERS = "whole_layers"  # widget: show attention and MLPs too
BROKEN = "broken_text"  # widget: the text that is shown broken
HALF, COPIES, SEQUENCES = "repeat", "copies", "sequences"  # widgets: how random tokens are repeated
MARGIN, SOURCE = "margin", "tokens"  # widgets: the gain that would matter; how random tokens are drawn
INDUCTION_VIEW = "look"  # widget: which figure of the Induction page
RUN = "run"  # widget: which training run
TRAIN_VIEW = "watch"  # widget: which figure of the Train page
SCRUB = "at"  # widget: which snapshot the Train page shows
COMPARED = "compared"  # widget: which GPT stands in the table of bits a character
PRESET = "preset"  # widget: which training is proposed
NEW = {  # widgets of a new run's form, by the fields of a plan and its recipe
    name: f"new_{name}"
    for name in (
        "name", "text", "paste", "file", "layers", "heads", "d_model", "context", "mlp", "steps", "batch", "matrix_lr",
        "other_lr", "weight_decay", "dropout", "seed",
    )
}  # fmt: skip
SEEN_SNAPSHOTS = "seen_snapshots"  # how many a run had when the page was drawn
TRAIN_ERROR = "train_error"  # why a run could not be started, stopped, resumed or deleted
CATEGORY, AGAINST, PATTERN_TYPED = "category", "against", "regex"  # widgets: which tokens, compared with which
SITE, LAYER, TOKENS = "site", "layer", "read"  # widgets: where in the model, and how many tokens
SAMPLING = "sampling"  # widget: natural shares or as many of both
STRENGTH, STABLE, PAIRS, SHARE, NEURON = "sparsity", "stable", "pairs", "share", "neuron"  # widgets of the Probing page
JUDGED_BY, PROBING_VIEW = "judged", "probe"  # widgets: which figure; which picture
SAE, FEATURE, SAE_VIEW = "sae", "feature", "see"  # widgets: which autoencoder, which of its features, which picture
SEARCH, REPLICATED, STRENGTH_OF, SAE_TEXT = "search", "replicated", "amount", "read_text"  # widgets of the SAE page
SAE_FIGURE = "quality"  # widget: which figure of an autoencoder
SAE_ERROR = "sae_error"  # why an autoencoder could not be trained, stopped or deleted
TRACK = "track"  # widget: low-rank tuning or best of n
TUNING, TUNING_VIEW, TUNING_ERROR = (
    "tuning",
    "compare",
    "tuning_error",
)  # widgets: which sweep, which picture; what went wrong
NEW_TUNING = {name: f"tune_{name}" for name in ("target", "targets", "steps", "seeds", "drop")}  # widgets of the form
REWARD, BEST, POOL, LENGTH_OF = "reward", "best", "pool", "long"  # widgets: which reward, n, how many samples, how long
TUNED_BY = "tuned_by"  # widget: whose heads are shown
TERMS, REWARD_VIEW = "terms", "judge"  # widgets: the terms of a reward; which picture
NEW_SAE = {  # widgets of the form for a new one, by the fields of a plan and its recipe
    name: f"sae_{name}" for name in ("kind", "site", "layer", "expansion", "k", "l1", "steps", "lr", "seed", "controls")
}
SHRINK, SAMPLES, FIGURE, GED_VIEW = "shrinkage", "samples", "figure", "plot"  # widgets of the GED page
SENTENCE = "sentence"  # widget: the visitor's own sentence

# Streamlit leaves a tenth of a projector's height free above the title; claim and picture belong on the first screen.
TIGHT = """<style>
[data-testid=stMainBlockContainer] {padding: 2.2rem 2.5rem 2rem 2.5rem}
[data-testid=stSidebarHeader] {height: 2rem; margin-bottom: 0}
[data-testid=stHeader] {background: transparent}
</style>"""

_FRAMED = "_framed"  # app.py is running this page


def frame(page: st.Page) -> None:
    """Runs a page from app.py."""
    st.html(TIGHT)
    st.session_state[_FRAMED] = True
    try:
        page.run()
    finally:
        st.session_state[_FRAMED] = False


def guard() -> None:
    """First line of every page: puts the frame around a run that did not come through app.py.

    Because a folder is named `pages/`, Streamlit itself runs the page of a deep link that is the first visit after the
    server's start. app.py then runs in its place and finds the same page by the same address, so nothing is lost: no
    query parameter, no widget's value.
    """
    if not st.session_state.get(_FRAMED):
        runpy.run_path(str(APP), run_name="__main__")
        st.stop()


def warm_up() -> None:
    """After a page's title: on a fresh server, lets the browser load its chart library while Python loads torch."""
    if "torch" not in sys.modules:
        slot = st.empty()
        slot.vega_lite_chart({"data": {"values": []}, "mark": "point", "width": 1, "height": 1}, width="content")
        importlib.import_module("torch")
        slot.empty()


def take_head(chart: str) -> None:
    """Makes the head that was clicked in a chart the selected one."""
    picked = st.session_state[chart]["selection"].get("picked")
    if picked:
        st.session_state[HEAD] = picked[0]["head"]


def take_part(chart: str) -> None:
    """Makes the part that was clicked in a chart the selected one."""
    picked = st.session_state[chart]["selection"].get("picked")
    if picked:
        st.session_state[PART] = picked[0]["part"]


def take_pair(chart: str) -> None:
    """Makes the pair that was clicked in a chart the selected one."""
    picked = st.session_state[chart]["selection"].get("picked")
    if picked:
        st.session_state[PAIR] = f"{picked[0]['first']} + {picked[0]['second']}"


def take_neuron(chart: str) -> None:
    """Makes the neuron that was clicked in a chart the selected one."""
    picked = st.session_state[chart]["selection"].get("picked")
    if picked:
        st.session_state[NEURON] = str(picked[0]["neuron"])


def take_feature(chart: str) -> None:
    """Makes the feature that was clicked in a chart the selected one."""
    picked = st.session_state[chart]["selection"].get("picked")
    if picked:
        st.session_state[FEATURE] = int(picked[0]["feature"])


def forget_head() -> None:
    """Another checkpoint has its heads elsewhere: the one that stands out there is selected next."""
    for key in (HEAD, PART, PAIR, CONTROL):
        st.session_state[key] = None


def default_to(key: str, options: Sequence[str], default: str) -> None:
    """Gives a selectbox its default where neither the visitor nor the address has chosen one of its options.

    What was chosen on another page is written again: there the same key belonged to another widget, whose value would go
    with its page.
    """
    in_address = key not in st.session_state and st.query_params.get(key) in options
    if not in_address:
        chosen = st.session_state.get(key)
        st.session_state[key] = chosen if chosen in options else default


def keep_choice(key: str, options: Sequence[str]) -> None:
    """Forgets a choice that is no longer among the options, so that a widget falls back to its own default."""
    if key in st.session_state and st.session_state[key] not in options:
        del st.session_state[key]


def method(page: str) -> str:
    """The folded note of a page: how its numbers are measured."""
    return (APP.parent / "docs" / f"{page}.md").read_text()


def is_dark() -> bool:
    """Whether the visitor sees the dark theme."""
    return st.context.theme.type == "dark"
