"""Bringing one's own checkpoint, with its text or its vocabulary. A bad file changes nothing but a message."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from interp_core import checkpoints, corpora
from interp_core.checkpoints import Checkpoint, CheckpointError, Vocabulary
from ui import cache, session

MOST = 3  # checkpoints kept for a visit
TEXT_BYTES = 50_000_000


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
        characters = "" if self.vocabulary is None else "".join(self.vocabulary.characters)
        return cache.checkpoint_upload(
            self.sha256, characters, lambda: checkpoints.read(self.data, self.name, self.card, self.vocabulary)
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


def _take() -> None:
    """Reads what lies in the uploaders; on success the checkpoint is chosen, on failure all stays as it was."""
    st.session_state.pop(session.UPLOAD_ERROR, None)
    file, papers = st.session_state.get(session.UPLOAD), st.session_state.get(session.PAPERS)
    try:
        card, vocabulary = (None, None) if papers is None else _read_papers(papers.getvalue(), papers.name)
        if file is not None:
            _keep(_read(file.getvalue(), file.name.rsplit(".", 1)[0], card, vocabulary))
    except CheckpointError as error:
        st.session_state[session.UPLOAD_ERROR] = str(error)


def _read_papers(data: bytes, name: str) -> tuple[Mapping[str, Any] | None, Vocabulary | None]:
    """Card or vocabulary; a text is also kept as a text to measure on."""
    if len(data) > TEXT_BYTES:
        raise CheckpointError(f"{name} has {len(data):,} bytes, more than the {TEXT_BYTES:,} that are read here.")
    if name.lower().endswith(".json"):
        vocabulary = checkpoints.read_vocabulary(data, name)
        try:
            card = checkpoints.read_card(data)
        except CheckpointError:  # a plain list of characters
            return None, vocabulary
        return (card if "sha256" in card else None), vocabulary
    vocabulary = checkpoints.read_vocabulary(data, name)
    st.session_state.setdefault(session.TEXTS, {})[name] = data.decode("utf-8")
    return None, vocabulary


def _read(data: bytes, name: str, card: Mapping[str, Any] | None, vocabulary: Vocabulary | None) -> Upload:
    checkpoint = checkpoints.read(data, name, card, vocabulary)
    if vocabulary is None:
        vocabulary = _guess(checkpoint.model.config.d_vocab)
    upload = Upload(f"{name} (yours)", data, checkpoint.sha256, card, vocabulary)
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
