"""Files that others may read while they are written: each appears at once or not at all."""

import os
from pathlib import Path


def write(path: Path, data: bytes) -> None:
    """Writes beside the place and moves it there, so that no reader ever sees half a file."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        beside.write_bytes(data)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
