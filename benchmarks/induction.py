"""The course's copying gain on the same sequences: all at once, against the notebook's loop over single ones."""

from benchmarks import course, timing
from interp_core import checkpoints, copying

OURS = "ours: the same sequences, batched"
TRIALS = 300


def run() -> None:
    """Prints the comparison; checks first that both give the same number."""
    folder = course.reference()
    if folder is None:
        print("induction: needs the course's code beside the folder that LOUPE_DATA names")
        return
    notebook = course.notebook(folder)
    model = checkpoints.load(folder / "step6_model.pt").model
    protocol = copying.Protocol(sequences=TRIALS)
    first, second = notebook["copy_gain"](trials=TRIALS)
    gain = copying.course_gain(model, protocol).estimate
    assert abs(gain - (first - second)) < 1e-4, (gain, first - second)
    ways = {
        OURS: lambda: copying.course_gain(model, protocol),
        "ours: all three contexts, positions and intervals": lambda: copying.measure(model, protocol).table(),
        "the notebook: one sequence at a time": lambda: notebook["copy_gain"](trials=TRIALS),
    }
    timing.report(f"Copying gain over {TRIALS} repeats of 32 tokens", OURS, timing.medians(ways, rounds=5))
