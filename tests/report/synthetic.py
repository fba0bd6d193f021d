"""A run that nobody trained: plausible numbers, written through the real store with the real schemas."""

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest import mock

from tasks.evaluate.metrics import measure
from tasks.process.provenance import Process
from tasks.report.history import History, load_history
from tasks.report.step import write_report
from tasks.settings import (
    ArithmeticSettings,
    EvaluationSettings,
    OptimizeSettings,
    PolicySettings,
    PromptsSettings,
    RolloutSettings,
    TinyPolicySettings,
    VerifySettings,
)
from tasks.store import ArtifactRef, Store
from tasks.store.tables import EXAMPLES, PROMPTS, SAMPLES
from tasks.train.diagnostics import UpdateStatistics
from tasks.train.results import metrics_schema
from tests.cli.synthetic import fill
from tests.report.synthetic_rows import LENGTH, K, example_rows, histograms, prompt_rows, sample_rows, tokenizer_json

PROMPTS_SETTINGS = PromptsSettings(prompts_per_stage=64, arithmetic=ArithmeticSettings(levels=[2, 3]))
BEFORE = {"prompts": "prepare_benchmark", "policy": "prepare_policy", "evaluation": "evaluate"}
STAGE = {"prompts": "prepare_prompts", "evaluation": "evaluate"}
PARTS = {"rollouts": "generate", "verdicts": "verify", "policy": "optimize"}
Run = TypeVar("Run", bound="SyntheticRun")


class Clock:
    """Time that passes only when told to, so that every second of a ledger is known beforehand."""

    now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class SyntheticRun:
    """Builds base, then stages, each evaluated; ``evaluations`` is what a report is made from."""

    store: Store
    clock: Clock = field(default_factory=Clock)
    preset: str = "mu_grpo"
    updates_per_stage: int = 32
    updates_per_rollout: int = 32
    seed: int = 0
    nulls: bool = False
    """Leave out what can be null."""
    policy: ArtifactRef = field(init=False)
    held_out: ArtifactRef = field(init=False)
    evaluations: list[ArtifactRef] = field(default_factory=list)
    stage: int = 0

    @contextmanager
    def process(
        self, name: str, imports: float = 6.0, gpus: int = 0, waits: Sequence[tuple[float, float]] = ()
    ) -> Iterator[None]:
        """What is made inside is made by a process, which started ``imports`` seconds ago and has waited.

        It is an execution of its own, and this run's clock is its time.
        """
        started, time = self.clock.now - imports, SimpleNamespace(time=self.clock, perf_counter=self.clock)
        made = {"process": Process(name, started), "gpus": gpus, "execution_id": name}
        given = {function: mock.Mock(return_value=value) for function, value in made.items()}
        with mock.patch.multiple("tasks.store.store", time=time, _last_end=[0.0], waits=list(waits), **given):
            yield

    def base(self) -> "SyntheticRun":
        self.held_out = self._write("prompts", PROMPTS_SETTINGS, {}, {}, {"prompts.parquet": (prompt_rows(), PROMPTS)})
        settings, files = PolicySettings(tiny=TinyPolicySettings()), {"weights": f"base {self.seed}"}
        self.policy = self._write("policy", settings, {}, {"warm_start": 31.0}, files, stage=0, updates=0)
        self.evaluate()
        return self

    def from_base_of(self, other: "SyntheticRun") -> "SyntheticRun":
        """Takes another run's base policy and its evaluation instead of making them."""
        self.held_out, self.evaluations = other.held_out, other.evaluations[:1]
        self.policy = self.store.manifest(self.evaluations[0]).parents["policy"][0]
        return self

    def stages(self, count: int) -> "SyntheticRun":
        for _ in range(count):
            self.train()
            self.evaluate()
        return self

    def train(self) -> None:
        """One stage: prompts, two rollout shards, verdicts, a policy."""
        self.stage += 1
        colocated = self.updates_per_rollout < self.updates_per_stage
        skill = self._skill(self.stage - 0.5)
        own = f"{self.preset} {self.stage}"
        source = self._write("prompts", PROMPTS_SETTINGS, {}, {}, {"prompts": own})
        rollout = RolloutSettings(responses_per_prompt=8, max_new_tokens=48)
        parents: dict[str, Any] = {"policy": self.policy, "prompts": source}
        shards = []
        for shard in range(2):
            phases = {} if colocated else {"load": 0.4, "generate": 9.0 + shard}
            shards.append(self._write("rollouts", rollout, parents, phases, {"responses": f"{own} {shard}"}))
        outcomes = {"correct": round(512 * skill), "wrong": 500 - round(512 * skill), "no_answer": 11, "timeout": 1}
        facts = {"outcomes": outcomes, "responses": 512, "reward": skill, "working": skill, "truncated": 0.01}
        facts["response_tokens"] = float(LENGTH)
        phases = {} if colocated else {"load": 0.1, "verify": 2.5}
        verdicts = self._write("verdicts", VerifySettings(), {"rollouts": shards}, phases, {"v": own}, **facts)
        examples = example_rows(self.stage, self.updates_per_stage, self.preset)
        metrics = [self._update(place) for place in range(self.updates_per_stage)]
        settings = OptimizeSettings(preset=self.preset, responses_per_update=16, learning_rate=1e-4)
        phases = {"load": 0.5, "logp": 1.5, "optimize": 14.0}
        if colocated:
            phases |= {"generate": 24.0, "verify": 2.6, "switch": 6.0}
        files = {
            "metrics.parquet": (metrics, metrics_schema(list(metrics[0]))),
            "weights": own,
            "examples.parquet": (examples, EXAMPLES),
            "tokenizer.json": tokenizer_json(),
        }
        facts = {
            **{"stage": self.stage, "updates": self.stage * self.updates_per_stage, "preset": self.preset},
            **{"updates_per_rollout": self.updates_per_rollout, "zero_variance_groups": 11, "groups": 64},
            **{"unscored": 1, "logp_mismatch": 3.2e-5},
        }
        parents = {"policy": self.policy, "rollouts": shards, "verdicts": verdicts}
        self.policy = self._write("policy", settings, parents, phases, files, **facts)

    def evaluate(self) -> None:
        samples = sample_rows(self.stage, self._skill(self.stage))
        metrics = measure(samples, None, K, "held_out")
        if self.nulls:
            metrics |= {"greedy": None, "working": None, "by_level": {}}
        self.evaluations.append(self._write_evaluation(metrics, samples, K))

    def _write_evaluation(self, metrics: Any, samples: list[dict[str, Any]], k: int, **facts: Any) -> ArtifactRef:
        settings = EvaluationSettings(samples_per_problem=k, max_new_tokens=48)
        parents = {"policy": self.policy, "prompts": [self.held_out]}
        files = {"metrics.json": json.dumps(metrics), "samples.parquet": (samples, SAMPLES)}
        phases = {"load": 0.3, "generate": 4.0, "verify": 0.7}
        return self._write("evaluation", settings, parents, phases, files, **facts)

    def _write(
        self, kind: Any, settings: Any, parents: Any, phases: dict[str, float], files: dict[str, Any], **facts: Any
    ) -> ArtifactRef:
        with self._of(kind).write(kind, settings=settings, parents=parents, seed=self.seed) as draft:
            fill(draft, files, **facts)
            self._pass(draft, **phases)
        return draft.ref

    def _of(self, kind: str) -> Store:
        """The store of the task that makes such an artifact."""
        parts = dict.fromkeys(PARTS, "alternate") if self.updates_per_rollout < self.updates_per_stage else PARTS
        return Store(self.store.ref, (STAGE | parts if self.stage else BEFORE)[kind])

    def _pass(self, draft: Any, **phases: float) -> None:
        """Lets the phases happen, and half a second for storage."""
        draft.phases.update(phases)
        self.clock.now += sum(phases.values()) + 0.5

    def _skill(self, stage: float) -> float:
        return 0.32 + 0.53 * (1 - math.exp(-0.9 * stage)) + 0.05 * self.seed

    def _update(self, place: int) -> dict[str, Any]:
        """Numbers differ from column to column and grow with the age of the rollouts, but for the reward."""
        staleness = place % self.updates_per_rollout
        age = staleness / max(32, self.updates_per_rollout)
        columns = [*UpdateStatistics().row(), "learning_rate", "grad_norm"]
        row: dict[str, Any] = {
            **{name: 0.5 + 0.25 * age + number / 1000 for number, name in enumerate(columns)},
            **{"stage": self.stage, "update": (self.stage - 1) * self.updates_per_stage + place + 1},
            **{"staleness": staleness, "gate_low": 0.0, "gate_high": 5.0, "responses": 16, "tokens": 16 * LENGTH},
            **{"reward": self._skill(self.stage - 1), "response_tokens": LENGTH * (1 + age)},
            **histograms(age, self.preset),
        }
        if staleness == 0:
            row["trigger_position"] = None
        if self.nulls:
            hidden = ("kl_k3", "veto_fraction", "ratio_p01_positive", "ratio_p50_positive", "ratio_p99_positive")
            row |= dict.fromkeys(hidden)
            row |= {"entropy": None if place % 2 else row["entropy"]}
        return row


def make_run(root: Path | str, stages: int, kind: type[Run] = SyntheticRun, **fields: Any) -> Run:
    """A run in one process, which started six seconds before its first artifact."""
    run = kind(Store.open(root), **fields)
    with run.process("one"):
        run.base().stages(stages)
    return run


def history_of(run: SyntheticRun) -> History:
    return load_history(run.store, run.evaluations)


def report_of(run: SyntheticRun) -> Path:
    return run.store.path(write_report(run.store, run.evaluations, run.seed))
