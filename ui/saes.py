"""Autoencoders as the SAE page sees them: those that came with the app, and those that are or were trained here."""

from dataclasses import dataclass, replace
from pathlib import Path

from interp_core import checkpoints, corpora, jobs, sae_files, sae_job
from interp_core.jobs import Job
from interp_core.sae_files import SaeError
from interp_core.sae_job import Plan
from interp_core.tokenizers import CharTokenizer
from ui import session
from ui.bench import Bench

MODULE = "interp_core.sae_job"
FEWEST_TOKENS = 20_000  # of a training part: with fewer there is nothing to find


@dataclass(frozen=True)
class Dictionary:
    """One autoencoder, whoever trained it."""

    name: str
    out: Path
    job: Job | None  # None: it came with the app

    @property
    def ready(self) -> bool:
        """Whether there is a file to open."""
        return self.stamp > 0

    @property
    def stamp(self) -> int:
        """When its file was written; 0 while there is none."""
        return self.out.stat().st_mtime_ns if self.out.is_file() else 0


def find(bench: Bench) -> list[Dictionary]:
    """Those of the checkpoint on the bench, the newest first, shipped ones last."""
    if session.RUNS.is_dir():
        jobs.advance(session.RUNS)
    own = []
    for job in jobs.find(session.RUNS):
        plan = plan_of(job)
        if plan is not None and plan.of == bench.checkpoint.sha256:
            own.append(Dictionary(job.name, plan.out, job))
    shipped = [path for path in sae_files.find(session.FOLDER) if _of(path) == bench.checkpoint.sha256]
    return own + [Dictionary(path.name.removesuffix(sae_files.ENDING), path, None) for path in shipped]


def plan_of(job: Job) -> Plan | None:
    """What a job trains; None where it is none of ours, or of another version."""
    if job.module != MODULE:
        return None
    try:
        return sae_job.of_arguments([part.replace(jobs.FOLDER, str(job.folder)) for part in job.arguments])
    except (ValueError, SystemExit):
        return None


def start(plan: Plan, bench: Bench, name: str) -> Job:
    """Puts a training into the line; what has no place on the disk, or is the visitor's, goes into its folder.

    Raises:
        jobs.JobError: as `jobs.submit`.
        ValueError: too short a text.
    """
    if len(bench.text.train) < FEWEST_TOKENS:
        raise ValueError(
            f"The training part of {bench.text.name} has {len(bench.text.train):,} tokens, and {FEWEST_TOKENS:,} are the "
            "least to learn features from: choose a longer text in the sidebar."
        )
    session.RUNS.mkdir(parents=True, exist_ok=True)
    folder, given = Path(jobs.FOLDER), {}
    plan = replace(plan, out=folder / f"{name}{sae_files.ENDING}", of=bench.checkpoint.sha256, text=bench.text.name)
    with_it = bench.path is not None and not bench.checkpoint.answers and bench.checkpoint.vocabulary_source == "card"
    if bench.text.name not in corpora.NAMES or bench.text.dropped or not with_it:
        given["tokens.safetensors"] = sae_job.write_tokens(bench.text)
        plan = replace(plan, tokens=folder / "tokens.safetensors")
    if bench.path is not None and with_it:
        plan = replace(plan, checkpoint=bench.path.resolve())
    else:
        given |= _packed(bench)
        plan = replace(plan, checkpoint=folder / "model.pt")
    return jobs.submit(session.RUNS, name, MODULE, plan.arguments, given)


def _packed(bench: Bench) -> dict[str, bytes]:
    """A checkpoint of the visitor's as the two files that a job reads."""
    tokenizer = bench.checkpoint.tokenizer
    vocabulary = tokenizer.vocabulary if isinstance(tokenizer, CharTokenizer) else None
    return checkpoints.packed("model", bench.checkpoint.model, vocabulary)


def _of(path: Path) -> str:
    try:
        return str(sae_files.card_of(path)["checkpoint"])
    except SaeError:
        return ""
