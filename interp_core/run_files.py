"""What a training run keeps in the folder beside its checkpoint, so that it can be watched and resumed.

`records.jsonl` has a line for each record, `state.pt` what is needed to go on, `step-000030.pt` the weights at a step. A
reader may come while a line is being written: a torn last line is not there yet.
"""

import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from interp_core import files


def folder(out: Path) -> Path:
    """Of the run whose checkpoint is `out`."""
    return out.with_suffix("")


def begin(out: Path, step: int) -> None:
    """Makes the folder, and takes out of it what lies beyond `step`: a run that begins, or goes on, writes that anew."""
    folder(out).mkdir(parents=True, exist_ok=True)
    kept = [record for record in records(out) if record["step"] <= step]
    files.write(_records(out), "".join(json.dumps(record) + "\n" for record in kept).encode())
    for at, path in snapshots(out).items():
        if at > step:
            path.unlink()
    if step == 0:
        _state(out).unlink(missing_ok=True)


def append(out: Path, record: Mapping[str, Any]) -> None:
    """Adds a record to those of the run."""
    with _records(out).open("a") as lines:
        lines.write(json.dumps(record) + "\n")


def records(out: Path) -> list[dict[str, Any]]:
    """The records of a run so far; none where none were kept."""
    if not _records(out).is_file():
        return []
    *lines, _torn = _records(out).read_text().split("\n")
    return [json.loads(line) for line in lines]


def snapshot(out: Path, step: int) -> Path:
    """Where the weights at a step are kept."""
    return folder(out) / f"step-{step:06d}.pt"


def snapshots(out: Path) -> dict[int, Path]:
    """The snapshots of a run by step; empty where none were kept."""
    found = ((step_of(path), path) for path in sorted(folder(out).glob("step-*.pt")))
    return {step: path for step, path in found if step is not None}


def step_of(path: Path) -> int | None:
    """The step of a snapshot; None for any other file."""
    named = re.fullmatch(r"step-(\d{6,})\.pt", path.name)
    return int(named[1]) if named else None


def save_state(out: Path, state: Mapping[str, Any]) -> None:
    """Keeps what is needed to go on."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    files.write(_state(out), buffer.getvalue())


def load_state(out: Path) -> dict[str, Any] | None:
    """What is needed to go on; None where nothing was kept."""
    return torch.load(_state(out), weights_only=True) if _state(out).is_file() else None


def run_of(path: Path) -> Path:
    """The checkpoint of the run that a file belongs to: a snapshot's run, or the file itself."""
    return path if step_of(path) is None else path.parent.with_suffix(".pt")


def _records(out: Path) -> Path:
    return folder(out) / "records.jsonl"


def _state(out: Path) -> Path:
    return folder(out) / "state.pt"
