"""The times of the systems of a comparison, and how much faster the reference is."""

from collections.abc import Callable, Sequence

import numpy as np

from tasks.experiments.result import Speed, Times
from tasks.experiments.runs import SystemRun, of_system
from tasks.report.ledger import seconds_to, training_clock

GENERATION, END_TO_END, TO_LEVEL = "generation", "end to end", "to the level of the baseline"

Ratio = Callable[[SystemRun, SystemRun], float | None]
"""The speed of a run of the reference relative to a run of a baseline with the same seed."""


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
                wall_clock=float(np.mean([training_clock(run.history)[-1] for run in found])),
                ledger=_mean([run.ledger.seconds for run in found]),
                gpu_seconds=_mean([run.ledger.gpu_seconds for run in found]),
                wall_clocks=[training_clock(run.history)[-1] for run in found],
            )
        )
    return rows


def _mean(ledgers: Sequence[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for ledger in ledgers for name in ledger)
    return {name: float(np.mean([ledger.get(name, 0.0) for ledger in ledgers])) for name in names}


def speeds_of(runs: Sequence[SystemRun], reference: str, baselines: Sequence[str]) -> list[Speed]:
    """Return how much faster the reference is than every baseline, model by model."""
    measures: dict[str, Ratio] = {GENERATION: _generation, END_TO_END: _end_to_end, TO_LEVEL: _to_level}
    speeds = []
    for model in dict.fromkeys(run.model for run in runs):
        ours = of_system(runs, model, reference)
        for baseline in baselines:
            theirs = {run.seed: run for run in of_system(runs, model, baseline)}
            pairs = [(run, theirs[run.seed]) for run in ours if run.seed in theirs]
            if not pairs:
                continue
            for name, ratio in measures.items():
                by_seed = [ratio(*pair) for pair in pairs]
                known = [one for one in by_seed if one is not None]
                speeds.append(
                    Speed(
                        model=model,
                        baseline=baseline,
                        name=name,
                        # Ratios multiply: 2 and 0.5 are as fast on the whole.
                        ratio=float(np.exp(np.mean(np.log(known)))) if len(known) == len(by_seed) else None,
                        by_seed=by_seed,
                    )
                )
    return speeds


def _generation(ours: SystemRun, theirs: SystemRun) -> float | None:
    return _ratio(_generating(theirs), _generating(ours))


def _generating(run: SystemRun) -> float:
    """Return GPU-seconds where there are GPUs: shards side by side are no faster than the same GPUs at one task."""
    return (run.ledger.gpu_seconds or run.ledger.seconds).get("generate", 0.0)


def _end_to_end(ours: SystemRun, theirs: SystemRun) -> float | None:
    return _ratio(training_clock(theirs.history)[-1], training_clock(ours.history)[-1])


def _to_level(ours: SystemRun, theirs: SystemRun) -> float | None:
    """Return the time of the baseline's training over that which the reference needs to be as good as its end."""
    level = theirs.history.evaluated[-1].accuracy.value
    clock = training_clock(ours.history)
    reached = seconds_to(level, clock, [policy.accuracy.value for policy in ours.history.evaluated])
    return None if reached is None else _ratio(training_clock(theirs.history)[-1], reached)


def _ratio(theirs: float, ours: float) -> float | None:
    return theirs / ours if theirs > 0 and ours > 0 else None
