"""The course's side of every comparison: its own functions, run by the code beside the reference checkpoint."""

import importlib.util
import os
from pathlib import Path
from typing import Any


def reference() -> Path | None:
    """The folder with the course's checkpoint and code, beside the one that LOUPE_DATA names."""
    folder = Path(os.environ.get("LOUPE_DATA", "")).resolve().parent / "reference"
    return folder if (folder / "course_code.py").is_file() else None


def notebook(folder: Path) -> dict[str, Any]:
    """The notebook's functions, its model loaded."""
    return _code(folder).notebook()


def companion(folder: Path) -> dict[str, Any]:
    """The code companion's functions and classes."""
    return _code(folder).companion()


def _code(folder: Path) -> Any:
    spec = importlib.util.spec_from_file_location("course_code", folder / "course_code.py")
    assert spec is not None
    assert spec.loader is not None
    course = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(course)
    return course
