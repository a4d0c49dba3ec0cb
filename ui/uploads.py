"""Bringing one's own checkpoint, with its text or its vocabulary. A bad file changes nothing but a message."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from interp_core import checkpoints, corpora
from interp_core.checkpoints import Checkpoint, CheckpointError, Vocabulary
from ui import cache, session

YOURS = " (yours)"  # behind the name of a checkpoint that a visitor brought
MOST = 3  # checkpoints kept for a visit
TEXT_BYTES = 50_000_000


@dataclass(frozen=True)
class Papers:
    """What came with a checkpoint."""

    vocabulary: Vocabulary | None = None
    card: Mapping[str, Any] | None = None
    text: str | None = None


@dataclass(frozen=True, eq=False)
class Upload:
    """A checkpoint as it came, so that it can be read again when the cache has dropped it."""

    name: str
    data: bytes
    sha256: str
    card: Mapping[str, Any] | None
    vocabulary: Vocabulary | None

    def load(self) -> Checkpoint:
        """The checkpoint, read once for all visitors who bring the same bytes."""
        return cache.checkpoint_upload(
            self.sha256,
            str(self.vocabulary),
            lambda: checkpoints.read(self.data, self.name, self.card, self.vocabulary),
        )


def draw() -> None:
    """The two uploaders, and what was wrong with the last file."""
    with st.expander("Bring your own", icon=":material/upload:", expanded=session.UPLOAD_ERROR in st.session_state):
        st.file_uploader(
            "Checkpoint (.pt, .safetensors)", key=session.UPLOAD, on_change=_take,
            help="A state dict of the course's GPT class: torch.save(model.state_dict(), 'model.pt').",
        )  # fmt: skip
        st.file_uploader(
            "Its text (.txt), vocabulary or card (.json)", key=session.PAPERS, on_change=_take,
            help="The text that it was trained on names its tokens: the distinct characters, sorted.",
        )  # fmt: skip
        if session.UPLOAD_ERROR in st.session_state:
            st.error(st.session_state[session.UPLOAD_ERROR])
        if session.UPLOAD_NOTE in st.session_state:
            st.warning(st.session_state[session.UPLOAD_NOTE])


def _take() -> None:
    """Reads what lies in the uploaders; on success it is chosen, on failure all stays as it was."""
    st.session_state.pop(session.UPLOAD_ERROR, None)
    st.session_state.pop(session.UPLOAD_NOTE, None)
    file, papers = st.session_state.get(session.UPLOAD), st.session_state.get(session.PAPERS)
    try:
        brought = Papers() if papers is None else _read_papers(papers.getvalue(), papers.name)
        if file is not None:
            _keep(_read(file.getvalue(), file.name.rsplit(".", 1)[0], brought))
    except CheckpointError as error:
        st.session_state[session.UPLOAD_ERROR] = str(error)
        return
    if papers is not None and brought.text is not None:
        st.session_state.setdefault(session.TEXTS, {})[papers.name] = brought.text
        st.session_state[session.TEXT] = papers.name


def _read_papers(data: bytes, name: str) -> Papers:
    if len(data) > TEXT_BYTES:
        raise CheckpointError(f"{name} has {len(data):,} bytes, more than the {TEXT_BYTES:,} that are read here.")
    vocabulary = checkpoints.read_vocabulary(data, name)
    if not name.lower().endswith(".json"):
        return Papers(vocabulary, text=data.decode("utf-8"))
    try:
        card = checkpoints.read_card(data)
    except CheckpointError:  # a plain list of characters
        return Papers(vocabulary)
    return Papers(vocabulary, card if "sha256" in card else None)


def _read(data: bytes, name: str, papers: Papers) -> Upload:
    size = checkpoints.read(data, name, papers.card).model.config.d_vocab
    vocabulary, guess = papers.vocabulary, _guess(size)
    if vocabulary is None:
        vocabulary = guess
    elif papers.text is not None and len(vocabulary.characters) != size and guess is not None:
        st.session_state[session.UPLOAD_NOTE] = (
            f"{vocabulary.source} has {len(vocabulary.characters)} distinct characters and the checkpoint {size} tokens, so it "
            f"is kept as a text only. The vocabulary is {guess.source}."
        )
        vocabulary = guess
    upload = Upload(name + YOURS, data, hashlib.sha256(data).hexdigest(), papers.card, vocabulary)
    upload.load()
    return upload


def _guess(size: int) -> Vocabulary | None:
    """The characters of a text of this machine, or of a shipped checkpoint, when their number is the right one."""
    for name in corpora.NAMES:
        if corpora.is_local(name) and len(cache.vocabulary_of(name).characters) == size:
            return cache.vocabulary_of(name)
    for path in session.FOLDER.glob("*.json"):
        card = checkpoints.read_card(path.read_bytes())
        if len(card.get("vocabulary") or ()) == size:
            return Vocabulary(tuple(card["vocabulary"]), f"assumed: the same {size} characters as {path.stem}'s")
    return None


def _keep(upload: Upload) -> None:
    kept = {**st.session_state.get(session.UPLOADS, {}), upload.name: upload}
    st.session_state[session.UPLOADS] = dict(list(kept.items())[-MOST:])
    st.session_state[session.CHECKPOINT] = upload.name
    session.forget_head()
