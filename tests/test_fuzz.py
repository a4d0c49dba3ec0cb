"""Whatever is done to the bytes of a real file, the answer is a checkpoint or a sentence, and memory stays bounded."""

import json
import resource

import pytest
import safetensors.torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interp_core import bundles, checkpoints
from interp_core.checkpoints import CheckpointError, Papers
from interp_core.model import GPT
from interp_core.papers import read_papers
from tests.course import course_model
from tests.foreign import from_scratch, gpt2_names, transformer_lens
from tests.test_checkpoints import saved
from tests.test_papers import CONFIG, LETTERS, META, byte_pairs

NANOGPT = gpt2_names.nanogpt_checkpoint(gpt2_names.nanogpt())
CARD = json.dumps({"sha256": "0", "config": {"heads": 4}, "vocabulary": list(LETTERS)}).encode()

# Saved once: the old format names storages by their addresses, so that a second file could differ in length.
WEIGHTS = {
    "course": saved(course_model().state_dict()),
    "before torch 1.6": saved(course_model().state_dict(), _use_new_zipfile_serialization=False),
    "nanoGPT with its optimizer": saved(NANOGPT),
    "build-nanogpt with an object": saved(gpt2_names.build_nanogpt_checkpoint(gpt2_names.build_nanogpt())),
    "TransformerLens": saved(transformer_lens.model().state_dict()),
    "safetensors": safetensors.torch.save(dict(from_scratch.model().state_dict())),
    "archive": bundles.pack({
        "gpt/model.safetensors": safetensors.torch.save(dict(gpt2_names.mingpt().state_dict())),
        "gpt/config.json": CONFIG, "gpt/meta.pkl": META,
    }),
}  # fmt: skip
PAPERS = {
    "card.json": CARD,
    "config.json": CONFIG,
    "meta.pkl": META,
    "tokenizer.json": byte_pairs(260).to_str().encode(),
    "text.txt": LETTERS.encode() * 9,
}
BOUND = 1_500_000  # kilobytes that all of it may add


@pytest.fixture(scope="module", autouse=True)
def _memory_stays_bounded() -> object:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < BOUND


def mutated(data: st.DataObject, original: bytes) -> bytes:
    """A few bytes changed, most of them near either end, where headers are; perhaps cut off, or something put in."""
    found, size = bytearray(original), len(original)
    near = st.one_of(
        st.integers(0, min(3000, size - 1)), st.integers(max(0, size - 3000), size - 1), st.integers(0, size - 1)
    )
    for _ in range(data.draw(st.integers(1, 8), "mutations")):
        found[data.draw(near, "place")] = data.draw(st.integers(0, 255), "byte")
    if data.draw(st.integers(0, 3), "insert") == 0:
        place = data.draw(near, "where")
        found[place:place] = data.draw(st.binary(min_size=1, max_size=9), "what")
    return bytes(found[: data.draw(st.one_of(st.just(len(found)), st.integers(0, len(found))), "cut")])


def read(data: bytes) -> checkpoints.Checkpoint:
    papers = Papers()
    if bundles.is_bundle(data):
        bundle = bundles.unpack(data)
        assert isinstance(bundle.weights, bytes)
        data, papers = bundle.weights, bundle.papers
    return checkpoints.read(data, "mutated", papers, answers={"heads": 4})


@pytest.mark.parametrize("name", WEIGHTS)
def test_the_originals_are_read(name: str) -> None:
    assert read(WEIGHTS[name]).model.config.heads == 4


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_mutated_file_is_refused_or_read_whole(data: st.DataObject) -> None:
    try:
        checkpoint = read(mutated(data, WEIGHTS[data.draw(st.sampled_from(list(WEIGHTS)), "kind")]))
    except CheckpointError:
        return
    assert isinstance(checkpoint.model, GPT)
    assert all(parameter.isfinite().all() for parameter in checkpoint.model.parameters())


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_mutated_papers_are_refused_or_read(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(list(PAPERS)), "kind")
    try:
        papers = read_papers({name: mutated(data, PAPERS[name])})
        checkpoint = checkpoints.read(WEIGHTS["course"], "x", Papers(None, papers.settings, papers.vocabulary))
    except CheckpointError:
        return
    tokens = range(checkpoint.model.config.d_vocab)
    assert all(isinstance(checkpoint.tokenizer.label(token), str) for token in tokens)
    assert isinstance(checkpoint.tokenizer.decode(list(tokens)), str)
