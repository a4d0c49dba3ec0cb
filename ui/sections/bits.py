"""Bits a character: the story of language models in rows, each measured on the same held-out characters."""

from dataclasses import dataclass
from pathlib import Path

import altair as alt
import pandas as pd
import streamlit as st
import torch

from interp_core import baselines, bits_per_char, checkpoints, corpora, jobs, run_files
from interp_core.bits_per_char import Row
from interp_core.checkpoints import Checkpoint
from interp_core.corpora import Text
from interp_core.statistics import interval
from interp_core.tokenizers import CharTokenizer
from ui import cache, runs, session, wording
from ui.charts import train as charts
from ui.progress import with_progress
from ui.takeaway import shown_path

NEW_RUN = "a new run"


@dataclass(frozen=True, eq=False)
class Story:
    """All rows on one text."""

    text: Text
    context: int
    rows: list[Row]
    checkpoint: Checkpoint
    path: Path  # its file
    mlp: Path  # where its Bengio model is, or will be

    def table(self) -> pd.DataFrame:
        """A row a predictor, with the paired difference to the row before it."""
        found = []
        for before, row in zip([None, *self.rows], self.rows, strict=False):
            gained = "" if before is None else wording.plus_minus(interval(before.windows - row.windows, 0))
            ends: dict[str, object] = {"bits": row.bits.estimate, "low": row.bits.low, "high": row.bits.high}
            size = {"parameters": row.parameters, "seconds": row.seconds, "kind": row.kind}
            ends |= {"shown": wording.plus_minus(row.bits)}
            found.append({"name": row.name, **ends, "better than the row above": gained, **size})
        return pd.DataFrame(found)

    @property
    def provenance(self) -> str:
        """Where the numbers come from."""
        count = len(self.rows[0].windows)
        return (
            f"text {self.text.name} ({self.text.sha256[:8]}) · all {count:,} disjoint windows of {self.context} targets in its "
            f"last tenth, the same targets in every row · checkpoint {self.checkpoint.name} ({self.checkpoint.short_hash})"
        )


def open_story() -> Story | None:
    """Chooses a GPT, and measures everything on the text that it was trained on; None, with a word, where there is none."""
    paths = [*checkpoints.find_runs(session.RUNS), *checkpoints.find(session.FOLDER)]
    known = {path.stem: path for path in paths if _text_of(path) is not None}
    if not known:
        st.info("No GPT that was trained on a text of this machine: train one, or fetch tiny Shakespeare.")
        return None
    names = list(known)
    run = st.session_state.get(session.RUN)
    usual = run if run in names else "shakespeare" if "shakespeare" in names else names[0]
    session.default_to(session.COMPARED, names, usual)
    with st.sidebar:
        name = st.selectbox("GPT in the table", names, key=session.COMPARED, bind="query-params") or names[0]
    checkpoint = cache.checkpoint_of(known[name])
    characters = _text_of(known[name]) or ""
    assert isinstance(checkpoint.tokenizer, CharTokenizer)
    vocabulary = "".join(checkpoint.tokenizer.vocabulary)
    digest = cache.text_hash(characters)
    text = cache.text(str(checkpoint.card["text"]["name"]), digest, vocabulary, False, characters, checkpoint.tokenizer)
    context, size = checkpoint.model.config.context, checkpoint.tokenizer.size
    rows = list(cache.bits_of_counts(f"{digest} {vocabulary}", context, text, size))
    place = session.RUNS / f"mlp-{digest[:12]}" / "bengio.safetensors"
    if place.is_file():
        try:
            rows.append(cache.bits_of_bengio(str(place), place.stat().st_mtime_ns, digest, context, text))
        except ValueError as error:
            st.error(f"{error}")
    rows.append(
        with_progress(
            f"Reading all of the held-out text with {name}",
            lambda tell: cache.bits_of_gpt(checkpoint.sha256, digest, checkpoint, text, tell),
        )
    )
    return Story(text, context, rows, checkpoint, known[name], place)


def claim(story: Story) -> None:
    """The GPT, its control, and what lies between."""
    gpt, pairs = story.rows[-1], next(row for row in story.rows if row.name.startswith("bigram"))
    mine, control, gained = st.columns(3)
    gained_bits = interval(pairs.windows - gpt.windows, 0)
    mine.metric(f"{story.checkpoint.name}, bits a character", wording.plus_minus(gpt.bits))
    tokens = torch.cat([story.text.train, story.text.validation])
    same = baselines.bigram_in_sample(tokens, story.checkpoint.model.config.d_vocab) / bits_per_char.NATS_PER_BIT
    control.metric(
        "control: pair counts, held out", wording.plus_minus(pairs.bits),
        help=f"Counted on the training part, one added to each pair. Counted and measured on the same text they need {same:.2f}, "
        "which is what a table in a course may show: in-sample.",
    )  # fmt: skip
    gained.metric("it needs less by", wording.plus_minus(gained_bits))
    mlp = next((row for row in story.rows if row.kind == "MLP"), None)
    over_mlp = None if mlp is None else interval(mlp.windows - gpt.windows, 0)
    good, verdict = wording.bits_verdict(story.checkpoint.name, gained_bits, over_mlp)
    st.badge(
        verdict, icon=":material/check:" if good else ":material/question_mark:", color="green" if good else "orange"
    )


def draw(story: Story) -> tuple[alt.LayerChart, pd.DataFrame]:
    """The bars, what can be trained for them, and the table."""
    table = story.table()
    figure, about = st.columns([5, 3], gap="medium")
    chart = charts.bits(table)
    with figure:
        st.altair_chart(chart, alt="Bits a character of counts, the MLP and the GPT on the same held-out text.")
        low, high = bits_per_char.SHANNON
        st.caption(
            f"Each bar with its 95% interval over windows. For scale: readers of English need {low} to {high} bits a *letter* "
            "(Shannon 1951: 27 letters, no case or punctuation, 100 letters before it), so not quite the same question."
        )
    with about:
        _bengio(story)
        st.button("Train a GPT", icon=":material/play_arrow:", on_click=to_new_run)
        st.caption(
            "Counts are made at once, on the training part, with one added to each. The MLP looks back three characters and the "
            "GPT a whole context; choose another GPT in the sidebar."
        )
    st.dataframe(
        table.drop(columns=["kind", "shown"]).round({"bits": 3, "low": 3, "high": 3}), hide_index=True, row_height=28,
        column_config={"seconds": st.column_config.NumberColumn("training, s", format="%.1f")},
    )  # fmt: skip
    return chart, table


def to_new_run() -> None:
    """Opens the form of a new run."""
    st.session_state[session.RUN] = NEW_RUN
    st.session_state[session.TRAIN_VIEW] = None


@st.fragment(run_every=1.0)
def _progress(folder: Path) -> None:
    job = jobs.look(folder)
    if job is None or not job.active:
        st.rerun()
    records = run_files.records(folder / "bengio.safetensors")
    share = records[-1]["step"] / records[-1]["steps"] if records else 0.0
    words = f"place {job.place} in the line" if job.state == "queued" else f"training the MLP ({share:.0%})"
    st.progress(share, words)


def _bengio(story: Story) -> None:
    """The state of the MLP: trained, in training, or to be trained with one click."""
    folder = story.mlp.parent
    if story.mlp.is_file():
        return
    job = jobs.look(folder)
    if job is not None and job.active:
        _progress(folder)
        return
    if job is not None and job.state == "failed":
        st.error(job.message)
    st.button(
        "Train the Bengio MLP (20 s)",
        icon=":material/play_arrow:",
        on_click=_train_bengio,
        args=(story.text.name, folder),
    )


def _train_bengio(text: str, folder: Path) -> None:
    try:
        if (folder / "job.json").is_file():
            jobs.resume(jobs.read(folder))
            return
        run = next((run for run in runs.find() if run.plan.file is not None and run.plan.file.name == text), None)
        given = {} if run is None or run.plan.file is None else {"text.txt": run.plan.file.read_bytes()}
        which = ["--file", f"{jobs.FOLDER}/text.txt"] if given else ["--text", text]
        jobs.submit(
            folder.parent, folder.name, runs.BENGIO, [*which, "--out", f"{jobs.FOLDER}/bengio.safetensors"], given
        )
    except (jobs.JobError, OSError) as error:
        st.session_state[session.TRAIN_ERROR] = str(error)


def _text_of(path: Path) -> str | None:
    """The text that a checkpoint was trained on, as far as it is on this machine."""
    try:
        card = cache.checkpoint_of(path).card
    except (checkpoints.CheckpointError, OSError):
        return None
    text = card.get("text", {})
    if not card.get("vocabulary") or not text.get("sha256"):
        return None
    name = str(text.get("name"))
    own = path.parent / name
    if corpora.is_local(name):
        return cache.characters(name)
    return own.read_bytes().decode("utf-8") if path.parent != session.FOLDER and own.is_file() else None


def code(story: Story) -> str:
    """The Python that gives the same numbers."""
    name, gpt = story.text.name, story.checkpoint.name
    text = f"corpora.load({name!r}, checkpoint.tokenizer)"
    if name not in corpora.NAMES:  # a text of the run's own lies beside its checkpoint
        file = shown_path(story.path.parent / name)
        text = f"corpora.encode({name!r}, corpora.read_file(Path({file!r})), checkpoint.tokenizer)"
    return f"""from pathlib import Path

from interp_core import bengio, bits_per_char, checkpoints, corpora

checkpoint = checkpoints.load({shown_path(story.path)!r})
text = {text}
rows = bits_per_char.of_counts(text, checkpoint.tokenizer.size, {story.context})
*_, (step, loss, model) = bengio.train(text.train, checkpoint.tokenizer.size)
rows.append(bits_per_char.of_bengio(model, text, {story.context}, seconds=0.0))
rows.append(bits_per_char.of_gpt("{gpt}", checkpoint.model, text, seconds=0.0))
for row in rows:
    print(row.name, row.bits)"""
