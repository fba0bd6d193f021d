"""A finished run as amounts of work and the seconds that they took, from what its artifacts noted."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean, median
from typing import TYPE_CHECKING

from tasks.cost.fit import Point
from tasks.cost.jobs import Step
from tasks.cost.rates import EngineRates, Lengths, passes
from tasks.cost.work import parts
from tasks.errors import DataError, SettingsError
from tasks.settings import (
    EngineSettings,
    EvaluationSettings,
    OptimizeSettings,
    PolicySettings,
    RolloutSettings,
    VerifySettings,
)
from tasks.settings.benchmarks import HELD_OUT

if TYPE_CHECKING:  # so that a plan without a store needs neither numpy nor pyarrow
    from tasks.artifacts.records import Manifest
    from tasks.report.history import History

_OF_THE_LOOP = ("updates_per_rollout", "rollout", "verify")
"""What a policy's settings hold besides the optimizer's where generation and optimization alternate."""


@dataclass(frozen=True)
class Overheads:
    """What is in no phase."""

    start: float
    """Of a process, until its first step begins."""
    after: Mapping[str, float]
    """Of a step, besides its phases."""


class Observed:
    """Reads one run.

    Args:
        history: of the run, which made at least one update.
        place: of its store, for messages.

    Raises:
        DataError: its settings are those of a version that this one does not read.
    """

    def __init__(self, history: "History", place: str) -> None:
        self._history = history
        last = history.stages[-1]
        trained = last.policy.settings
        self.alternating = alternates(last.policy)
        """Whether generation and optimization took turns in one task."""
        # Those before were another run's, where a stored run was trained again.
        self._stages = [stage for stage in history.stages if alternates(stage.policy) == self.alternating]
        own = {name: value for name, value in trained.items() if name not in _OF_THE_LOOP}
        try:
            self.rollout = RolloutSettings.parse(trained["rollout"] if self.alternating else last.rollouts[0].settings)
            self.verify = VerifySettings.parse(trained["verify"] if self.alternating else last.verdicts[0].settings)
            self.optimize = OptimizeSettings.parse(own)
            self._evaluations = [
                (policy, one, EvaluationSettings.parse(history.manifests[one.evaluation].settings))
                for policy in history.evaluated
                for one in policy.evaluations
            ]
            self.evaluate = self._evaluations[-1][2]
            self.policy = PolicySettings.parse(history.of_kind("policy")[0].settings)
        except SettingsError as error:
            raise DataError(f"{place}: its run has settings that this version does not read: {error}") from None
        self.lengths = self._lengths()
        """Of responses to training prompts; where there were none, of those to held-out ones."""

    @property
    def evaluate_engine(self) -> EngineSettings:
        """The engine that evaluated."""
        return self.evaluate.engine or self.rollout.engine

    def sampling(self) -> list[Point]:
        """Of every shard, or of every part where generation alternates: decode steps, tokens, seconds."""
        made, engine = self.rollout, _counting(self.rollout.engine)
        longest, points = made.max_new_tokens, list[Point]()
        for stage in self._stages:
            if self.alternating:
                refreshes = range(stage.first_update - 1, stage.last_update, self._history.updates_per_rollout)
                responses = stage.verdicts[0].facts["responses"] // len(refreshes)
                means = [self.lengths.at(updates, longest) for updates in refreshes]
                steps = sum(engine.steps(responses, tokens, longest) for tokens in means)
                points.append((steps, responses * sum(means), stage.policy.timings.phases["generate"]))
                continue
            for shard in [one for one in stage.rollouts if "generate" in one.timings.phases]:
                responses, tokens = shard.facts["responses"], shard.facts["response_tokens"]
                group = made.responses_per_prompt
                calls = parts(responses // group, group, made.responses_per_part)
                steps = sum(engine.steps(prompts * group, tokens, longest) for prompts in calls)
                points.append((steps, responses * tokens, shard.timings.phases["generate"]))
        return points

    def evaluating(self) -> list[Point]:
        """Of every evaluation: decode steps, tokens, seconds of generation."""
        engine, points = _counting(self.evaluate_engine), list[Point]()
        for policy, one, made in self._evaluations:
            k = made.samples_per_problem
            each = (k, 1) if made.greedy else (k,)
            calls = [part * count for part in parts(one.problems, k, made.responses_per_part) for count in each]
            tokens = one.response_tokens or self.lengths.at(policy.updates, made.max_new_tokens)
            steps = sum(engine.steps(count, tokens, made.max_new_tokens) for count in calls)
            spent = self._history.manifests[one.evaluation].timings.phases["generate"]
            points.append((steps, sum(calls) * tokens, spent))
        return points

    def checking(self) -> list[Point]:
        """Of every use of the verifier: its start, answers per worker, seconds."""
        points = [
            (
                1.0,
                sum(one.outcomes.values()) / self.verify.workers,
                self._history.manifests[one.evaluation].timings.phases["verify"],
            )
            for _, one, _ in self._evaluations
        ]
        for stage in self._stages:
            judged = stage.policy if self.alternating else stage.verdicts[0]
            answers = stage.verdicts[0].facts["responses"]
            points.append((1.0, answers / self.verify.workers, judged.timings.phases["verify"]))
        return points

    def training(self) -> list[Point]:
        """Of every stage: updates, trained response tokens, seconds of updates."""
        trained, _ = passes(self.optimize)
        return [
            (
                float(stage.last_update - stage.first_update + 1),
                trained * _tokens(stage.verdicts[0]),
                stage.policy.timings.phases["optimize"],
            )
            for stage in self._stages
        ]

    def scoring(self) -> list[Point]:
        """Of every stage: nothing, response tokens whose log-probabilities were computed first, seconds."""
        return [(0.0, _tokens(stage.verdicts[0]), stage.policy.timings.phases["logp"]) for stage in self._stages]

    def stored(self) -> list[Point]:
        """Of every artifact of rollouts: itself, its response tokens, its bytes."""
        found = []
        for stage in self._stages:
            for shard in stage.rollouts:
                told = shard if "responses" in shard.facts else stage.verdicts[0]
                found.append((1.0, _tokens(told), float(sum(file.bytes for file in shard.files.values()))))
        return found

    def phase(self, name: str) -> float:
        """Seconds of a phase in all trained policies, per stage."""
        return mean(stage.policy.timings.phases.get(name, 0.0) for stage in self._stages)

    def base(self) -> tuple["Manifest", dict[str, float]]:
        """The base policy and its phases."""
        found = self._history.of_kind("policy")[0]
        return found, found.timings.phases

    @property
    def refreshes_of_a_stage(self) -> int:
        """Rollouts of a stage inside one task."""
        stage = self._history.stages[-1]
        return (stage.last_update - stage.first_update + 1) // self._history.updates_per_rollout

    def loads(self) -> tuple[float, float]:
        """Seconds of starting an engine, and of a step that finds its engine in its process or needs none.

        Steps of one process share the engine of a policy: the one that took longest started it.
        """
        generating = self._history.of_kind("evaluation")
        others = [one.timings.phases.get("load", 0.0) for one in self._history.of_kind("verdicts")]
        if not self.alternating:
            generating += self._history.of_kind("rollouts")
        shared: dict[tuple[str, str], list[float]] = {}
        for one in generating:
            key = one.timings.process, one.parents["policy"][0].digest
            shared.setdefault(key, []).append(one.timings.phases.get("load", 0.0))
        for spent in shared.values():
            others += sorted(spent)[:-1]
        return mean(max(spent) for spent in shared.values()), mean(others)

    def overheads(self, outside_phases: float) -> Overheads:
        """Splits what is in no phase into processes' starts and what every step takes besides.

        Args:
            outside_phases: seconds of the run's ledger.
        """
        processes: dict[str, list[Manifest]] = {}
        for manifest in self._history.manifests.values():
            processes.setdefault(manifest.timings.process, []).append(manifest)
        outer = {name: _outer(made) for name, made in processes.items()}
        pauses = [
            max(0.0, later.timings.started - one.timings.finished)
            for made in outer.values()
            for one, later in pairwise(made)
        ]
        pause = median(pauses) if pauses else 0.0
        own: dict[str, list[float]] = {}
        for manifest in [one for made in outer.values() for one in made]:
            phases = sum(spent for name, spent in manifest.timings.phases.items() if name != "save")
            spent = manifest.timings.seconds + manifest.timings.earlier
            own.setdefault(_step(manifest), []).append(max(0.0, spent - phases) + pause)
        start = max(0.0, outside_phases - sum(map(sum, own.values()))) / len(processes)
        after = {step: mean(spent) for step, spent in own.items()}
        trained = after.get("optimize", after.get("alternate", 0.0))
        return Overheads(start, {"optimize": trained, "alternate": trained, **after})

    def _lengths(self) -> Lengths:
        updates = self._history.updates
        rows = zip(updates["update"], updates["staleness"], updates["response_tokens"], strict=True)
        sampled: dict[int, list[float]] = {}
        for update, staleness, tokens in rows:
            sampled.setdefault(int(update - staleness) - 1, []).append(float(tokens))
        known = {made: mean(tokens) for made, tokens in sampled.items()}
        for policy, one, made in self._evaluations:
            # Responses to other problems than those of training can have other lengths.
            alike = (one.benchmark, made.temperature, made.max_new_tokens) == (
                HELD_OUT,
                1.0,
                self.rollout.max_new_tokens,
            )
            if alike and one.response_tokens is not None:
                known.setdefault(policy.updates, one.response_tokens)
        return Lengths(tuple(sorted(known.items())))


def alternates(trained: "Manifest") -> bool:
    """Whether a trained policy comes from the task in which generation and optimization take turns."""
    return "updates_per_rollout" in trained.settings


def _counting(engine: EngineSettings) -> EngineRates:
    """Counts decode steps; as many rows as the settings allow."""
    return EngineRates(engine.kind, engine.batch_size, 0.0, 0.0)


def _tokens(told: "Manifest") -> float:
    return float(told.facts["responses"] * told.facts["response_tokens"])


def _outer(made: "list[Manifest]") -> "list[Manifest]":
    """Those of a process's artifacts that were not made while another was, in their order."""
    outer: list[Manifest] = []
    for one in sorted(made, key=lambda one: (one.timings.started, -one.timings.finished)):
        if not outer or one.timings.started >= outer[-1].timings.finished:
            outer.append(one)
    return outer


def _step(manifest: "Manifest") -> Step:
    match manifest.kind:
        case "prompts":
            return "prompts"
        case "rollouts":
            return "generate"
        case "verdicts":
            return "verify"
        case "evaluation":
            return "evaluate"
        case "average":
            return "average"
        case _ if not manifest.facts["stage"]:
            return "policy"
        case _:
            return "alternate" if alternates(manifest) else "optimize"
