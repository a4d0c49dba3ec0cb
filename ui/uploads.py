"""Bringing one's own checkpoint, with its papers. A bad file changes nothing but a message."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import streamlit as st

from interp_core import bundles, checkpoints, corpora
from interp_core.checkpoints import Checkpoint, CheckpointError, HeadsMissing, Papers, Vocabulary
from ui import cache, session

YOURS = " (yours)"  # behind the name of a checkpoint that a visitor brought
MOST = 3  # checkpoints kept for a visit
TEXT_BYTES = 50_000_000
READ = (
    "The state dict, or a whole training checkpoint, of the course's GPT, the lecture's, nanoGPT, build-nanogpt, minGPT, "
    "LLMs-from-scratch, TransformerLens or Hugging Face GPT-2; or a zip of it with its config.json and tokenizer.json."
)


@dataclass(frozen=True, eq=False)
class Upload:
    """A checkpoint as it came, so that it can be read again when the cache has dropped it."""

    name: str
    file: str  # what it was called
    data: bytes
    sha256: str
    papers: Papers
    packed: bool = False  # whether its papers came in one archive with it

    def load(self, answers: Mapping[str, Any] | None = None) -> Checkpoint:
        """The checkpoint, read once for all visitors who bring the same bytes and papers and answer alike.

        Raises:
            CheckpointError: as `checkpoints.read`.
        """
        key = (
            f"{self.sha256} {hashlib.sha256(repr(self.papers).encode()).hexdigest()} {sorted((answers or {}).items())}"
        )
        return cache.checkpoint_upload(
            key, lambda: checkpoints.read(self.data, self.name, self.papers, answers=answers)
        )


def draw() -> None:
    """The two uploaders, and what was wrong with the last file."""
    with st.expander("Bring your own", icon=":material/upload:", expanded=session.UPLOAD_ERROR in st.session_state):
        if session.UPLOAD_ERROR in st.session_state:
            st.error(st.session_state[session.UPLOAD_ERROR])
        if session.UPLOAD_NOTE in st.session_state:
            st.warning(st.session_state[session.UPLOAD_NOTE])
        st.file_uploader("Checkpoint (.pt, .safetensors, .zip, …)", key=session.UPLOAD, on_change=_take, help=READ)
        st.file_uploader(
            "Its text, vocabulary, config or card", key=session.PAPERS, on_change=_take, accept_multiple_files=True,
            help="The text that it was trained on (.txt), whose distinct characters, sorted, name its tokens; nanoGPT's "
            "meta.pkl; tokenizer.json, or vocab.json and merges.txt; config.json; a card of ours.",
        )  # fmt: skip
        st.caption(f"Larger than the limit? Put the file, or its folder, into {session.FOLDER.name}/ and reload.")


def _take() -> None:
    """Reads what lies in the uploaders; on success it is chosen, on failure all stays as it was."""
    st.session_state.pop(session.UPLOAD_ERROR, None)
    st.session_state.pop(session.UPLOAD_NOTE, None)
    file, papers = st.session_state.get(session.UPLOAD), st.session_state.get(session.PAPERS) or []
    try:
        brought = checkpoints.read_papers({paper.name: paper.getvalue() for paper in papers})
        if file is not None:
            _keep(_read(file.getvalue(), file.name, brought))
    except CheckpointError as error:
        st.session_state[session.UPLOAD_ERROR] = str(error)
        return
    if brought.text is not None:
        name, characters = brought.text
        st.session_state.setdefault(session.TEXTS, {})[name] = characters
        st.session_state[session.TEXT] = name


def _read(data: bytes, file: str, papers: Papers) -> Upload:
    name, packed = file.rsplit(".", 1)[0], bundles.is_bundle(data)
    if packed:
        bundle = bundles.unpack(data)
        data, papers = _bytes(bundle.weights), papers.over(bundle.papers)
    upload = Upload(name + YOURS, file, data, hashlib.sha256(data).hexdigest(), papers, packed)
    size = _size(replace(upload, papers=replace(papers, vocabulary=None)))
    found = papers.vocabulary
    if found is not None and papers.only_text and found.count != size:
        other = guess(size)
        if other is not None:
            st.session_state[session.UPLOAD_NOTE] = (
                f"{found.source} has {found.count} distinct characters and the checkpoint {size} tokens, so it is kept as a "
                f"text only. The vocabulary is {other.source}."
            )
            upload = replace(upload, papers=replace(papers, vocabulary=None))
    open_with(upload.load, {})
    return upload


def _bytes(weights: object) -> bytes:
    assert isinstance(weights, bytes)  # an archive in memory gives bytes
    return weights


def _size(upload: Upload) -> int:
    return open_with(upload.load, {})[0].model.config.d_vocab


def open_with(load: Any, answers: Mapping[str, Any]) -> tuple[Checkpoint, bool]:
    """What `load` reads with these answers, and whether its number of heads is still a stopgap that has to be confirmed.

    Raises:
        CheckpointError: it cannot be read whatever the answer.
    """
    try:
        return load(answers), False
    except HeadsMissing as missing:
        return load({**answers, "heads": missing.options[len(missing.options) // 2]}), True


def guess(size: int) -> Vocabulary | None:
    """The characters of a text of this visit or machine, or of a shipped checkpoint, when their number is the right one."""
    for name, characters in st.session_state.get(session.TEXTS, {}).items():
        found = checkpoints.vocabulary_of_text(characters, name)
        if found.count == size:
            return found
    for name in corpora.NAMES:
        if corpora.is_local(name) and cache.vocabulary_of(name).count == size:
            return cache.vocabulary_of(name)
    for path in checkpoints.find(session.FOLDER):
        card = _card_beside(path)
        if len(card.get("vocabulary") or ()) == size:
            return Vocabulary(tuple(card["vocabulary"]), f"assumed: the same {size} characters as {path.stem}'s")
    return None


def _card_beside(path: Path) -> Mapping[str, Any]:
    """The card of a shipped checkpoint; nothing where another file lies in its place."""
    beside = path.with_suffix(".json")
    try:
        return checkpoints.read_card(beside.read_bytes()) if beside.is_file() else {}
    except CheckpointError:
        return {}


def _keep(upload: Upload) -> None:
    kept = {**st.session_state.get(session.UPLOADS, {}), upload.name: upload}
    st.session_state[session.UPLOADS] = dict(list(kept.items())[-MOST:])
    st.session_state.get(session.ANSWERS, {}).pop(upload.name, None)
    st.session_state[session.CHECKPOINT] = upload.name
    session.forget_head()
