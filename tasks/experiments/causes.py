"""The seconds that one system saves against another, split into causes whose sum is the whole difference.

docs/speedup.md explains the method and its limits.
Legend of shapes: A rollouts artifacts; F features of work: forward passes, and rows in them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np
from scipy.optimize import nnls

from tasks.artifacts.records import Manifest, Timings
from tasks.experiments.result import Cause
from tasks.experiments.runs import Floats, Generated, SystemRun, of_system
from tasks.report.formats import percent

SWITCHES = "switches avoided"
BARRIER = "no straggler barrier"
BATCHES = "larger generation batches"
LOGP = "log-probabilities"
UPDATES = "updates"
VERIFY = "verification"
STORAGE = "storage and the rest"
RESPONSES = "shorter or longer responses"
UNEXPLAINED = "generation, unexplained"
UNDIVIDED = "generation, undivided"
_HOW = {
    SWITCHES: "phases load and switch",
    BARRIER: "passes beyond those with every row at work, and rows that are computed after their response is complete",
    BATCHES: "passes with every row at work: {rates}, fitted to {artifacts} rollouts artifacts",
    LOGP: "phase logp, at as many tokens",
    UPDATES: "phase optimize, at as many tokens",
    VERIFY: "phase verify",
    STORAGE: "what the steps take besides these phases, such as writing policies and parts of rollouts",
    RESPONSES: "the policies answer differently: generation, updates and log-probabilities in proportion to tokens; "
    "this is no merit of a system",
    UNEXPLAINED: "seconds of calls beyond what their passes and rows give, from which an artifact's differ by {error}",
    UNDIVIDED: "phase generate; the work of single calls is not known",
}
"""Every cause in the order of the tables, and how it is measured."""
_PARTS = {
    "load": "switch",
    "switch": "switch",
    "generate": "generate",
    "verify": "verify",
    "logp": "logp",
    "optimize": "optimize",
}
"""The part of the time to which a phase of training belongs; all other phases are ``rest``."""
Rates = dict[tuple[object, ...], Floats]
"""Seconds of a pass and of a row, [F], by engine."""


@dataclass(frozen=True)
class Pair:
    """A run of the reference and one of a baseline, with the same model, seed and number of updates."""

    reference: SystemRun
    baseline: SystemRun

    @property
    def calls(self) -> list[list[Generated]] | None:
        """What both generated, the baseline first; None where it is not known."""
        sampled = [run.sampled for run in (self.baseline, self.reference)]
        known = [one.calls for one in sampled if one is not None and one.calls is not None]
        return known if len(known) == len(sampled) else None


def split_causes(runs: Sequence[SystemRun], reference: str, baselines: Sequence[str]) -> list[Cause]:
    """Explain why the reference takes less or more time than each baseline, model by model.

    The causes of a model and baseline add up to the mean difference of ``training_time`` over the seeds that both have.
    Runs with different numbers of updates are not compared.

    Args:
        runs: runs of all models, systems and seeds.
        reference: the system that saves.
        baselines: the systems that it is compared with.
    """
    models = dict.fromkeys(run.model for run in runs)
    return [
        cause
        for model in models
        for baseline in baselines
        for cause in _split(model, baseline, pairs_of(runs, model, reference, baseline))
    ]


def pairs_of(runs: Sequence[SystemRun], model: str, reference: str, baseline: str) -> list[Pair]:
    """Pair the runs of both systems with one model, seed by seed, where they made equally many updates."""
    ours = {run.seed: run for run in of_system(runs, model, reference)}
    pairs = [Pair(ours[run.seed], run) for run in of_system(runs, model, baseline) if run.seed in ours]
    return [pair for pair in pairs if _updates(pair.reference) == _updates(pair.baseline) is not None]


def _updates(run: SystemRun) -> int | None:
    return run.history.stages[-1].last_update if run.history.stages else None


def training_time(run: SystemRun) -> dict[str, float]:
    """Return seconds of training times the devices that they were spent on, by part.

    The parts are switch, generate, verify, logp, optimize, and ``rest``: what the steps that generate, verify and
    optimize take besides their phases, or write. Where they run one after the other, each on one device, all parts
    together are the training's wall-clock.
    """
    parts = dict.fromkeys([*_PARTS.values(), "rest"], 0.0)
    for stage in run.history.stages:
        for manifest in (*stage.rollouts, *stage.verdicts, stage.policy):
            within = manifest is not stage.policy and _within(manifest.timings, stage.policy.timings)
            rest = 0.0 if within else manifest.timings.seconds + manifest.timings.earlier
            for phase, seconds in manifest.timings.phases.items():
                if phase in _PARTS:
                    parts[_PARTS[phase]] += devices(manifest) * seconds
                    rest -= seconds
            parts["rest"] += devices(manifest) * max(0.0, rest)
    return parts


def _within(one: Timings, other: Timings) -> bool:
    """Return whether a step wrote an artifact on the way to another, as where generation and updates take turns."""
    return one.process == other.process and other.started <= one.started and one.finished <= other.finished


def devices(manifest: Manifest) -> int:
    """Return the devices that the step worked on that made an artifact; 1 where its settings do not tell."""
    if manifest.kind == "policy":
        return int(manifest.settings.get("backend", {}).get("processes", 1))
    if manifest.kind == "rollouts":
        return int(manifest.settings.get("engine", {}).get("tensor_parallel", 1))
    return 1


def _split(model: str, baseline: str, pairs: Sequence[Pair]) -> list[Cause]:
    timed = [one for pair in pairs for calls in pair.calls or [] for one in calls]
    rates = _fit(timed)
    saved = [_saved(pair, rates) for pair in pairs]
    values = {"rates": _rates_text(rates), "artifacts": len(timed), "error": _error(timed, rates)}
    return [
        Cause(
            model=model,
            baseline=baseline,
            name=name,
            seconds=mean(one.get(name, 0.0) for one in saved),
            how=how.format(**values),
        )
        for name, how in _HOW.items()
        if any(name in one for one in saved)
    ]


def _saved(pair: Pair, rates: Rates) -> dict[str, float]:
    """Return seconds by cause; they are negative where the reference spends more."""
    theirs, ours = training_time(pair.baseline), training_time(pair.reference)
    difference = {part: theirs[part] - ours[part] for part in theirs}
    found = {
        SWITCHES: difference["switch"],
        LOGP: difference["logp"],
        UPDATES: difference["optimize"],
        VERIFY: difference["verify"],
        STORAGE: difference["rest"],
    }
    sampled = [one for one in (pair.baseline.sampled, pair.reference.sampled) if one is not None]
    if len(sampled) < 2:
        return found | {UNDIVIDED: difference["generate"]}

    def longer(name: str, seconds: Sequence[float], tokens: Sequence[int]) -> None:
        """Move from a cause what goes with the difference in tokens, at the mean rate of both systems."""
        rate = mean(spent / count if count else 0.0 for spent, count in zip(seconds, tokens, strict=True))
        moved = (tokens[0] - tokens[1]) * rate
        found[RESPONSES] = found.get(RESPONSES, 0.0) + moved
        found[name] -= moved

    for name, part in ((LOGP, "logp"), (UPDATES, "optimize")):
        longer(name, (theirs[part], ours[part]), [one.sequence_tokens for one in sampled])
    if pair.calls is None:
        return found | {UNDIVIDED: difference["generate"]}
    in_calls = [sum(one.seconds for one in calls) for calls in pair.calls]
    modelled = [sum(float(one.work_F @ rates[one.engine]) for one in calls) for calls in pair.calls]
    needed = [sum(float(one.needed_F @ rates[one.engine]) for one in calls) for calls in pair.calls]
    waited = [whole - part for whole, part in zip(modelled, needed, strict=True)]
    found[STORAGE] += difference["generate"] - (in_calls[0] - in_calls[1])
    found[UNEXPLAINED] = (in_calls[0] - in_calls[1]) - (modelled[0] - modelled[1])
    for name, seconds in ((BARRIER, waited), (BATCHES, needed)):
        found[name] = seconds[0] - seconds[1]
        longer(name, seconds, [one.response_tokens for one in sampled])
    return found


def _fit(timed: Sequence[Generated]) -> Rates:
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


def _rates_text(rates: Rates) -> str:
    """``10.2 ms a pass and 0.031 ms a row``."""
    return "; ".join(f"{1000 * one[0]:.3g} ms a pass and {1000 * one[1]:.3g} ms a row" for one in rates.values())


def _error(timed: Sequence[Generated], rates: Rates) -> str:
    """The mean difference of an artifact's seconds from what the rates give, as a share of the mean artifact."""
    seconds = sum(one.seconds for one in timed)
    missed = sum(abs(float(one.work_F @ rates[one.engine]) - one.seconds) for one in timed)
    return percent(missed / seconds if seconds else None)
