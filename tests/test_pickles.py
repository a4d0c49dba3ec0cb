"""Pickles that mean harm, and the plain ones that do not."""

import io
import pickle
import resource
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from interp_core import containers, pickles
from interp_core.pickles import CheckpointError, Inert
from tests.test_checkpoints import Arbitrary, Greedy, _raw, saved


def test_plain_dictionaries_are_read() -> None:
    meta = {"vocab_size": 3, "stoi": {"a": 0, "b": 1, "c": 2}, "itos": {0: "a", 1: "b", 2: "c"}}
    for protocol in range(2, 6):
        assert pickles.read_plain(pickle.dumps(meta, protocol)) == meta


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pickle.dumps(Arbitrary()), "names posix.mkdir, which could run code"),
        (pickle.dumps({"stoi": Greedy()}), "names builtins.bytearray"),
        (pickle.dumps(Path("/etc")), "names pathlib"),
        (b"\x80\x04.", "cut off or damaged"),
        (b"\x80\x02X\xff\xff\xff\x7fab.", "cut off or damaged"),
        (b"\x80\x02Nr\xff\xff\xff\x7f.", "asks for 2,147,483,647 places of memory"),
        (b"\x80\x02Np9999999999\n.", "asks for 9,999,999,999 places of memory"),
        (b"\x80\x02I" + b"9" * 9999 + b"\n.", "cut off or damaged"),
        (b"(" * 100_000 + b".", "cut off or damaged"),
    ],
)
def test_others_are_refused_in_a_sentence(
    data: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match=message):
        pickles.read_plain(data)
    assert not list(tmp_path.iterdir()), "code in the file ran"


def test_a_pickle_of_ten_bytes_cannot_claim_gigabytes() -> None:
    """Python's own unpickler makes room for every place below the largest that is named: here for 2**28 of them."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    bomb = b"\x80\x02Nr" + (2**28).to_bytes(4, "little") + b"."
    for data in (_raw(bomb), pickle.dumps(pickles.MAGIC_NUMBER, 2) + bomb * 4):
        with pytest.raises(CheckpointError, match="places of memory"):
            containers.read_tensors(data)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # kilobytes


@dataclass
class TrainConfig:
    n_head: int
    name: str
    inner: object = None


class BadConfig:
    """Its name looks harmless; what pickle would call is not."""

    def __reduce__(self) -> tuple:
        return type(self), ()

    def __init__(self) -> None:
        Path("code-ran").touch()


def test_objects_of_configs_become_records_and_none_of_their_code_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = {"a.weight": torch.ones(2)}
    config = TrainConfig(6, "run", TrainConfig(8, "nested"))
    found = containers.read_contents(saved({"model": weights, "config": config, "step": 7}))
    assert found.settings == {"n_head": 6, "name": "run"}
    assert found.beside == {"model", "config", "step"}
    bad = BadConfig.__new__(BadConfig)
    data = saved({"model": weights, "config": bad})
    monkeypatch.chdir(tmp_path)
    assert list(containers.read_contents(data).tensors) == ["a.weight"]
    assert not list(tmp_path.iterdir()), "code in the file ran"


def test_no_stand_in_is_left_with_torch() -> None:
    containers.read_contents(saved({"model": {"a": torch.ones(2)}, "config": TrainConfig(6, "run")}))
    assert Inert not in torch.serialization.get_safe_globals()


def test_an_object_in_place_of_weights_is_named() -> None:
    with pytest.raises(CheckpointError, match="holds a Python object, not a dictionary"):
        containers.read_contents(saved(TrainConfig(6, "run")))
    with pytest.raises(CheckpointError, match=r"also holds lr \(float\)"):
        containers.read_contents(saved({"a": torch.ones(2), "lr": 0.1}))


def test_mapped_files_leave_nothing_mapped(tmp_path: Path) -> None:
    """A file on the disk is mapped while it is read; the model does not change when the file does."""
    from interp_core import checkpoints
    from tests.course import course_model

    path = tmp_path / "a.pt"
    state = course_model().state_dict()
    torch.save({"model": state, "optimizer": {"state": {}, "param_groups": []}}, path)
    model = checkpoints.load(path).model
    path.write_bytes(bytes(path.stat().st_size))
    assert torch.equal(model.tok.weight, state["tok.weight"])
    assert io.BytesIO(path.read_bytes()).read(4) == bytes(4)
