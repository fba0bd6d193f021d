"""Runs whose every step starts with nothing, as a pod does: steps as the workflows ask for them, without Flyte."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks.data.benchmarks import prepare_benchmark
from tasks.data.training import prepare_stage, prepare_training_set
from tasks.evaluate.metrics import average_evaluations
from tasks.evaluate.step import evaluate_policy
from tasks.models.step import prepare_policy
from tasks.report.step import write_report
from tasks.resident import release
from tasks.rollout.step import generate_shard
from tasks.settings import ArithmeticSettings, RunSettings
from tasks.store import ArtifactRef, Store
from tasks.store.work import once
from tasks.train.colocated import train_alternating
from tasks.train.stage import optimize_stage
from tasks.verify.step import verify_rollouts


class Pods:
    """Makes a run in a store.

    Args:
        uri: of the store, in a folder or on S3.
        copy: the folder with local copies of stores, which no step finds filled.
    """

    def __init__(self, uri: str, copy: Path) -> None:
        self.store, self._copy = Store.open(uri), copy

    def _step(self, name: str, logic: Callable[..., Any], *inputs: Any, **named: Any) -> Any:
        release()
        if self.store.remote is not None:
            shutil.rmtree(self._copy, ignore_errors=True)
        return once(self.store.ref, name, "1", logic, *inputs, **named)

    def run(self, run: RunSettings, stages: int) -> ArtifactRef:
        """A whole run; where the settings have ``updates_per_rollout``, generation and optimization alternate."""
        benchmarks = [
            self._step("prepare_benchmark", prepare_benchmark, one.benchmark, one.verify, "", operation=run.operation)
            for one in run.measures
        ]
        settings, operation = run.prompts.training_set, run.operation
        training = self._step(
            "prepare_training_set", prepare_training_set, settings, run.verify, "", benchmarks, operation=operation
        )
        prompts = [
            self._step("prepare_prompts", prepare_stage, run.prompts, training, stage, run.seed)
            for stage in range(stages)
        ]
        arithmetic = run.prompts.arithmetic or ArithmeticSettings()
        base = policy = self._step("prepare_policy", prepare_policy, run.policy, arithmetic, "", run.seed)
        evaluations = [self._evaluate(run, policy, benchmarks)]
        for stage in range(stages):
            policy = self._next(run, base, policy, prompts[stage], stage)
            evaluations.append(self._evaluate(run, policy, benchmarks))
        report: ArtifactRef = self._step("report", write_report, evaluations, run.seed)
        return report

    def _next(self, run: RunSettings, base: ArtifactRef, policy: ArtifactRef, prompts: Any, stage: int) -> ArtifactRef:
        made: ArtifactRef
        if run.updates_per_rollout is not None:
            settings = (run.rollout, run.verify, run.optimize, run.updates_per_rollout)
            made = self._step(
                "alternate",
                train_alternating,
                *settings,
                base,
                policy,
                prompts,
                stage,
                run.seed,
                operation=run.operation,
            )
            return made
        shards = [
            self._step("generate", generate_shard, run.rollout, policy, shard, stage, run.seed) for shard in prompts
        ]
        verdicts = self._step("verify", verify_rollouts, run.verify, shards, stage, run.seed)
        made = self._step(
            "optimize",
            optimize_stage,
            run.optimize,
            base,
            policy,
            shards,
            verdicts,
            stage,
            run.seed,
            operation=run.operation,
        )
        return made

    def _evaluate(self, run: RunSettings, policy: ArtifactRef, benchmarks: list[ArtifactRef]) -> ArtifactRef:
        evaluations = [
            self._step(
                "evaluate",
                evaluate_policy,
                one.evaluation,
                one.verify,
                policy,
                problems,
                run.seed,
                operation=run.operation,
            )
            for one, problems in zip(run.measures, benchmarks, strict=True)
        ]
        made: ArtifactRef = self._step("average", average_evaluations, policy, evaluations, run.seed)
        return made
