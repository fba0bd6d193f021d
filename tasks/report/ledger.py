"""Where a run's seconds went."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tasks.artifacts.records import Manifest, Timings
from tasks.report.history import History

ROWS = {
    "warm_start": "making the tiny base policy",
    "load": "reading policies, starting engines",
    "generate": "sampling responses for training",
    "verify": "checking their answers",
    "optimize": "behavior log-probabilities, updates",
    "switch": "between generation and updates",
    "evaluate": "held-out problems",
    "rest": "process start, prompts, storage",
}
"""Rows of the ledger in their order, and what each counts."""

_ROW_OF_PHASE = {"logp": "optimize", "save": "rest"}
_STEADY_START_SECONDS = 120.0
"""A process that lived longer than this before its first artifact was doing something else."""

Interval = tuple[float, float]


@dataclass(frozen=True)
class Ledger:
    """Seconds by row."""

    seconds: dict[str, float]
    wall_clock: float
    """Time during which some process of the run was working; what ran side by side counts once."""

    @property
    def total(self) -> float:
        """The sum of all rows: process-seconds."""
        return sum(self.seconds.values())

    @property
    def training(self) -> float:
        """The sum without evaluation and without making the base policy."""
        return training_seconds(self.seconds)


def training_seconds(seconds: dict[str, float]) -> float:
    """The part of a ledger that training takes: all but evaluation and making the base policy."""
    return sum(value for row, value in seconds.items() if row not in ("evaluate", "warm_start"))


def make_ledger(history: History) -> Ledger:
    """Sums the phases of every artifact of a run, and what its processes spent besides.

    The time between two processes, such as between a kill and the next start, belongs to none and is not counted; nor
    is what a process did for another run.
    """
    seconds: dict[str, float] = {}
    processes: dict[str, list[Manifest]] = {}
    for manifest in sorted(history.manifests.values(), key=lambda manifest: manifest.digest):
        processes.setdefault(manifest.timings.process, []).append(manifest)
        for phase, spent in manifest.timings.phases.items():
            row = _row(manifest, phase)
            seconds[row] = seconds.get(row, 0.0) + spent
    rest = carried = 0.0
    worked: list[Interval] = []
    for process, made in sorted(processes.items()):
        timings = [manifest.timings for manifest in made]
        busy = _busy(timings, [other for other in history.others if other.process == process])
        worked += busy
        phases = sum(sum(one.phases.values()) for one in timings)
        # Phases exceed the span when an optimizer went on with what a killed process had begun.
        rest += max(0.0, covered(busy) - phases)
        carried += max(0.0, phases - covered(busy))
    seconds["rest"] = seconds.get("rest", 0.0) + rest
    order = [*ROWS, *sorted(seconds.keys() - ROWS.keys())]
    order.append(order.pop(order.index("rest")))
    ordered = {row: seconds[row] for row in order if row in seconds}
    return Ledger(ordered, covered(worked) + carried)


def _row(manifest: Manifest, phase: str) -> str:
    if manifest.kind == "evaluation" and phase != "load":
        return "evaluate"
    return _ROW_OF_PHASE.get(phase, phase)


def _busy(own: Sequence[Timings], others: Sequence[Timings]) -> list[Interval]:
    """The intervals in which a process worked for the run."""
    first = min(one.started for one in own)
    begun = own[0].process_started
    start = begun if 0 <= first - begun <= _STEADY_START_SECONDS else first
    end = max(one.finished for one in own)
    mine = merge((one.started, one.finished) for one in own)
    foreign = _without(merge((one.started, one.finished) for one in others), mine)
    return _without([(start, end)], foreign)


def merge(intervals: Iterable[Interval]) -> list[Interval]:
    """Intervals in their order; those that overlap become one."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _without(intervals: Sequence[Interval], holes: Sequence[Interval]) -> list[Interval]:
    left = list(intervals)
    for low, high in holes:
        left = [
            part
            for start, end in left
            for part in ((start, min(end, low)), (max(start, high), end))
            if part[0] < part[1]
        ]
    return left


def covered(intervals: Iterable[Interval]) -> float:
    """Seconds within some interval; where they overlap these count once."""
    return sum(end - start for start, end in merge(intervals))
