"""Times several ways of doing one thing, taking turns, so that a busy machine slows all of them alike."""

import statistics
import time
from collections.abc import Callable, Mapping

ROUNDS = 9


def medians(ways: Mapping[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, float]:
    """Median seconds of each way over `rounds` turns, after one that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, way in ways.items():
            begun = time.perf_counter()
            way()
            if turn:
                seconds[name].append(time.perf_counter() - begun)
    return {name: statistics.median(values) for name, values in seconds.items()}


def report(title: str, ours: str, found: Mapping[str, float]) -> None:
    """Prints a table: seconds, and how many times longer each way takes than ours."""
    print(f"\n{title}")
    for name, value in found.items():
        print(f"  {name:<52} {1000 * value:9.1f} ms  {value / found[ours]:6.2f} ×")
