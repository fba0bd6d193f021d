"""The times of the systems of a comparison, and how much faster the reference is."""

from collections.abc import Callable, Sequence

import numpy as np

from tasks.experiments.result import Speed, Times
from tasks.experiments.runs import SystemRun, of_system, pairs_of
from tasks.report.ledger import seconds_to, training_clock

GENERATION, END_TO_END, TO_LEVEL = "generation", "end to end", "to the level of the baseline"


def times_of(runs: Sequence[SystemRun]) -> list[Times]:
    """Return a row per model and system, in the order of the runs."""
    rows = []
    for model, system in dict.fromkeys((run.model, run.system) for run in runs):
        found = of_system(runs, model, system)
        rows.append(
            Times(
                model=model,
                system=system,
                updates=max(run.history.evaluated[-1].updates for run in found),
                wall_clocks=[_whole(run) for run in found],
                ledger=_mean([run.ledger.seconds for run in found]),
                gpu_seconds=_mean([run.ledger.gpu_seconds for run in found]),
            )
        )
    return rows


def _mean(ledgers: Sequence[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for ledger in ledgers for name in ledger)
    return {name: float(np.mean([ledger.get(name, 0.0) for ledger in ledgers])) for name in names}


def speeds_of(runs: Sequence[SystemRun], reference: str, baselines: Sequence[str]) -> list[Speed]:
    """Return how much faster the reference is than every baseline, model by model."""
    speeds = []
    for model in dict.fromkeys(run.model for run in runs):
        for baseline in baselines:
            pairs = pairs_of(runs, model, reference, baseline)
            for name, seconds in _MEASURES.items() if pairs else ():
                by_seed = [_ratio(*seconds(*pair)) for pair in pairs]
                known = [one for one in by_seed if one is not None]
                # Ratios multiply: 2 and 0.5 are as fast on the whole.
                ratio = float(np.exp(np.mean(np.log(known)))) if len(known) == len(by_seed) else None
                speeds.append(Speed(model=model, baseline=baseline, name=name, ratio=ratio, by_seed=by_seed))
    return speeds


def _ratio(ours: float, theirs: float) -> float | None:
    return theirs / ours if theirs > 0 and ours > 0 else None


def _whole(run: SystemRun) -> float:
    return training_clock(run.history)[-1]


def _generating(run: SystemRun) -> float:
    """Return GPU-seconds where there are GPUs: shards side by side are no faster than the same GPUs at one task."""
    return (run.ledger.gpu_seconds or run.ledger.seconds).get("generate", 0.0)


def _until(level: float, run: SystemRun) -> float:
    """Return the seconds of training until a run reaches an accuracy; 0 where it never does."""
    reached = [policy.accuracy.value for policy in run.history.evaluated]
    return seconds_to(level, training_clock(run.history), reached) or 0.0


_MEASURES: dict[str, Callable[[SystemRun, SystemRun], tuple[float, float]]] = {
    GENERATION: lambda ours, theirs: (_generating(ours), _generating(theirs)),
    END_TO_END: lambda ours, theirs: (_whole(ours), _whole(theirs)),
    TO_LEVEL: lambda ours, theirs: (_until(theirs.history.evaluated[-1].accuracy.value, ours), _whole(theirs)),
}
"""Seconds of a run of the reference, and of one of a baseline, whose ratio is a speed."""
