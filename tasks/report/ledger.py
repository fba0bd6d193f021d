"""The time ledger of a run: process-seconds and GPU-seconds by activity, and the wall-clock of training."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tasks.report.history import History
from tasks.store.records import Manifest, Timings

ROWS = {
    "start": "processes until their first step, the verifier's workers",
    "warm_start": "making the tiny base policy",
    "load": "reading policies, starting engines",
    "generate": "sampling responses for training",
    "verify": "checking their answers",
    "optimize": "behavior log-probabilities, updates",
    "switch": "between generation and updates",
    "evaluate": "held-out problems",
    "rest": "prompts, storage, between steps",
}
"""Rows of the ledger in their order, and the time that each row counts."""

_ROW_OF_PHASE = {"logp": "optimize", "save": "rest"}
STARTS = ("load", "start")
"""Phases of an evaluation that do not count as ``evaluate``."""
_LONGEST_GAP = 120.0
"""Seconds. A longer gap between two steps of a process counts as work on something else, such as another run."""

Span = tuple[float, float]
"""Start and end, in Unix seconds."""


@dataclass(frozen=True)
class Ledger:
    """The time of a run by activity, which is a row of ``ROWS``."""

    seconds: dict[str, float]
    wall_clock: float
    """Seconds during which at least one process of the run worked; parallel work counts once."""
    training: float
    """Seconds of wall-clock of generation, verification and optimization, as ``stage_clock`` counts them."""
    gpu_seconds: dict[str, float] = field(default_factory=dict)
    """Seconds times the number of GPUs that the process saw, by row; empty if no process saw a GPU."""
    worked: list[Span] = field(default_factory=list)
    """Spans during which at least one process of the run worked, in order and without overlap."""

    @property
    def total(self) -> float:
        """Process-seconds of all rows."""
        return sum(self.seconds.values())


def make_ledger(history: History) -> Ledger:
    """Return the ledger of a run: the phases of all its artifacts, the starts of its processes, and the rest.

    The time between two steps of a process that trained for this run is counted as ``rest``. Times of four kinds are
    left out: between two processes, such as between a kill and the next start; while a process only waited for another
    one; in a process that worked for another run, up to the end of that work; and in gaps in which a process may have
    worked for another run, which are longer than two minutes or in a process that trained no policy of this run.
    """
    trained = {stage.policy.timings.process for stage in history.stages}
    seconds: dict[str, float] = defaultdict(float)
    gpu_seconds: dict[str, float] = defaultdict(float)

    def spend(row: str, spent: float, gpus: int) -> None:
        seconds[row] += spent
        gpu_seconds[row] += spent * gpus

    processes: dict[str, list[Timings]] = defaultdict(list)
    for manifest in sorted(history.manifests.values(), key=lambda one: (one.timings.started, one.digest)):
        processes[manifest.timings.process].append(manifest.timings)
        for phase, spent in manifest.timings.phases.items():
            evaluates = manifest.kind == "evaluation" and phase not in STARTS
            spend("evaluate" if evaluates else _ROW_OF_PHASE.get(phase, phase), spent, manifest.timings.gpus)
    worked: list[Span] = []
    for process, timings in processes.items():
        start, busy = _start_and_work(timings, with_gaps=not trained or process in trained)
        worked += start + busy
        gpus = max(one.gpus for one in timings)
        inside = sum(sum(one.phases.values()) - one.earlier for one in timings)
        spend("start", union_seconds(start), gpus)
        spend("rest", max(0.0, union_seconds(busy) - inside), gpus)
    earlier = sum(manifest.timings.earlier for manifest in history.manifests.values())
    others = sorted(seconds.keys() - ROWS.keys())
    order = [row for row in (*list(ROWS)[:-1], *others, "rest") if row in seconds]
    return Ledger(
        {row: seconds[row] for row in order},
        union_seconds(worked) + earlier,
        stage_clock(history)[-1],
        {row: gpu_seconds[row] for row in order} if any(gpu_seconds.values()) else {},
        merge(worked),
    )


def _start_and_work(timings: Sequence[Timings], with_gaps: bool) -> tuple[list[Span], list[Span]]:
    """Return the spans of a process's start and of its later work. The timings are sorted by the start of the step."""
    steps = merge((one.started, one.finished) for one in timings)
    waited = merge(wait for one in timings for wait in one.waited)
    ends = [timings[0].process_started, *(end for _, end in steps)]
    idle_since = {one.started: one.idle_since for one in timings}
    spans = [(max(end, idle_since[start]), start) for end, (start, _) in zip(ends, steps, strict=False)]
    gaps = [_subtract(span, waited) for span in spans]
    start, *between = [gap if union_seconds(gap) <= _LONGEST_GAP else [] for gap in gaps]
    if timings[0].idle_since:  # The process had started for another run.
        start, between = [], [start, *between]
    return start, merge([*steps, *(span for gap in between for span in gap if with_gaps)])


def _subtract(span: Span, holes: Sequence[Span]) -> list[Span]:
    """Return the spans that remain of a span without its holes, which are in order and do not overlap."""
    edges = [span[0], *(edge for hole in holes for edge in hole), span[1]]
    bounded = [min(max(edge, span[0]), span[1]) for edge in edges]
    return [(start, end) for start, end in zip(bounded[::2], bounded[1::2], strict=True) if start < end]


def merge(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order, with overlapping spans merged."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def union_seconds(spans: Iterable[Span]) -> float:
    """Return the length of the union of spans, in seconds."""
    return sum(end - start for start, end in merge(spans))


def seconds_before(worked: Iterable[Span], moment: float) -> float:
    """Return the seconds of the union of spans before a moment in Unix seconds."""
    return union_seconds((start, min(end, moment)) for start, end in worked if start < moment)


def seconds_at_work(manifests: Iterable[Manifest]) -> float:
    """Return the seconds of work on these artifacts, with earlier attempts; parallel work counts once."""
    timings = [manifest.timings for manifest in manifests]
    return union_seconds((one.started, one.finished) for one in timings) + sum(one.earlier for one in timings)


def steps_of(history: History) -> dict[str, dict[str, list[Manifest]]]:
    """Return the manifests of a run by stage and by task, in order; ``before`` holds those before the first stage."""
    # Rollouts and verdicts that no policy has as parents belong to the unfinished stage.
    sampled = history.of_kind("rollouts")
    numbers = {one.digest: len(history.stages) + 1 for one in (*sampled, *history.of_kind("verdicts"))}
    for stage in history.stages:
        numbers |= {one.digest: stage.number for one in stage.steps}
    for rollouts in sampled:
        numbers |= {prompts.digest: numbers[rollouts.digest] for prompts in rollouts.parents.get("prompts", [])}
    for policy in history.evaluated:
        numbers |= {one.evaluation.digest: policy.stage for one in policy.evaluations}
    steps: dict[str, dict[str, list[Manifest]]] = {}
    for one in sorted(
        history.manifests.values(), key=lambda one: (numbers.get(one.digest, 0), one.timings.started, one.digest)
    ):
        if one.task not in ("", "average"):  # An average takes no time.
            number = numbers.get(one.digest)
            steps.setdefault(f"stage {number}" if number else "before", {}).setdefault(one.task, []).append(one)
    return steps


def stage_clock(history: History) -> list[float]:
    """Return the seconds of training up to the base policy, which are 0, and up to the policy of every stage.

    Training is generation, verification and optimization; the paper's wall-clock has generation and optimization (text
    around Fig. 1). Parallel steps count once. The work of a killed attempt counts; the time until the next attempt does
    not. Evaluations, the work before the first stage and the starts of the verifier's workers do not count: the workers
    stay for the next run of the process.
    """
    manifests: list[Manifest] = []
    clock = [0.0]
    for stage in history.stages:
        manifests += stage.steps
        clock.append(seconds_at_work(manifests) - sum(one.timings.phases.get("start", 0.0) for one in manifests))
    return clock


def training_clock(history: History) -> list[float]:
    """Return the seconds of training up to each evaluated policy."""
    clock = stage_clock(history)
    return [clock[policy.stage] for policy in history.evaluated]
