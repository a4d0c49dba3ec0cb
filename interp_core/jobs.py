"""Long work in a process of its own, which outlives the page, the visitor and the server that started it.

A job is a folder. `job.json` says what to run; a small *warden* process (`python -m interp_core.jobs FOLDER`) runs it as
`python -m MODULE ARGUMENTS`, notes in `ended.json` how it ended, and starts the next in line. Where a job stands is read
from the folder alone, so a new server, or a second one, finds every job again. What the work itself leaves there
(checkpoints, records) is its own affair: to resume a job is to run the same command again.

    jobs.submit(root, "mine", "interp_core.training", ["--text", "python-docs", "--out", "{folder}/mine.pt", "--resume"])
    jobs.find(root)[0].state
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import psutil
from filelock import FileLock

from interp_core import files

State = Literal["queued", "running", "finished", "stopped", "interrupted", "failed"]

AT_ONCE = 1  # jobs that run side by side: on two cores a second one would only slow the first
LONGEST_QUEUE = 20
LEAST_FREE = 500_000_000  # bytes of disk that must be left for a job to be taken
GRACE = 10.0  # seconds that a job has to stop by itself
FOLDER = "{folder}"  # in an argument: the job's folder, wherever that lies when it runs
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
RESUMABLE: tuple[State, ...] = ("stopped", "interrupted", "failed")

_wardens: list[subprocess.Popen] = []  # of this process, so that they are reaped when they end


class JobError(ValueError):
    """A job that cannot be taken, resumed or deleted; says why and what to do."""


@dataclass(frozen=True)
class Job:
    """One job, as its folder says it is now."""

    folder: Path
    module: str
    arguments: tuple[str, ...]
    submitted: float  # seconds since 1970; a resumed job goes to the end of the line
    state: State
    place: int = 0  # in the line: 1 is next
    code: int = 0  # that the process ended with
    message: str = ""  # its last words, when it failed

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.folder.name

    @property
    def active(self) -> bool:
        """Whether something is still to be expected of it."""
        return self.state in ("queued", "running")


def submit(
    root: Path, name: str, module: str, arguments: Sequence[str], given: Mapping[str, bytes] | None = None
) -> Job:
    """Takes a job and starts it when its turn comes.

    Args:
        root: the folder of all jobs.
        name: of the job's folder.
        module: of this project, with a command line.
        arguments: of the command; "{folder}" in them becomes the job's folder.
        given: files that the command reads, by name, to be put into the folder.

    Raises:
        JobError: a name that is taken or no name, a module of elsewhere, a full queue or a full disk.
    """
    if not NAME.fullmatch(name):
        raise JobError(f"{name!r} is no name for a run: use up to 40 small letters, digits and hyphens.")
    if not module.startswith("interp_core."):
        raise JobError(f"{module} is not a module of this project.")
    root.mkdir(parents=True, exist_ok=True)
    waiting = sum(job.state == "queued" for job in find(root))
    if waiting >= LONGEST_QUEUE:
        raise JobError(f"{waiting} runs are waiting already: try again when some of them are done.")
    free = shutil.disk_usage(root).free
    if free < LEAST_FREE:
        raise JobError(f"{free / 1e6:.0f} MB of disk are left, {LEAST_FREE / 1e6:.0f} are the least: delete old runs.")
    folder, partial = root / name, root / f".{name}.{os.getpid()}.partial"
    if folder.exists():
        raise JobError(f"A run named {name} is here already: give another name, or delete that one.")
    partial.mkdir()
    try:
        for file, data in (given or {}).items():
            (partial / file).write_bytes(data)
        _write(partial / "job.json", {"module": module, "arguments": list(arguments), "submitted": time.time()})
        partial.rename(folder)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise JobError(f"The run {name} could not be written: {error}.") from error
    advance(root)
    return read(folder)


def find(root: Path) -> list[Job]:
    """All jobs, the newest first, with their places in the line."""
    _wardens[:] = [warden for warden in _wardens if warden.poll() is None]
    folders = [path.parent for path in root.glob("*/job.json") if not path.parent.name.startswith(".")]
    jobs = sorted((job for folder in folders if (job := _read_if_whole(folder))), key=lambda job: job.submitted)
    line = [job.folder for job in jobs if job.state == "queued"]
    placed = [replace(job, place=line.index(job.folder) + 1) if job.folder in line else job for job in jobs]
    return placed[::-1]


def look(folder: Path) -> Job | None:
    """Where one job stands, with its place in the line; None if it is gone."""
    return next((job for job in find(folder.parent) if job.folder == folder), None)


def read(folder: Path) -> Job:
    """Where one job stands, whatever the others do.

    Raises:
        FileNotFoundError: there is no job in the folder.
    """
    asked, ended = _read(folder / "job.json"), _ended(folder)
    if asked is None:
        raise FileNotFoundError(f"{folder} holds no job")
    code = 0 if ended is None else int(ended["code"])
    state, message = _state(folder, ended), ""
    if state == "failed":
        message = _last_words(folder / "log.txt") or f"it ended with code {code} and said nothing"
    arguments = tuple(asked["arguments"])
    return Job(folder, asked["module"], arguments, asked["submitted"], state, code=code, message=message)


def advance(root: Path, at_once: int = AT_ONCE) -> None:
    """Starts jobs that wait while fewer than `at_once` run. Whoever looks at the jobs may call it, as often as they like."""
    if not any(job.state == "queued" for job in find(root)):
        return
    with FileLock(root / ".lock"):
        jobs = find(root)
        free = at_once - sum(job.state == "running" for job in jobs)
        for job in [job for job in jobs if job.state == "queued"][::-1][: max(free, 0)]:
            _start(job.folder)


def stop(job: Job, grace: float = GRACE) -> None:
    """Asks a job to stop where it stands and waits until it has; one that does not in time is killed.

    What it learned since it last saved is lost only in the second case.
    """
    if job.state == "queued":
        with FileLock(job.folder.parent / ".lock"):
            if read(job.folder).state == "queued":
                _write(job.folder / "ended.json", {"code": -signal.SIGTERM})
                return
    ends = time.monotonic() + grace
    worker = _process(job.folder / "worker.json")
    while worker is None and _alive(job.folder / "warden.json") and time.monotonic() < ends:
        time.sleep(0.02)  # it has only just begun
        worker = _process(job.folder / "worker.json")
    if worker is not None:
        try:
            worker.terminate()
            worker.wait(grace)
        except psutil.TimeoutExpired:
            worker.kill()
        except psutil.NoSuchProcess:
            pass
    while _alive(job.folder / "warden.json") and time.monotonic() < ends + 1:
        time.sleep(0.02)


def resume(job: Job) -> None:
    """Puts a job that stopped, failed or was interrupted back into the line.

    Raises:
        JobError: it runs, waits, or is finished.
    """
    with FileLock(job.folder.parent / ".lock"):
        state = read(job.folder).state
        if state not in RESUMABLE:
            raise JobError(f"The run {job.name} is {state}: there is nothing to resume.")
        for name in ("warden.json", "worker.json", "ended.json"):
            (job.folder / name).unlink(missing_ok=True)
        _write(job.folder / "job.json", {**(_read(job.folder / "job.json") or {}), "submitted": time.time()})
    advance(job.folder.parent)


def delete(job: Job) -> None:
    """Removes a job and all that it left.

    Raises:
        JobError: it runs or waits.
    """
    now = read(job.folder)
    if now.active:
        raise JobError(f"The run {now.name} is {now.state}: stop it first.")
    gone = job.folder.with_name(f".{job.name}.deleted")
    shutil.rmtree(gone, ignore_errors=True)
    job.folder.rename(gone)  # at once, so that nobody sees half a run
    shutil.rmtree(gone, ignore_errors=True)


def disk_use(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main(arguments: Sequence[str]) -> int:
    """The warden: runs the job of a folder, notes how it ended, starts the next."""
    folder = Path(arguments[0])
    signal.signal(signal.SIGTERM, lambda *_: None)  # whoever stops the group still wants to know how the work ended
    if hasattr(os, "nice"):
        os.nice(5)  # clicks of visitors go first
    job = read(folder)
    command = [sys.executable, "-m", job.module, *(part.replace(FOLDER, str(folder)) for part in job.arguments)]
    with (folder / "log.txt").open("ab") as log:
        worker = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        _note_process(folder / "worker.json", worker.pid)
        code = worker.wait()
    _write(folder / "ended.json", {"code": code})
    advance(folder.parent)
    return 0


def _start(folder: Path) -> None:
    project = str(Path(__file__).resolve().parent.parent)
    paths = os.pathsep.join([project, *filter(None, [os.environ.get("PYTHONPATH")])])
    warden = subprocess.Popen(
        [sys.executable, "-m", "interp_core.jobs", str(folder.resolve())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a process group of its own: what ends the server does not end the work
        env={**os.environ, "PYTHONPATH": paths},
    )
    _wardens.append(warden)
    _note_process(folder / "warden.json", warden.pid)


def _read_if_whole(folder: Path) -> Job | None:
    """A job that can be read; None for one that was deleted meanwhile, or that somebody spoiled."""
    try:
        return read(folder)
    except (FileNotFoundError, KeyError, TypeError):
        return None


def _ended(folder: Path) -> Mapping[str, Any] | None:
    """How the job ended; None while it waits or runs."""
    ended, begun = _read(folder / "ended.json"), (folder / "warden.json").is_file()
    if ended is not None or not begun or _alive(folder / "warden.json") or _alive(folder / "worker.json"):
        return ended
    return _read(folder / "ended.json") or {
        "code": -signal.SIGKILL
    }  # it ended between two looks, or nobody could note it


def _state(folder: Path, ended: Mapping[str, Any] | None) -> State:
    if ended is None:
        return "running" if (folder / "warden.json").is_file() else "queued"
    code = ended["code"]
    if code in (-signal.SIGTERM, 128 + signal.SIGTERM):
        return "stopped"
    return "finished" if code == 0 else "interrupted" if code < 0 else "failed"


def _note_process(path: Path, pid: int) -> None:
    try:
        _write(path, {"pid": pid, "created": psutil.Process(pid).create_time()})
    except psutil.NoSuchProcess:  # it has ended already
        _write(path, {"pid": pid, "created": 0.0})


def _process(path: Path) -> psutil.Process | None:
    """The process that a file names, if it still runs; another one with its number does not count."""
    noted = _read(path)
    try:
        process = None if noted is None else psutil.Process(noted["pid"])
        if process is None or noted is None or process.status() == psutil.STATUS_ZOMBIE:
            return None
        return process if abs(process.create_time() - noted["created"]) < 1 else None
    except psutil.NoSuchProcess:
        return None


def _alive(path: Path) -> bool:
    return _process(path) is not None


def _last_words(path: Path) -> str:
    """The last line of a log that says something."""
    if not path.is_file():
        return ""
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - 4096))
        lines = log.read().decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _write(path: Path, content: Mapping[str, Any]) -> None:
    files.write(path, json.dumps(content).encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
