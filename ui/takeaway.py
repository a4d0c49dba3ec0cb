"""What every page ends its result with: where the numbers come from, and how to carry them home."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

import altair as alt
import pandas as pd
import streamlit as st

from interp_core import corpora, synthetic
from interp_core.tokenizers import CharTokenizer, SubwordTokenizer
from ui import effort, session, uploads
from ui.bench import Bench
from ui.charts.theme import svg
from ui.texts import OWN, PASTE, SYNTHETIC_WINDOWS

KNOWN_TEXTS = (OWN, *corpora.NAMES, *synthetic.KINDS)
BENCH_KEYS = (session.CHECKPOINT, session.STEP, session.LENGTH, session.TEXT, session.WINDOWS, session.SEED)


def takeaway(
    bench: Bench | None,
    name: str,
    table: pd.DataFrame,
    chart: alt.Chart | alt.LayerChart | alt.HConcatChart | None,
    code: str,
    keys: Sequence[str],
    provenance: str | None = None,
) -> None:
    """The provenance line and, beside it, the table as CSV, the figure as SVG, a link to this view, and its Python.

    Args:
        bench: what was measured; None where that is no checkpoint.
        name: of the files, without ending.
        table: behind the main figure.
        chart: the main figure; None when there is nothing to draw.
        code: gives the same numbers from `interp_core`.
        keys: the page's own widgets that belong to the view.
        provenance: where the numbers come from; the bench by default, and needed without one.
    """
    st.caption(provenance or (bench.provenance if bench is not None else ""))
    with st.container(horizontal=True, gap="small"):
        st.download_button(
            "CSV", table.to_csv(index=False), f"{name}.csv", "text/csv", icon=":material/table:", on_click="ignore"
        )
        if chart is not None:
            st.download_button(
                "Figure",
                partial(svg, chart),
                f"{name}.svg",
                "image/svg+xml",
                icon=":material/image:",
                on_click="ignore",
            )
        with st.popover("Link", icon=":material/link:"):
            st.caption("Opens this exact view:")
            if bench is not None and _brought(bench):
                st.caption("It does not carry your files: whoever opens it must bring them too.")
            st.code(_link(keys if bench is None else (*BENCH_KEYS, *keys)), language=None, wrap_lines=True)
        with st.popover("Python", icon=":material/code:"):
            st.caption("Gives the same numbers, run from the project's folder:")
            st.code(code, language="python")


def _brought(bench: Bench) -> bool:
    """Whether something on the bench came with the visitor."""
    return bench.checkpoint.name.endswith(uploads.YOURS) or bench.text.name not in KNOWN_TEXTS


def load_lines(bench: Bench, *techniques: str) -> str:
    """The first lines of every page's Python: the modules, the checkpoint, the text and the windows on the bench."""
    (count, length), seed, text = bench.windows.shape, bench.seed, _text_call(bench)
    needed = {"checkpoints", "corpora", *techniques} | {name for name in ("samples", "synthetic") if f"{name}." in text}
    return "\n".join(
        [
            f"from interp_core import {', '.join(sorted(needed))}",
            "",
            f"checkpoint = {_checkpoint_call(bench)}",
            f"text = {text}",
            f"windows = corpora.windows(text.validation, {length - 1}, count={count}, seed={seed})",
        ]
    )


def _checkpoint_call(bench: Bench) -> str:
    checkpoint = bench.checkpoint
    upload = st.session_state.get(session.UPLOADS, {}).get(checkpoint.name)
    given = [repr(shown_path(bench.path) if bench.path is not None else upload.file if upload else checkpoint.name)]
    named = checkpoint.vocabulary_source not in ("card", "the checkpoint's own file") and not (upload and upload.packed)
    if isinstance(checkpoint.tokenizer, CharTokenizer) and named:
        characters = "".join(checkpoint.tokenizer.vocabulary)
        given.append(f"checkpoints.Vocabulary(tuple({characters!r}), 'here')")
    elif isinstance(checkpoint.tokenizer, SubwordTokenizer) and upload and not upload.packed:
        given.append("checkpoints.read_vocabulary(open('tokenizer.json', 'rb').read(), 'tokenizer.json')")
    answers = dict(checkpoint.answers)
    if upload and not upload.packed and upload.papers.settings:  # the file alone does not say what its config said
        config = checkpoint.model.config
        answers = {name: getattr(config, name) for name in ("heads", "activation", "norm_eps", "score_scale")} | answers
    if answers:
        given.append(f"answers={answers!r}")
    return f"checkpoints.load({', '.join(given)})"


def shown_path(path: Path) -> str:
    """As seen from the project's folder, where the Python is to be run."""
    home = session.APP.parent
    return path.relative_to(home).as_posix() if path.is_relative_to(home) else str(path)


def _text_call(bench: Bench) -> str:
    name, model, length = bench.text.name, bench.checkpoint.model, bench.windows.shape[1] - 1
    unknown = ', "drop"' if bench.text.dropped else ""
    if name == OWN:
        count = effort.own_count(model, length)
        return (
            f'corpora.from_windows("{name}", samples.own_windows(checkpoint.model, {count}, seed=0, length={length}))'
        )
    if name in synthetic.KINDS:
        drawn = f"synthetic.{name}({model.config.d_vocab}, {length + 1}, {SYNTHETIC_WINDOWS}, seed=0)"
        return f'corpora.from_windows("{name}", {drawn})'
    if name in corpora.NAMES:
        return f'corpora.load("{name}", checkpoint.tokenizer{unknown})'
    file = "paste.txt" if name == PASTE else name  # a paste is to be saved under this name
    return (
        f"corpora.encode({name!r}, open({file!r}, encoding='utf-8', newline='').read(), checkpoint.tokenizer{unknown})"
    )


def _link(keys: Sequence[str]) -> str:
    state = {key: st.session_state[key] for key in keys if st.session_state.get(key) is not None}
    return f"{st.context.url or ''}?{urlencode(state)}"
