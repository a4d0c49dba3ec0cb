"""Training runs as pages see them: those that were started here, and shipped checkpoints that kept their records."""

import io
import re
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from interp_core import checkpoints, jobs, plans, run_files
from interp_core.jobs import Job
from interp_core.plans import Plan
from ui import session

MODULE = "interp_core.training"
BENGIO = "interp_core.bengio"


@dataclass(frozen=True)
class TrainingRun:
    """A run, whoever began it."""

    name: str
    out: Path
    plan: Plan
    job: Job | None  # None: its checkpoint came with the app

    @property
    def lesson_name(self) -> str:
        """The text that it learns."""
        return self.plan.text if self.plan.file is None else self.plan.file.name

    @property
    def active(self) -> bool:
        """Whether there is more to come."""
        return self.job is not None and self.job.active


def find() -> list[TrainingRun]:
    """All runs, the newest first, those that were shipped last. Starts the next in line, should nothing run."""
    if session.RUNS.is_dir():
        jobs.advance(session.RUNS)
    own = (of_job(job) for job in jobs.find(session.RUNS) if job.module == MODULE)
    return [run for run in own if run is not None] + [
        run for path in checkpoints.find(session.FOLDER) if (run := _shipped(path)) is not None
    ]


def of_job(job: Job) -> TrainingRun | None:
    """The run of a job; None where it was begun by another version, whose command is not understood."""
    try:
        plan = plans.of_arguments([part.replace(jobs.FOLDER, str(job.folder)) for part in job.arguments])
    except (ValueError, SystemExit):
        return None
    return TrainingRun(job.name, plan.out, plan, job)


def baselines() -> list[Job]:
    """The MLPs that are or were in training here."""
    return [job for job in jobs.find(session.RUNS) if job.module == BENGIO]


def refreshed(run: TrainingRun) -> TrainingRun | None:
    """The run as it stands now; None if it was deleted."""
    if run.job is None:
        return run
    job = jobs.look(run.job.folder)
    return None if job is None else of_job(job)


def start(plan: Plan, name: str, text: tuple[str, str] | None) -> Job:
    """Puts a run into the line; a text of the visitor's (its name and characters) goes into its folder.

    Raises:
        jobs.JobError: as `jobs.submit`.
    """
    session.RUNS.mkdir(parents=True, exist_ok=True)
    folder, given = Path(jobs.FOLDER), {}
    if text is not None:
        file = re.sub(r"[^\w.-]", "_", text[0].removesuffix(".txt"))[:60] + ".txt"
        given[file] = text[1].encode("utf-8", "surrogatepass")
        plan = replace(plan, file=folder / file)
    plan = replace(plan, out=folder / f"{name}.pt", resume=True)
    return jobs.submit(session.RUNS, name, MODULE, plan.arguments, given)


def free_name(stem: str) -> str:
    """`stem`, or the first of `stem-2`, `stem-3`, … that no run and no checkpoint has."""
    taken = {path.name for path in session.RUNS.glob("*")} | {path.stem for path in checkpoints.find(session.FOLDER)}
    return next(name for n in range(1, 10_000) if (name := stem if n == 1 else f"{stem}-{n}") not in taken)


def packed(run: TrainingRun, metrics: pd.DataFrame) -> bytes:
    """What a student carries home: checkpoint, card, snapshots, the losses as CSV."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path in (run.out, run.out.with_suffix(".json"), *run_files.snapshots(run.out).values()):
            if path.is_file():
                archive.write(path, f"{run.name}/{path.relative_to(run.out.parent)}")
        archive.writestr(f"{run.name}/metrics.csv", metrics.to_csv(index=False))
    return buffer.getvalue()


def _shipped(path: Path) -> TrainingRun | None:
    card = path.with_suffix(".json")
    if not card.is_file() or not run_files.records(path):
        return None
    try:
        plan = plans.of_command(checkpoints.read_card(card.read_bytes()).get("command", ""))
    except ValueError:
        return None
    return TrainingRun(path.stem, path, plan, None)
