"""Where a run's seconds went, and those of its GPUs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tasks.artifacts.records import Manifest, Timings
from tasks.report.history import History

ROWS = {
    "start": "from the start of a process to its first step",
    "warm_start": "making the tiny base policy",
    "load": "reading policies, starting engines",
    "generate": "sampling responses for training",
    "verify": "checking their answers",
    "optimize": "behavior log-probabilities, updates",
    "switch": "between generation and updates",
    "evaluate": "held-out problems",
    "rest": "prompts, storage, between steps",
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
    gpu_seconds: dict[str, float] = field(default_factory=dict)
    """By row: seconds times the GPUs that the process saw. Empty where no process saw one."""
    worked: list[Interval] = field(default_factory=list)
    """When some process of the run was working, in Unix seconds, without overlap and in order."""

    @property
    def total(self) -> float:
        """The sum of all rows: process-seconds."""
        return sum(self.seconds.values())

    @property
    def training(self) -> float:
        """The sum without evaluation and without making the base policy."""
        return training_seconds(self.seconds)

    @property
    def outside_phases(self) -> float:
        """Seconds that no step spent on what it is for."""
        return self.seconds.get("start", 0.0) + self.seconds.get("rest", 0.0)

    def elapsed(self, moment: float) -> float:
        """Seconds of ``worked`` before a moment, which is in Unix seconds."""
        return covered((start, min(end, moment)) for start, end in self.worked if start < moment)


def training_seconds(seconds: dict[str, float]) -> float:
    """The part of a ledger that training takes: all but evaluation and making the base policy."""
    return sum(value for row, value in seconds.items() if row not in ("evaluate", "warm_start"))


def make_ledger(history: History) -> Ledger:
    """Sums the phases of every artifact of a run, and what its processes spent besides.

    The time between two processes, such as between a kill and the next start, belongs to none and is not counted; nor
    is what a process did for another run, nor the time in which it only waited for another process.
    """
    spent = _Spent()
    processes: dict[str, list[Manifest]] = {}
    for manifest in sorted(history.manifests.values(), key=lambda manifest: manifest.digest):
        processes.setdefault(manifest.timings.process, []).append(manifest)
        for phase, seconds in manifest.timings.phases.items():
            spent.add(_row(manifest, phase), seconds, manifest.timings.gpus)
    carried = 0.0
    worked: list[Interval] = []
    for process, made in sorted(processes.items()):
        timings = [manifest.timings for manifest in made]
        others = [other for other in history.others if other.process == process]
        busy, start = _busy(timings, others)
        worked += busy
        gpus = max(one.gpus for one in timings)
        earlier = sum(one.earlier for one in timings)
        outside = covered(busy) - start - (sum(sum(one.phases.values()) for one in timings) - earlier)
        carried += earlier
        spent.add("start", start, gpus)
        spent.add("rest", max(0.0, outside), gpus)
    return Ledger(
        spent.ordered(spent.seconds),
        covered(worked) + carried,
        spent.ordered(spent.gpu_seconds) if any(spent.gpu_seconds.values()) else {},
        merge(worked),
    )


class _Spent:
    """Seconds by row, and those of GPUs."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.gpu_seconds: dict[str, float] = {}

    def add(self, row: str, seconds: float, gpus: int) -> None:
        self.seconds[row] = self.seconds.get(row, 0.0) + seconds
        self.gpu_seconds[row] = self.gpu_seconds.get(row, 0.0) + seconds * gpus

    def ordered(self, found: dict[str, float]) -> dict[str, float]:
        """In the order of ROWS; what is none of them stands before the rest."""
        others = sorted(found.keys() - ROWS.keys())
        names = [row for row in ROWS if row != "rest"]
        return {row: found[row] for row in (*names, *others, "rest") if row in found}


def _row(manifest: Manifest, phase: str) -> str:
    if manifest.kind == "evaluation" and phase != "load":
        return "evaluate"
    return _ROW_OF_PHASE.get(phase, phase)


def _busy(own: Sequence[Timings], others: Sequence[Timings]) -> tuple[list[Interval], float]:
    """The intervals in which a process worked for the run, and how many of their seconds came before its first step.

    The time between two steps belongs to the one that follows; so does a process's start.
    """
    everyone = [*own, *others]
    first = min(one.started for one in everyone)
    begun = own[0].process_started
    start = begun if 0 <= first - begun <= _STEADY_START_SECONDS else first
    ends = [start, *(one.finished for one in everyone)]
    mine = merge((max(end for end in ends if end <= one.started), one.finished) for one in own)
    at_own = merge((one.started, one.finished) for one in own)
    waited = merge(wait for one in own for wait in one.waited)
    foreign = _without(merge([*((one.started, one.finished) for one in others), *waited]), at_own)
    started = 0.0
    if any(one.started == first for one in own):
        started = covered(_without([(start, first)], waited))
    return _without(mine, foreign), started


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


def at_work(manifests: Iterable[Manifest]) -> float:
    """Seconds during which some of these artifacts was being made, also in earlier attempts."""
    timings = [manifest.timings for manifest in manifests]
    return covered((one.started, one.finished) for one in timings) + sum(one.earlier for one in timings)
