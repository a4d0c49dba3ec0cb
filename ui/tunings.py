"""Sweeps of low-rank tunings as the Tuning page sees them."""

from dataclasses import dataclass, replace
from pathlib import Path

from interp_core import checkpoints, corpora, domains, jobs, lora_job
from interp_core.corpora import Text
from interp_core.jobs import Job
from interp_core.lora_job import Plan
from interp_core.tokenizers import CharTokenizer, NumberTokenizer, UnknownCharacters
from ui import cache, session
from ui.bench import Bench

MODULE = "interp_core.lora_job"
SHIPPED = " (shipped)"  # behind the name of a sweep that came with the app: one of the visitor's may be called the same
LEAST = 8_000  # characters of a speaker who is offered
MOST_SPEAKERS = 4


@dataclass(frozen=True)
class Tuned:
    """One sweep."""

    name: str
    results: Path
    out: Path | None  # the tuned model, once there is one
    job: Job | None  # None: it came with the app

    @property
    def stamp(self) -> int:
        """When its results were written; 0 while there are none."""
        return self.results.stat().st_mtime_ns if self.results.is_file() else 0


def find(bench: Bench) -> list[Tuned]:
    """The sweeps of the checkpoint on the bench, the newest first, shipped ones last."""
    if session.RUNS.is_dir():
        jobs.advance(session.RUNS)
    found = []
    for job in jobs.find(session.RUNS):
        plan = _plan_of(job)
        if plan is not None and plan.of == bench.checkpoint.sha256:
            found.append(Tuned(job.name, plan.results, plan.out, job))
    for path in sorted(session.FOLDER.glob(f"*{lora_job.RESULTS}")):
        shipped = Tuned(path.name.removesuffix(lora_job.RESULTS) + SHIPPED, path, None, None)
        if cache.sweep_results(str(path), shipped.stamp).papers["checkpoint"] == bench.checkpoint.sha256:
            found.append(shipped)
    return found


def offered(bench: Bench) -> list[str]:
    """What the checkpoint can be tuned on: parts of a play that it was not trained on, other texts, the visitor's own."""
    if isinstance(bench.checkpoint.tokenizer, NumberTokenizer):
        return []
    held = _held_out(bench)
    own = [domains.SPEAKER_OF + name for name in list(domains.speakers(held, LEAST))[:MOST_SPEAKERS]]
    if own:
        own = [domains.PROSE, domains.VERSE, *own]
    others = [name for name in (*corpora.NAMES, *cache.brought_texts()) if name != bench.text.name]
    return [*own, *(name for name in others if name not in corpora.NAMES or corpora.is_local(name))]


def texts(bench: Bench, name: str, drop: bool) -> tuple[Text, Text]:
    """The target, and the source without it, both in the checkpoint's tokens.

    Raises:
        UnknownCharacters: the target has others than the checkpoint knows, and they are not to be dropped.
    """
    tokenizer, unknown = bench.checkpoint.tokenizer, "drop" if drop else "error"
    held = _held_out(bench)
    own = cache.brought_texts()
    if name in own or name in corpora.NAMES:
        target, rest = own[name] if name in own else cache.characters(name), held
    else:
        target, rest = domains.part(held, name)
    encoded = corpora.encode(name, target, tokenizer, unknown)  # type: ignore[arg-type]
    return encoded, corpora.encode(bench.text.name, rest, tokenizer, "drop")


def start(plan: Plan, bench: Bench, given: tuple[Text, Text], name: str) -> Job:
    """Puts a sweep into the line.

    Raises:
        jobs.JobError: as `jobs.submit`.
    """
    session.RUNS.mkdir(parents=True, exist_ok=True)
    folder, tokenizer = Path(jobs.FOLDER), bench.checkpoint.tokenizer
    vocabulary = tokenizer.vocabulary if isinstance(tokenizer, CharTokenizer) else None
    files = checkpoints.packed("base", bench.checkpoint.model, vocabulary)
    files["tokens.safetensors"] = lora_job.write_tokens(*given)
    plan = replace(
        plan, out=folder / f"{name}.pt", checkpoint=folder / "base.pt", tokens=folder / "tokens.safetensors",
        of=bench.checkpoint.sha256,
    )  # fmt: skip
    return jobs.submit(session.RUNS, name, MODULE, plan.arguments, files)


def _plan_of(job: Job) -> Plan | None:
    if job.module != MODULE:
        return None
    try:
        return lora_job.of_arguments([part.replace(jobs.FOLDER, str(job.folder)) for part in job.arguments])
    except (ValueError, SystemExit):
        return None


def _held_out(bench: Bench) -> str:
    """The characters of the validation part: a base model that was trained on the text has not seen them."""
    return bench.checkpoint.tokenizer.decode(bench.text.validation.tolist())


__all__ = ["Tuned", "UnknownCharacters", "find", "offered", "start", "texts"]
