"""Reading and writing checkpoints, against the course's model written anew in `tests/course.py`."""

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from interp_core import checkpoints, containers, layouts
from interp_core.checkpoints import CheckpointError, Vocabulary
from interp_core.model import forward
from tests.conftest import SMALL, random_model, random_tokens
from tests.course import CourseGPT, course_model
from tests.test_model import VARIANTS

LETTERS = Vocabulary(tuple("abcdefghijk"), "a test")


def saved(thing: object, **options: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(thing, buffer, **options)
    return buffer.getvalue()


def course_bytes() -> bytes:
    return saved(course_model().state_dict())


def test_a_course_file_gives_the_course_models_logits() -> None:
    checkpoint, tokens = checkpoints.read(course_bytes(), "student", vocabulary=LETTERS), random_tokens()
    config = checkpoint.model.config
    assert (config.layers, config.heads, config.d_head, config.d_mlp, config.activation) == (2, 4, 4, 64, "gelu")
    with torch.no_grad():
        torch.testing.assert_close(
            forward(checkpoint.model, tokens).logits, course_model()(tokens), atol=1e-5, rtol=1e-5
        )


@pytest.mark.parametrize("name", ["key", "query", "value", "attn.proj.bias", "ln1.bias", "ln2.weight", "mlp.proj.bias"])
def test_the_comparison_would_notice_a_wrong_weight(name: str) -> None:
    """Each kind of weight moves the logits by far more than the tolerance above."""
    tokens, state = random_tokens(), course_model().state_dict()
    wrong = {key: value.flip(0) if name in key else value for key, value in state.items()}
    ours = forward(checkpoints.read(saved(wrong), "wrong").model, tokens).logits
    with torch.no_grad():
        assert (ours - course_model()(tokens)).abs().max() > 1e-2


def test_the_courses_code_loads_a_file_of_ours(tmp_path: Path) -> None:
    ours = random_model(replace(SMALL, d_mlp=4 * SMALL.d_model), size=0.2)
    checkpoints.save(tmp_path / "ours.pt", ours, LETTERS.characters, {})
    theirs = CourseGPT(SMALL.d_vocab, SMALL.context, SMALL.d_model, SMALL.heads, SMALL.layers)
    theirs.load_state_dict(torch.load(tmp_path / "ours.pt", weights_only=True))
    tokens = random_tokens()
    with torch.no_grad():
        torch.testing.assert_close(theirs(tokens), forward(ours, tokens).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_config_survives_the_file_and_its_card(name: str, tmp_path: Path) -> None:
    model = random_model(VARIANTS[name])
    back = checkpoints.save(tmp_path / "model.pt", model, LETTERS.characters, {"step": 7})
    assert back.model.config == replace(model.config, score_scale=model.config.score_scale)
    assert back.card["step"] == 7
    assert back.tokenizer.decode([2, 0, 1]) == "cab"
    assert torch.equal(forward(back.model, random_tokens()).logits, forward(model, random_tokens()).logits)


def test_reading_and_writing_returns_the_same_tensors() -> None:
    state = course_model().state_dict()
    written = layouts.write(layouts.read(state).model)
    assert sorted(written) == sorted(state)
    assert all(torch.equal(written[key], state[key]) for key in state)


def test_identity_is_the_hash_of_the_bytes(tmp_path: Path) -> None:
    import hashlib

    checkpoint = checkpoints.save(tmp_path / "a.pt", random_model(), None, {})
    digest = hashlib.sha256((tmp_path / "a.pt").read_bytes()).hexdigest()
    assert checkpoint.sha256 == digest == json.loads((tmp_path / "a.json").read_text())["sha256"]
    assert checkpoint.short_hash == digest[:8]
    assert checkpoints.find(tmp_path) == [tmp_path / "a.pt"]


def test_what_was_assumed_is_said() -> None:
    sources = {fact.what: fact.source for fact in checkpoints.read(course_bytes(), "student").facts}
    assert sources["d_model"] == sources["heads"] == sources["qkv_bias"] == "keys and shapes"
    assert sources["activation"] == sources["norm_eps"] == sources["score_scale"] == "assumed: the course's"


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: {"model_state_dict": state, "epoch": 3},
        lambda state: {"model": state, "optimizer": {"lr": 0.1}},
        lambda state: {f"_orig_mod.{key}": value for key, value in state.items()},
        lambda state: {"state_dict": {f"module.model.{key}": value for key, value in state.items()}},
        lambda state: {key: value.bfloat16() for key, value in state.items()},
    ],
)
def test_wrappers_around_the_weights_are_taken_off(wrap: Callable) -> None:
    checkpoint = checkpoints.read(saved(wrap(course_model().state_dict())), "wrapped")
    assert checkpoint.model.tok.weight.dtype == torch.float32
    torch.testing.assert_close(checkpoint.model.tok.weight, course_model().tok.weight, atol=1e-2, rtol=1e-2)


def test_safetensors_and_files_of_old_torch_are_read() -> None:
    state = course_model().state_dict()
    for data in (safetensors.torch.save(state), saved(state, _use_new_zipfile_serialization=False)):
        assert torch.equal(checkpoints.read(data, "other").model.tok.weight, state["tok.weight"])


class Arbitrary:
    """What a whole pickled model looks like to the reader."""

    def __reduce__(self) -> tuple:
        return os.mkdir, ("code-ran",)


def _zip(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def _state(**changes: Any) -> bytes:
    return saved({**course_model().state_dict(), **{key.replace("__", "."): value for key, value in changes.items()}})


def _raw(pickled: bytes) -> bytes:
    """A file that torch.save did not write: any pickle in torch's archive."""
    return _zip(**{"archive/data.pkl": pickled, "archive/version": b"3"})


class Greedy:
    def __reduce__(self) -> tuple:
        return bytearray, (3 * 10**9,)


HUGE = torch.zeros(1).expand(10**6, 10**6)
BAD_FILES = {
    "empty": (b"", "This file is empty"),
    "text": (b"To be, or not to be", "This is plain text, not a checkpoint"),
    "short text": (b"7", "plain text"),
    "web page": (b"<!DOCTYPE html><html>", "a web page"),
    "png": (b"\x89PNG\r\n\x1a\n" + bytes(99), "a PNG image"),
    "jpeg": (b"\xff\xd8\xff\xe0" + bytes(99), "a JPEG image"),
    "json": (b'{"d_model": 128}', "JSON text"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:1", "a Git LFS pointer"),
    "gguf": (b"GGUF\x03\x00\x00\x00", "a GGUF file"),
    "noise": (bytes(range(200, 256)) * 9, "a binary file of a kind not known here"),
    "zip": (_zip(readme=b"hello"), "a zip archive, but not one that torch.save wrote"),
    "torchscript": (_zip(**{"a/data.pkl": b"", "a/constants.pkl": b""}), "a TorchScript program"),
    "cut off": (course_bytes()[:-2000], "its end is missing: it is cut off"),
    "damaged name": (course_bytes()[:30] + b"\x80" + course_bytes()[31:], "cut off or damaged"),
    "cut off safetensors": (safetensors.torch.save(course_model().state_dict())[:-50], "cut off or damaged"),
    "cut off old": (saved(course_model().state_dict(), _use_new_zipfile_serialization=False)[:-50], "cut off or damaged"),
    "pickle": (pickle.dumps({"a": 1}), "a pickle of Python objects"),
    "code": (saved({"model": Arbitrary()}), r"Python objects \(posix.mkdir\), which could run code .* was not opened"),
    "plain code": (pickle.dumps(Arbitrary()), r"Python objects \(posix.mkdir\)"),
    "whole model": (saved(course_model()), r"Python objects \(.*CourseGPT.*torch\.save\(model\.state_dict\(\)"),
    "memory": (_raw(pickle.dumps({"a": Greedy()}, 2)), "Python objects .*bytearray"),
    "called storage": (_raw(b"\x80\x02ctorch\nFloatStorage\nJ\xff\xff\xff\x7f\x85R."), "cut off or damaged"),
    "small file, large model": (
        saved({"tok.weight": torch.ones(1, 8192), "pos.weight": torch.ones(4, 8192), **{f"blocks.0.attn.heads.0.{n}.weight": torch.ones(1, 1) for n in ("key", "query")},
               "blocks.0.mlp.fc.weight": torch.ones(65536, 1), "blocks.127.ln1.weight": torch.ones(1)}),
        "claim a model of 137,.* weights or more, but it holds 106,499: it is incomplete",
    ),
    "sparse": (_state(lnf__weight=torch.ones(16).to_sparse()), "no plain tensor"),
    "meta": (_state(lnf__weight=torch.ones(16, device="meta")), "no plain tensor|plain tensor"),
    "scalar": (_state(blocks__0__mlp__fc__weight=torch.tensor(1.0)), "0 dimensions, expected a matrix"),
    "long number": (_state(**{"blocks__" + "9" * 5000 + "__x": torch.ones(1)}), "is not known"),
    "complex": (_state(lnf__weight=torch.ones(16, dtype=torch.complex64)), "of type torch.complex64"),
    "list": (saved([1, 2]), "holds a list, not a dictionary"),
    "nothing": (saved({}), "holds nothing"),
    "other things": (saved({"tok.weight": torch.ones(2, 2), "epoch": 3}), r"also holds epoch \(int\)"),
    "a view that pretends": (saved({"tok.weight": HUGE}), "claim 4,000,000,000,000 bytes"),
    "another layout": (saved({"transformer.wte.weight": torch.ones(4, 4)}), "as in no project known here: it begins with transformer.wte.weight"),
    "lost key": (saved({k: v for k, v in course_model().state_dict().items() if "1.ln2.bias" not in k}), "blocks.1.ln2.bias is missing"),
    "surplus key": (_state(extra__weight=torch.ones(2)), "extra.weight is not known"),
    "lost head": (saved({k: v for k, v in course_model().state_dict().items() if "1.attn.heads.2.key" not in k}), "lacks head 2 of 4"),
    "wrong shape": (_state(blocks__1__mlp__fc__weight=torch.ones(64, 15)), r"has shape \[64, 15\], expected \[64, 16\]"),
    "uneven heads": (_state(**{"blocks__1__attn__heads__2__key__weight": torch.ones(5, 16)}), r"key.weight differ in shape, expected \[4, 16\] each"),
    "vector": (_state(tok__weight=torch.ones(11)), "tok.weight has 1 dimensions, expected a matrix"),
    "integers": (_state(lnf__weight=torch.ones(16, dtype=torch.int64)), "of type torch.int64, expected floating-point"),
    "diverged": (_state(lnf__weight=torch.full((16,), torch.nan)), "lnf.weight holds 16 values that are not finite"),
    "too many layers": (_state(**{"blocks__900__ln1__weight": torch.ones(16)}), "layers = 901, more than the 128"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_gets_one_sentence(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data, message = BAD_FILES[name]
    with pytest.raises(CheckpointError, match=message):
        checkpoints.read(data, name)
    assert not list(tmp_path.iterdir()), "code in the file ran"


def test_sizes_that_a_header_claims_are_checked_before_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    state = course_model().state_dict()
    monkeypatch.setattr(containers, "MAX_BYTES", 10**6)
    with pytest.raises(CheckpointError, match=r"claims 2,000,0\d\d bytes unpacked"):
        containers.read_tensors(_zip(**{"archive/data.pkl": b"x", "archive/data/0": bytes(2_000_000)}))
    monkeypatch.setattr(containers, "MAX_BYTES", 5000)
    with pytest.raises(CheckpointError, match="more than"):
        containers.read_tensors(saved(state, _use_new_zipfile_serialization=False))


def test_float8_weights_are_read() -> None:
    state = course_model().state_dict()
    state["lnf.bias"] = state["lnf.bias"].to(torch.float8_e4m3fn)
    assert checkpoints.read(saved(state), "f8").model.lnf.bias.dtype == torch.float32


def test_a_storage_of_an_old_file_cannot_claim_terabytes() -> None:
    data = saved(torch.ones(70_000), _use_new_zipfile_serialization=False)
    claimed = data.replace((70_000).to_bytes(4, "little"), (2**31 - 1).to_bytes(4, "little"))
    assert claimed != data
    with pytest.raises(CheckpointError, match="claims sizes of"):
        containers.read_tensors(claimed)


def test_a_card_of_another_file_is_refused(tmp_path: Path) -> None:
    checkpoints.save(tmp_path / "a.pt", random_model(), LETTERS.characters, {})
    checkpoints.save(tmp_path / "b.pt", random_model(seed=1), LETTERS.characters, {})
    (tmp_path / "b.json").rename(tmp_path / "a.json")
    with pytest.raises(CheckpointError, match="The card beside a is of another file"):
        checkpoints.load(tmp_path / "a.pt")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config": {"heads": 7}}, "The card says heads = 7, but the weights say 4"),
        ({"config": {"activation": "swish"}}, "The card's config cannot be used"),
        ({"config": {"colour": "red"}}, "The card's config cannot be used"),
        ({"vocabulary": ["a"] * 11}, "holds 'a' twice"),
        ({"vocabulary": ["a", "b"]}, "11 tokens but card has 2 distinct"),
    ],
)
def test_a_card_that_contradicts_the_weights_is_refused(change: dict, message: str) -> None:
    data = course_bytes()
    card = {"sha256": checkpoints.read(data, "x").sha256, **change}
    with pytest.raises(CheckpointError, match=message):
        checkpoints.read(data, "x", checkpoints.Papers(card=card))


def test_a_vocabulary_of_another_size_is_refused() -> None:
    with pytest.raises(CheckpointError, match="11 tokens but my text has 3 distinct characters: choose the text"):
        checkpoints.read(course_bytes(), "x", vocabulary=Vocabulary(tuple("abc"), "my text"))


def test_without_a_vocabulary_tokens_are_numbers() -> None:
    checkpoint = checkpoints.read(course_bytes(), "x")
    assert checkpoint.tokenizer.decode([1, 2]) == "⟨1⟩⟨2⟩"
    assert checkpoint.vocabulary_source.startswith("unknown")


@pytest.mark.parametrize(
    ("data", "name", "expected"),
    [
        (b"hello world", "text.txt", tuple(" dehlorw")),
        (b'["b", "a"]', "list.json", ("b", "a")),
        (b'{"vocabulary": ["b", "a"], "step": 3}', "card.json", ("b", "a")),
    ],
)
def test_vocabularies_are_read_from_text_list_or_card(data: bytes, name: str, expected: tuple) -> None:
    assert checkpoints.read_vocabulary(data, name) == Vocabulary(expected, name, padded=name.endswith("json"))


@pytest.mark.parametrize(
    ("data", "name", "message"),
    [
        (b"\xff\xfe\x00", "text.txt", "not text in UTF-8"),
        (b"", "text.txt", "is empty"),
        (b"[1, 2]", "list.json", "names no vocabulary"),
        (b"{", "list.json", "not valid JSON"),
        (b"[" * 100_000, "deep.json", "not valid JSON"),
    ],
)
def test_what_is_no_vocabulary_is_refused(data: bytes, name: str, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        checkpoints.read_vocabulary(data, name)


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"config": 3}'])
def test_what_is_no_card_is_refused(data: bytes) -> None:
    with pytest.raises(CheckpointError, match="card"):
        checkpoints.read_card(data)


def test_shipped_checkpoints_are_what_their_cards_say() -> None:
    from tests.conftest import ROOT

    paths = checkpoints.find(ROOT / "checkpoints")
    assert "shakespeare" in [path.stem for path in paths]
    for path in paths:
        checkpoint = checkpoints.load(path)
        assert checkpoint.card["parameters"] == checkpoint.model.count()
        assert checkpoint.card["command"].startswith("python -m interp_core.training ")
