"""Jobs as real processes: what is killed, stopped or left alone is found again."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from interp_core import checkpoints, jobs, run_files
from interp_core.jobs import JobError
from tests.conftest import ROOT

TRAINING = "interp_core.training"
LIMIT = 60  # seconds


def arguments(name: str, steps: int = 600) -> list[str]:
    shape = ["--layers", "2", "--heads", "2", "--d-model", "16", "--d-mlp", "0", "--d-vocab", "9", "--context", "24"]
    often = ["--steps", str(steps), "--batch", "4", "--every", "10", "--snapshots", "12", "--dropout", "0.1"]
    return ["--text", "successors", "--out", f"{{folder}}/{name}.pt", "--resume", *shape, *often]


def submit(root: Path, name: str, steps: int = 600) -> jobs.Job:
    return jobs.submit(root, name, TRAINING, arguments(name, steps))


def until(reached: Callable[[], bool]) -> None:
    begun = time.monotonic()
    while not reached():
        assert time.monotonic() - begun < LIMIT, "it never came to that"
        time.sleep(0.02)


def out(job: jobs.Job) -> Path:
    return job.folder / f"{job.name}.pt"


def state(job: jobs.Job) -> str:
    return jobs.read(job.folder).state


def pid(job: jobs.Job, who: str) -> int:
    return json.loads((job.folder / f"{who}.json").read_text())["pid"]


def losses(job: jobs.Job) -> dict[int, tuple[float, ...]]:
    records = run_files.records(out(job))
    return {record["step"]: (record["loss"], *record["validation_windows"]) for record in records}


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "runs"
    for job in jobs.find(tmp_path / "runs"):
        if job.active:
            jobs.stop(job, grace=1.0)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[float, ...]]:
    """The losses of a run that nobody kills."""
    job = submit(tmp_path_factory.mktemp("whole"), "mine")
    until(lambda: state(job) == "finished")
    return losses(job)


def same(found: dict[int, tuple[float, ...]], expected: dict[int, tuple[float, ...]]) -> None:
    assert set(found) >= set(expected)
    for step, values in expected.items():
        assert found[step] == pytest.approx(values, abs=1e-4), step


@pytest.mark.slow
def test_a_job_runs_in_a_group_of_its_own_and_leaves_a_checkpoint(root: Path) -> None:
    job = submit(root, "mine", steps=60)
    assert job.state == "running"
    until(lambda: (job.folder / "worker.json").is_file())
    assert os.getpgid(pid(job, "worker")) == os.getpgid(pid(job, "warden")) == pid(job, "warden") != os.getpgid(0)
    with pytest.raises(JobError, match="mine is running: stop it first"):
        jobs.delete(job)
    with pytest.raises(JobError, match="mine is running: there is nothing to resume"):
        jobs.resume(job)
    until(lambda: state(job) == "finished")
    assert checkpoints.load(out(job)).card["step"] == 60
    assert checkpoints.find_runs(root) == [out(job)]
    assert jobs.disk_use(job.folder) > out(job).stat().st_size
    with pytest.raises(JobError, match="named mine is here already"):
        submit(root, "mine")
    jobs.delete(job)
    assert jobs.find(root) == []
    assert not job.folder.exists()


@pytest.mark.slow
def test_a_killed_trainer_resumes_to_the_losses_it_would_have_had(root: Path, undisturbed: dict) -> None:
    job = submit(root, "mine")
    until(lambda: len(losses(job)) >= 12)
    os.kill(pid(job, "worker"), signal.SIGKILL)
    until(lambda: state(job) != "running")
    assert state(job) == "interrupted"
    assert max(losses(job)) < 600
    with (run_files.folder(out(job)) / "records.jsonl").open("a") as lines:
        lines.write('{"step": 99')  # and it was killed while it wrote a line
    jobs.resume(job)
    until(lambda: state(job) == "finished")
    same(losses(job), undisturbed)
    assert len(losses(job)) == len(run_files.records(out(job))), "no record is there twice"


@pytest.mark.slow
def test_a_whole_group_that_is_killed_is_found_interrupted(root: Path, undisturbed: dict) -> None:
    job = submit(root, "mine")
    until(lambda: len(losses(job)) >= 12)
    os.killpg(pid(job, "warden"), signal.SIGKILL)
    until(lambda: state(job) == "interrupted")
    assert jobs.find(root)[0].state == "interrupted"
    jobs.resume(job)
    until(lambda: state(job) == "finished")
    same(losses(job), undisturbed)


@pytest.mark.slow
def test_a_stopped_run_goes_on_where_it_stood(root: Path, undisturbed: dict) -> None:
    job = submit(root, "mine")
    until(lambda: len(losses(job)) >= 5)
    jobs.stop(job)
    assert state(job) == "stopped"
    stood = max(losses(job))
    assert checkpoints.load(out(job)).card["step"] == stood < 600
    jobs.resume(job)
    until(lambda: state(job) == "finished")
    same(losses(job), undisturbed)


@pytest.mark.slow
def test_a_killed_server_takes_no_job_with_it(root: Path) -> None:
    code = f"""
import sys, time
from pathlib import Path
from interp_core import jobs
for name in ("one", "two"):
    given = {arguments("NAME", 120)!r}
    jobs.submit(Path({str(root)!r}), name, {TRAINING!r}, [part.replace("NAME", name) for part in given])
print("submitted", flush=True)
time.sleep(600)
"""
    server = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert server.stdout is not None
    assert server.stdout.readline() == "submitted\n"
    two, one = jobs.find(root)
    assert (one.name, one.state, one.place) == ("one", "running", 0)
    assert (two.name, two.state, two.place) == ("two", "queued", 1)
    os.killpg(server.pid, signal.SIGKILL)
    server.wait()
    server.stdout.close()
    until(lambda: state(two) == "finished")  # its turn came although nobody looked after the line
    assert state(one) == "finished"
    assert pid(one, "warden") != pid(two, "warden")


@pytest.mark.slow
def test_a_run_that_cannot_go_on_says_why(root: Path) -> None:
    job = jobs.submit(root, "wrong", TRAINING, [*arguments("wrong"), "--heads", "3"])
    until(lambda: state(job) == "failed")
    assert jobs.read(job.folder).message == "a width of 16 cannot be shared among 3 heads: choose a multiple of 3"
    assert jobs.read(job.folder).code == 1


def written(root: Path, name: str, submitted: float, **files: dict) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    asked = {"module": TRAINING, "arguments": [], "submitted": submitted}
    for file, content in ({"job": asked} | files).items():
        (folder / f"{file}.json").write_text(json.dumps(content))
    return folder


def test_the_state_of_a_job_is_what_its_folder_says(tmp_path: Path) -> None:
    me = {"pid": os.getpid(), "created": psutil.Process().create_time()}
    another = me | {"created": me["created"] - 1000}  # the number was given to a new process
    expected = {
        "queued": {},
        "running": {"warden": me},
        "interrupted": {"warden": another, "worker": another},
        "finished": {"warden": another, "ended": {"code": 0}},
        "stopped": {"warden": another, "ended": {"code": 143}},
        "failed": {"warden": another, "ended": {"code": 1}},
    }
    for number, (name, files) in enumerate(expected.items()):
        folder = written(tmp_path, name, float(number), **files)
        assert jobs.read(folder).state == name
    assert [job.name for job in jobs.find(tmp_path)] == list(expected)[::-1]
    assert jobs.read(tmp_path / "failed").message == "it ended with code 1 and said nothing"
    (tmp_path / "failed" / "log.txt").write_text("one\ntwo\n\n")
    assert jobs.read(tmp_path / "failed").message == "two"
    orphan = written(tmp_path, "orphan", 9.0, warden=another, worker=me)
    assert jobs.read(orphan).state == "running"


def test_the_line_is_in_order_and_may_be_left(tmp_path: Path) -> None:
    me = {"pid": os.getpid(), "created": psutil.Process().create_time()}
    written(tmp_path, "busy", 0.0, warden=me)
    third, second = written(tmp_path, "third", 3.0), written(tmp_path, "second", 2.0)
    assert {job.name: job.place for job in jobs.find(tmp_path)} == {"busy": 0, "second": 1, "third": 2}
    jobs.advance(tmp_path)
    assert jobs.read(second).state == "queued", "one job at a time"
    jobs.stop(jobs.read(second))
    assert jobs.read(second).state == "stopped"
    assert {job.name: job.place for job in jobs.find(tmp_path)} == {"busy": 0, "second": 0, "third": 1}
    jobs.resume(jobs.read(second))
    assert {job.name: job.place for job in jobs.find(tmp_path)} == {"busy": 0, "third": 1, "second": 2}
    jobs.stop(jobs.read(third))
    jobs.delete(jobs.read(third))
    assert [job.name for job in jobs.find(tmp_path)] == ["second", "busy"]


@pytest.mark.parametrize("name", ["", "../x", "A", "a b", "-a", "a" * 41, ".hidden", "a/b"])
def test_names_that_are_none(root: Path, name: str) -> None:
    with pytest.raises(JobError, match="no name for a run"):
        submit(root, name)
    assert jobs.find(root) == []


def test_a_full_line_a_full_disk_and_a_foreign_module_are_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(JobError, match="os is not a module of this project"):
        jobs.submit(root, "mine", "os", [])
    monkeypatch.setattr(jobs, "LEAST_FREE", 10**18)
    with pytest.raises(JobError, match="MB of disk are left"):
        submit(root, "mine")
    monkeypatch.undo()
    monkeypatch.setattr(jobs, "LONGEST_QUEUE", 0)
    with pytest.raises(JobError, match="0 runs are waiting already"):
        submit(root, "mine")
    assert jobs.find(root) == []
