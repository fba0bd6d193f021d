"""The speed-up of one system over another: their times, how much faster one is, and the causes of the difference.

The causes split the seconds that one system saves into parts whose sum is the whole difference; docs/speedup.md
explains the method and its limits.
Legend of shapes: A rollouts artifacts; F features of work: forward passes, and rows in them.
"""

from collections.abc import Sequence
from statistics import mean

import numpy as np
from scipy.optimize import nnls

from tasks.experiments.result import Cause, Speed, Times
from tasks.experiments.runs import EngineWork, Floats, Pair, SystemRun, of_system, pairs_by_baseline
from tasks.report.ledger import training_clock
from tasks.store.records import Manifest, Timings

GENERATION, END_TO_END, TO_LEVEL = "generation", "end to end", "to the level of the baseline"
SWITCHES, BARRIER, BATCHES = "switches avoided", "no straggler barrier", "larger generation batches"
LOGP, UPDATES, VERIFY = "log-probabilities", "updates", "verification"
STORAGE, RESPONSES = "storage and the rest", "shorter or longer responses"
UNEXPLAINED, UNDIVIDED = "generation, unexplained", "generation, undivided"
CAUSES = (
    *(SWITCHES, BARRIER, BATCHES, LOGP, UPDATES, VERIFY, STORAGE, RESPONSES),
    *(UNEXPLAINED, UNDIVIDED),  # the second where the work of single calls is not known
)
"""Every cause in the order of the tables."""
_CAUSE_OF_PHASE = {
    "load": SWITCHES,
    "switch": SWITCHES,
    "generate": UNDIVIDED,
    "verify": VERIFY,
    "logp": LOGP,
    "optimize": UPDATES,
}
"""The cause to which the difference in a phase of training belongs; that in all other phases is ``STORAGE``."""
Rates = dict[tuple[object, ...], Floats]
"""Seconds of a pass and of a row, [F], by engine."""


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
                wall_clocks=[training_clock(run.history)[-1] for run in found],
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
    for model, baseline, pairs in pairs_by_baseline(runs, reference, baselines):
        ratios = [_ratios(*pair) for pair in pairs]
        for name in ratios[0]:
            by_seed = [one[name] for one in ratios]
            known = [one for one in by_seed if one is not None]
            # Ratios multiply: 2 and 0.5 are as fast on the whole.
            ratio = float(np.exp(np.mean(np.log(known)))) if len(known) == len(by_seed) else None
            speeds.append(Speed(model=model, baseline=baseline, name=name, ratio=ratio, by_seed=by_seed))
    return speeds


def _ratios(ours: SystemRun, theirs: SystemRun) -> dict[str, float | None]:
    """Return how often the seconds of a run of the reference go into those of a baseline; None where one has none."""
    clock, whole = training_clock(ours.history), training_clock(theirs.history)[-1]
    level = theirs.history.evaluated[-1].accuracy.value
    reached = (at for at, one in zip(clock, ours.history.evaluated, strict=True) if one.accuracy.value >= level)
    seconds = {
        GENERATION: (_generating(theirs), _generating(ours)),
        END_TO_END: (whole, clock[-1]),
        TO_LEVEL: (whole, next(reached, 0.0)),
    }
    return {name: other / own if min(other, own) > 0 else None for name, (other, own) in seconds.items()}


def _generating(run: SystemRun) -> float:
    """Return GPU-seconds where there are GPUs: shards side by side are no faster than the same GPUs at one task."""
    return (run.ledger.gpu_seconds or run.ledger.seconds).get("generate", 0.0)


def split_causes(runs: Sequence[SystemRun], reference: str, baselines: Sequence[str]) -> list[Cause]:
    """Explain why the reference takes less or more time than each baseline, model by model.

    The causes of a model and baseline add up to the mean difference of ``training_time`` over the seeds that both have.
    Runs with different numbers of updates are not compared.
    """
    causes = []
    for model, baseline, all_pairs in pairs_by_baseline(runs, reference, baselines):
        pairs = pairs_of_equal_length(all_pairs)
        rates = _fit_rates([one for pair in pairs if _has_calls(pair) for run in pair for one in run.calls or []])
        saved = [_saved_by_cause(*pair, rates) for pair in pairs]
        for name in CAUSES:
            if any(name in one for one in saved):
                seconds = mean(one.get(name, 0.0) for one in saved)
                causes.append(Cause(model=model, baseline=baseline, name=name, seconds=seconds))
    return causes


def pairs_of_equal_length(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs of which both runs made equally many updates."""
    return [pair for pair in pairs if _updates(pair[0]) == _updates(pair[1]) is not None]


def _updates(run: SystemRun) -> int | None:
    return run.history.stages[-1].last_update if run.history.stages else None


def _has_calls(pair: Pair) -> bool:
    return all(run.calls is not None for run in pair)


def training_time(run: SystemRun) -> dict[str, float]:
    """Return seconds of training times the devices that they were spent on, by the cause that they belong to.

    ``STORAGE`` is what the steps that generate, verify and optimize take besides their phases, or write. Where they run
    one after the other, each on one device, all together are the training's wall-clock.
    """
    parts = dict.fromkeys([*_CAUSE_OF_PHASE.values(), STORAGE], 0.0)
    for stage in run.history.stages:
        for manifest in (*stage.rollouts, *stage.verdicts, stage.policy):
            within = manifest is not stage.policy and _is_within(manifest.timings, stage.policy.timings)
            rest = 0.0 if within else manifest.timings.seconds + manifest.timings.earlier
            for phase, seconds in manifest.timings.phases.items():
                if phase in _CAUSE_OF_PHASE:
                    parts[_CAUSE_OF_PHASE[phase]] += _devices(manifest) * seconds
                    rest -= seconds
            parts[STORAGE] += _devices(manifest) * max(0.0, rest)
    return parts


def _is_within(one: Timings, other: Timings) -> bool:
    """Return whether a step wrote an artifact on the way to another, as where generation and updates take turns."""
    return one.process == other.process and other.started <= one.started and one.finished <= other.finished


def _devices(manifest: Manifest) -> int:
    """Return the devices that the step worked on that made an artifact; 1 where its settings do not tell."""
    section, name = {"policy": ("backend", "processes"), "rollouts": ("engine", "tensor_parallel")}.get(
        manifest.kind, ("", "")
    )
    return int(manifest.settings.get(section, {}).get(name, 1))


def _saved_by_cause(ours: SystemRun, theirs: SystemRun, rates: Rates) -> dict[str, float]:
    """Return seconds by cause; they are negative where the reference spends more."""
    runs = (theirs, ours)
    times = [training_time(run) for run in runs]
    spent = {name: np.array([time[name] for time in times]) for name in times[0]}
    sequences = [run.sequence_tokens for run in runs]
    in_proportion = {LOGP: sequences, UPDATES: sequences}
    if _has_calls((ours, theirs)):
        responses = [run.response_tokens for run in runs]
        in_proportion |= {BARRIER: responses, BATCHES: responses}
        calls = np.array([sum(one.seconds for one in run.calls or []) for run in runs])
        modelled = np.array([sum(one.work_F @ rates[one.engine] for one in run.calls or []) for run in runs])
        needed = np.array([sum(one.needed_F @ rates[one.engine] for one in run.calls or []) for run in runs])
        spent[STORAGE] = spent[STORAGE] + spent.pop(UNDIVIDED) - calls
        spent |= {UNEXPLAINED: calls - modelled, BARRIER: modelled - needed, BATCHES: needed}
    found = {name: float(one[0] - one[1]) for name, one in spent.items()}
    # What goes with the difference in tokens, at the mean rate of both systems, is a cause of its own.
    for name, tokens in in_proportion.items():
        rate = mean(seconds / count if count else 0.0 for seconds, count in zip(spent[name], tokens, strict=True))
        moved = float((tokens[0] - tokens[1]) * rate)
        found[name] -= moved
        found[RESPONSES] = found.get(RESPONSES, 0.0) + moved
    return found


def _fit_rates(timed: Sequence[EngineWork]) -> Rates:
    """Fit the seconds of a pass and of a row, neither below 0, to all calls.

    Least squares, weighted by one over the seconds, because what disturbs calls adds up over them.
    """
    rates: Rates = {}
    for engine in dict.fromkeys(one.engine for one in timed):
        own = [one for one in timed if one.engine == engine]
        work_AF, seconds_A = np.array([one.work_F for one in own]), np.array([one.seconds for one in own])
        weight_A = 1 / np.sqrt(np.maximum(seconds_A, 1e-9))
        unit_F = np.maximum(work_AF.max(axis=0), 1e-9)  # Features differ by orders of magnitude.
        rates_F, _ = nnls(weight_A[:, None] * work_AF / unit_F, weight_A * seconds_A)
        rates[engine] = np.asarray(rates_F / unit_F)
    return rates
