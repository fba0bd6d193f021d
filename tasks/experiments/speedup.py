"""The speed-up of one system over another: times, ratios, and the causes of the difference.

The seconds of all causes add up to the whole difference; docs/speedup.md explains the method and its limits.
Legend of shapes: A rollouts artifacts; F features of work: forward passes, and rows in them.
"""

from collections.abc import Sequence
from statistics import mean

import numpy as np
from scipy.optimize import nnls

from tasks.evaluate.statistics import Values
from tasks.experiments.result import Cause, Speed, Times
from tasks.experiments.runs import EngineWork, Pair, SystemRun, by_system, pairs_by_baseline
from tasks.report.ledger import training_clock
from tasks.store.records import Manifest, Timings

GENERATION, END_TO_END, TO_LEVEL = "generation", "end to end", "to the level of the baseline"
SWITCHES, BARRIER, BATCHES = "switches avoided", "no straggler barrier", "larger generation batches"
LOGP, UPDATES, VERIFY = "log-probabilities", "updates", "verification"
STORAGE, RESPONSES = "storage and the rest", "shorter or longer responses"
UNEXPLAINED, UNDIVIDED = "generation, unexplained", "generation, undivided"
CAUSES = (
    *(SWITCHES, BARRIER, BATCHES, LOGP, UPDATES, VERIFY, STORAGE, RESPONSES),
    *(UNEXPLAINED, UNDIVIDED),  # UNDIVIDED replaces the causes of generation if the work of single calls is unknown.
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
"""Causes by phase of training; the cause of all other phases is ``STORAGE``."""
Rates = dict[tuple[object, ...], Values]
"""Seconds of a pass and of a row, [F], by engine."""


def times_of(runs: Sequence[SystemRun]) -> list[Times]:
    """Return the times of every model and system, in the order of the runs."""
    return [
        Times(
            model=model,
            system=system,
            updates=max(run.history.evaluated[-1].updates for run in seeds),
            wall_clocks=[training_clock(run.history)[-1] for run in seeds],
            ledger=_mean([run.ledger.seconds for run in seeds]),
            gpu_seconds=_mean([run.ledger.gpu_seconds for run in seeds]),
        )
        for (model, system), seeds in by_system(runs).items()
    ]


def _mean(ledgers: Sequence[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for ledger in ledgers for name in ledger)
    return {name: float(np.mean([ledger.get(name, 0.0) for ledger in ledgers])) for name in names}


def speeds_of(runs: Sequence[SystemRun], reference: str, baselines: Sequence[str]) -> list[Speed]:
    """Return the speed-ups of the reference over every baseline, for every model."""
    speeds = []
    for model, baseline, pairs in pairs_by_baseline(runs, reference, baselines):
        ratios = [_ratios(*pair) for pair in pairs]
        for name in ratios[0]:
            by_seed = [seed[name] for seed in ratios]
            known = [ratio for ratio in by_seed if ratio is not None]
            # The geometric mean, because ratios multiply: the mean of 2 and 0.5 is 1.
            ratio = float(np.exp(np.mean(np.log(known)))) if len(known) == len(by_seed) else None
            speeds.append(Speed(model=model, baseline=baseline, name=name, ratio=ratio, by_seed=by_seed))
    return speeds


def _ratios(ours: SystemRun, theirs: SystemRun) -> dict[str, float | None]:
    """Return the seconds of a run of a baseline over those of a run of the reference.

    The level of the baseline is its accuracy at the end. A ratio is None if either time is 0, which
    means for this level that no trained policy of the reference reaches it. Whole runs with different numbers of
    updates are not compared.
    """
    level = theirs.history.evaluated[-1].accuracy.value
    seconds = {
        GENERATION: (_generating(theirs), _generating(ours)),
        END_TO_END: (training_clock(theirs.history)[-1], training_clock(ours.history)[-1]),
        TO_LEVEL: (_seconds_to(level, theirs), _seconds_to(level, ours)),
    }
    ratios = {
        name: of_baseline / of_reference if min(of_baseline, of_reference) > 0 else None
        for name, (of_baseline, of_reference) in seconds.items()
    }
    if not pairs_of_equal_length([(ours, theirs)]):
        ratios |= dict.fromkeys((GENERATION, END_TO_END))
    return ratios


def _seconds_to(level: float, run: SystemRun) -> float:
    """Return the seconds of training up to the first trained policy with an accuracy; 0 if there is none.

    The base policy does not count, because it is not a result of training. Equal means over benchmarks can differ in
    their last bits.
    """
    policies = zip(training_clock(run.history), run.history.evaluated, strict=True)
    return next((at for at, one in policies if one.updates and one.accuracy.value >= level - 1e-12), 0.0)


def _generating(run: SystemRun) -> float:
    """Return the GPU-seconds of generation, or the process-seconds without GPUs. Parallel shards do not lower them."""
    return (run.ledger.gpu_seconds or run.ledger.seconds).get("generate", 0.0)


def split_causes(runs: Sequence[SystemRun], reference: str, baselines: Sequence[str]) -> list[Cause]:
    """Return the causes of the time that the reference saves against each baseline, for every model.

    The causes of a model and baseline add up to the mean difference of ``training_time`` over their common seeds. Runs
    with different numbers of updates are not compared.
    """
    causes = []
    for model, baseline, all_pairs in pairs_by_baseline(runs, reference, baselines):
        pairs = pairs_of_equal_length(all_pairs)
        known = [pair for pair in pairs if all(run.calls for run in pair)]
        rates = _fit_rates([one for pair in known for run in pair for one in run.calls])
        saved = [_saved_by_cause(*pair, rates) for pair in pairs]
        for name in CAUSES:
            if any(name in one for one in saved):
                seconds = mean(one.get(name, 0.0) for one in saved)
                causes.append(Cause(model=model, baseline=baseline, name=name, seconds=seconds))
    return causes


def pairs_of_equal_length(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs whose two runs have the same number of updates."""
    return [pair for pair in pairs if len({run.history.stages[-1].last_update for run in pair}) == 1]


def training_time(run: SystemRun) -> dict[str, float]:
    """Return the device-seconds of training by cause.

    ``STORAGE`` is the time of generation, verification and training outside their phases. The starts of the verifier's
    workers have no cause. If these steps run one after the other, each on one device, the sum of all causes is the
    wall-clock of training.
    """
    causes = dict.fromkeys([*_CAUSE_OF_PHASE.values(), STORAGE], 0.0)
    for stage in run.history.stages:
        for manifest in stage.steps:
            within = manifest is not stage.policy and _is_within(manifest.timings, stage.policy.timings)
            rest = 0.0 if within else manifest.timings.seconds
            rest -= manifest.timings.phases.get("start", 0.0)
            for phase, seconds in manifest.timings.phases.items():
                if phase in _CAUSE_OF_PHASE:
                    causes[_CAUSE_OF_PHASE[phase]] += _devices(manifest) * seconds
                    rest -= seconds
            causes[STORAGE] += _devices(manifest) * max(0.0, rest)
    return causes


def _is_within(one: Timings, other: Timings) -> bool:
    """Return whether one step ran inside the other, as when generation and updates alternate."""
    return one.process == other.process and other.started <= one.started and one.finished <= other.finished


def _devices(manifest: Manifest) -> int:
    """Return the number of devices of the step that made an artifact, on all nodes; 1 if it is not recorded."""
    section, name = {"policy": ("backend", "processes"), "rollouts": ("engine", "tensor_parallel")}.get(
        manifest.kind, ("", "")
    )
    return int(manifest.facts.get("processes") or manifest.settings.get(section, {}).get(name, 1))


def _saved_by_cause(ours: SystemRun, theirs: SystemRun, rates: Rates) -> dict[str, float]:
    """Return the seconds that the reference saves, by cause; negative if the reference spends more."""
    runs = (theirs, ours)
    times = [training_time(run) for run in runs]
    spent = {name: np.array([time[name] for time in times]) for name in times[0]}
    sequences = [run.sequence_tokens for run in runs]
    in_proportion = {LOGP: sequences, UPDATES: sequences}
    if all(run.calls for run in runs):
        responses = [run.response_tokens for run in runs]
        in_proportion |= {BARRIER: responses, BATCHES: responses}
        calls = np.array([sum(one.seconds for one in run.calls) for run in runs])
        modelled = np.array([sum(one.work_F @ rates[one.engine] for one in run.calls) for run in runs])
        needed = np.array([sum(one.needed_F @ rates[one.engine] for one in run.calls) for run in runs])
        spent[STORAGE] = spent[STORAGE] + spent.pop(UNDIVIDED) - calls
        spent |= {UNEXPLAINED: calls - modelled, BARRIER: modelled - needed, BATCHES: needed}
    saved = {name: float(both[0] - both[1]) for name, both in spent.items()}
    # The share that follows from the difference in tokens, at the mean rate of both systems, is a separate cause.
    for name, tokens in in_proportion.items():
        rate = mean(seconds / count if count else 0.0 for seconds, count in zip(spent[name], tokens, strict=True))
        moved = float((tokens[0] - tokens[1]) * rate)
        saved[name] -= moved
        saved[RESPONSES] = saved.get(RESPONSES, 0.0) + moved
    return saved


def _fit_rates(timed: Sequence[EngineWork]) -> Rates:
    """Fit the seconds of a pass and of a row to all calls, by engine; neither is below 0.

    The fit is least squares with weights of one over the seconds, because the variance of a time grows with the time.
    """
    rates: Rates = {}
    for engine in dict.fromkeys(one.engine for one in timed):
        calls = [one for one in timed if one.engine == engine]
        work_AF, seconds_A = np.array([one.work_F for one in calls]), np.array([one.seconds for one in calls])
        weight_A = 1 / np.sqrt(np.maximum(seconds_A, 1e-9))
        unit_F = np.maximum(work_AF.max(axis=0), 1e-9)  # Features differ by orders of magnitude.
        rates_F, _ = nnls(weight_A[:, None] * work_AF / unit_F, weight_A * seconds_A)
        rates[engine] = np.asarray(rates_F / unit_F)
    return rates
