"""The seconds that one system saves against another, split into causes whose sum is the whole difference.

docs/speedup.md tells the method, and what it cannot say.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np

from tasks.artifacts.records import Manifest, Timings
from tasks.report.formats import percent
from tasks.reproduce.generation import Generation
from tasks.reproduce.rates import Rates, Timed, drawn, error, fit, told
from tasks.reproduce.result import Cause
from tasks.reproduce.runs import SystemRun, of_system
from tasks.reproduce.sampled import Sampled

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
    LOGP: "phase logp, at as many tokens",
    UPDATES: "phase optimize, at as many tokens",
    VERIFY: "phase verify",
    STORAGE: "what the steps take besides these phases, such as writing policies and parts of rollouts",
    RESPONSES: "the policies answer differently: generation replayed with the other's responses, updates and "
    "log-probabilities in proportion to tokens; no merit of a system",
    UNDIVIDED: "phase generate; the seconds of single calls are not known",
}
_ORDER = (SWITCHES, BARRIER, BATCHES, LOGP, UPDATES, VERIFY, STORAGE, RESPONSES, UNEXPLAINED, UNDIVIDED)
_PARTS = {
    "load": "switch",
    "switch": "switch",
    "generate": "generate",
    "verify": "verify",
    "logp": "logp",
    "optimize": "optimize",
}
"""Phases of training by the part of the time that they belong to; all others are ``rest``."""


@dataclass(frozen=True)
class Pair:
    """Two runs of one model and seed."""

    reference: SystemRun
    baseline: SystemRun

    @property
    def alike(self) -> bool:
        """Whether both made as many updates."""
        stages = self.baseline.history.stages, self.reference.history.stages
        return all(stages) and stages[0][-1].last_update == stages[1][-1].last_update

    @property
    def sampled(self) -> tuple[Sampled, Sampled] | None:
        """Their responses, the baseline's first; None where they are not known."""
        first, second = self.baseline.sampled, self.reference.sampled
        return None if first is None or second is None else (first, second)

    def generation(self) -> Generation | None:
        """None where not all calls are timed."""
        return Generation(self.sampled) if self.sampled and all(one.timed for one in self.sampled) else None


def split_causes(runs: Sequence[SystemRun], reference: str, baselines: Sequence[str]) -> list[Cause]:
    """Why the reference takes less or more time than each baseline, model by model.

    The causes of a model and baseline add up to the mean difference of ``training_time`` over the seeds that both have.
    Runs with different numbers of updates are not compared.

    Args:
        runs: of all models, systems and seeds.
        reference: the system that saves.
        baselines: those that it is compared with.
    """
    models = dict.fromkeys(run.model for run in runs)
    return [
        cause
        for model in models
        for baseline in baselines
        for cause in _split(model, baseline, pairs_of(runs, model, reference, baseline))
    ]


def pairs_of(runs: Sequence[SystemRun], model: str, reference: str, baseline: str) -> list[Pair]:
    """Runs of both systems with one model, seed by seed, that made equally many updates."""
    ours = {run.seed: run for run in of_system(runs, model, reference)}
    pairs = [Pair(ours[run.seed], run) for run in of_system(runs, model, baseline) if run.seed in ours]
    return [pair for pair in pairs if pair.alike]


def training_time(run: SystemRun) -> dict[str, float]:
    """Seconds of training times the devices that they were spent on: switch, generate, verify, logp, optimize, rest.

    Of the steps that generate, verify and optimize; ``rest`` is what these take besides their phases, or write. Where
    they run one after the other, each on one device, all parts together are the training's wall-clock.
    """
    parts = dict.fromkeys([*_PARTS.values(), "rest"], 0.0)
    for stage in run.history.stages:
        for manifest in (*stage.rollouts, *stage.verdicts, stage.policy):
            within = _within(manifest.timings, stage.policy.timings) and manifest is not stage.policy
            rest = 0.0 if within else manifest.timings.seconds + manifest.timings.earlier
            for phase, seconds in manifest.timings.phases.items():
                if phase in _PARTS:
                    parts[_PARTS[phase]] += devices(manifest) * seconds
                    rest -= seconds
            parts["rest"] += devices(manifest) * max(0.0, rest)
    return parts


def _within(one: Timings, other: Timings) -> bool:
    """Whether a step wrote an artifact on the way to another, as one in which generation and updates take turns."""
    return one.process == other.process and other.started <= one.started and one.finished <= other.finished


def devices(manifest: Manifest) -> int:
    """Devices that the step that made an artifact worked on, by its settings; 1 where they do not say."""
    if manifest.kind == "policy":
        return int(manifest.settings.get("backend", {}).get("processes", 1))
    if manifest.kind == "rollouts":
        return int(manifest.settings.get("engine", {}).get("tensor_parallel", 1))
    return 1


def _split(model: str, baseline: str, pairs: Sequence[Pair]) -> list[Cause]:
    if not pairs:
        return []
    generations = [pair.generation() for pair in pairs]
    known = [one for one in generations if one is not None]
    timed = [calls for one in known for calls in one.timed]
    rates = fit(timed)
    saved = [_saved(pair, one, rates) for pair, one in zip(pairs, generations, strict=True)]
    how = {**_HOW, **(_told(known, timed, rates) if known else {})}
    return [
        Cause(
            model=model,
            baseline=baseline,
            name=name,
            seconds=mean(one.get(name, 0.0) for one in saved),
            how=how[name],
        )
        for name in _ORDER
        if any(name in one for one in saved)
    ]


def _saved(pair: Pair, generation: Generation | None, rates: Rates) -> dict[str, float]:
    """Seconds by cause; negative where the reference spends more."""
    theirs, ours = training_time(pair.baseline), training_time(pair.reference)
    difference = {part: theirs[part] - ours[part] for part in theirs}
    found = {
        SWITCHES: difference["switch"],
        LOGP: difference["logp"],
        UPDATES: difference["optimize"],
        VERIFY: difference["verify"],
        STORAGE: difference["rest"],
    }
    if pair.sampled is not None:
        found[RESPONSES] = 0.0
        for name, part in ((LOGP, "logp"), (UPDATES, "optimize")):
            longer = _longer(pair.sampled, (theirs[part], ours[part]))
            found[RESPONSES] += longer
            found[name] -= longer
    if generation is None:
        return found | {UNDIVIDED: difference["generate"]}
    division = generation.divide(rates)
    in_calls = generation.seconds[0] - generation.seconds[1]
    found[RESPONSES] += division.responses
    found[STORAGE] += difference["generate"] - in_calls
    return found | {BARRIER: division.barrier, BATCHES: division.batches, UNEXPLAINED: in_calls - division.total}


def _longer(sampled: tuple[Sampled, Sampled], seconds: tuple[float, float]) -> float:
    """The part of a difference in seconds that goes with the difference in tokens, at the mean rate of both."""
    tokens = [one.sequence_tokens for one in sampled]
    rates = [spent / count if count else 0.0 for spent, count in zip(seconds, tokens, strict=True)]
    return (tokens[0] - tokens[1]) * mean(rates)


def _told(generations: Sequence[Generation], timed: Sequence[Timed], rates: Rates) -> dict[str, str]:
    """How generation was divided."""
    fits = [[one.divide(some) for one in generations] for some in drawn(timed)]
    fitted = f"{told(rates)}, fitted to {sum(len(one.seconds_C) for one in timed)} calls"
    return {
        BARRIER: "passes beyond those with every row at work, and rows that are done and still computed; "
        + _spread([mean(one.barrier for one in found) for found in fits]),
        BATCHES: f"passes with every row at work: {fitted}; "
        + _spread([mean(one.batches for one in found) for found in fits]),
        UNEXPLAINED: f"seconds of calls beyond the replay, from which a call differs by {percent(error(timed, rates))}",
    }


def _spread(seconds: Sequence[float]) -> str:
    low, high = np.quantile(seconds, [0.025, 0.975])
    return f"{low:.3g} to {high:.3g} s in 95 % of fits to calls drawn anew"
