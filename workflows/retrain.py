"""A new objective from the rollouts of a stored run: stage k is trained again on what is stored, later stages anew.

pyflyte run workflows/retrain.py retrain --inputs-file configs/tiny-cpu.yaml --from_stage 2 \
    --overrides "optimize.preset=relaxed"
"""

from types import SimpleNamespace

from flytekit import workflow
from flytekit.core.workflow import PythonFunctionWorkflow

from tasks.platform import Artifact, StoreHandle, unrolling
from tasks.report.summary import RunSummary
from tasks.report.task import report
from tasks.run.task import close_run, open_run
from tasks.settings import (
    EvaluateSettings,
    EvaluationSettings,
    OperationSettings,
    OptimizeSettings,
    PolicySettings,
    PromptsSettings,
    RolloutSettings,
    VerifySettings,
)
from tasks.stored.task import find_stage
from workflows.mu_grpo import STAGES
from workflows.stages import measured, next_policy, optimized, prepared, prompted


@unrolling
def stages_from(
    stage: int,
    store: StoreHandle,
    rollout: RolloutSettings,
    verify: VerifySettings,
    optimize: OptimizeSettings,
    verifiers: list[VerifySettings],
    evaluations: list[EvaluationSettings],
    operation: OperationSettings,
    seed: int,
    benchmarks: list[Artifact],
    shards: list[list[Artifact]],
    policies: list[Artifact],
    rollouts: list[Artifact],
    verdicts: Artifact,
) -> list[Artifact]:
    """Accuracies of the stored policies, and of those after ``stage`` and all later ones, trained anew."""
    run = SimpleNamespace(
        store=store,
        rollout=rollout,
        verify=verify,
        optimize=optimize,
        verifiers=verifiers,
        evaluations=evaluations,
        operation=operation,
        seed=seed,
    )
    base, current = policies[0], policies[-1]
    trained = []
    for number in range(stage, len(shards)):
        if number == stage:
            current = optimized(run, base, current, rollouts, verdicts, number)
        else:
            current = next_policy(run, shards[number], base, current, number)
        trained.append(current)
    return [measured(run, benchmarks, each) for each in [*policies, *trained]]


def staged(stages: int) -> PythonFunctionWorkflow:
    """The workflow for runs of another number of stages; ``retrain`` is for four."""

    def graph(
        policy: PolicySettings,
        prompts: PromptsSettings,
        rollout: RolloutSettings,
        optimize: OptimizeSettings,
        evaluate: EvaluateSettings,
        verify: VerifySettings = VerifySettings(),  # noqa: B008 - settings are immutable
        operation: OperationSettings = OperationSettings(),  # noqa: B008
        store: str = "runs",
        seed: int = 0,
        overrides: str = "",
        from_stage: int = 0,
        algorithm: str = "",
    ) -> RunSummary:
        run = open_run(
            store=store,
            seed=seed,
            policy=policy,
            prompts=prompts,
            rollout=rollout,
            verify=verify,
            optimize=optimize,
            evaluate=evaluate,
            updates_per_rollout=0,
            overrides=overrides,
            operation=operation,
        )
        found = find_stage(store=run.store, algorithm=algorithm, seed=run.seed, stage=from_stage)
        benchmarks = prepared(run)
        shards = prompted(run, benchmarks, stages)
        evaluations = stages_from(
            stage=from_stage,
            store=run.store,
            rollout=run.rollout,
            verify=run.verify,
            optimize=run.optimize,
            verifiers=run.verifiers,
            evaluations=run.evaluations,
            operation=run.operation,
            seed=run.seed,
            benchmarks=benchmarks,
            shards=shards,
            policies=found.policies,
            rollouts=found.rollouts,
            verdicts=found.verdicts,
        )
        page = report(store=run.store, evaluations=evaluations, seed=run.seed, settings=run.settings)
        return close_run(store=run.store, report=page, settings=run.settings, started=run.started)

    graph.__name__ = graph.__qualname__ = "retrain" if stages == STAGES else f"retrain_{stages}"
    graph.__doc__ = (
        f"Of the {stages} stages of a stored run, ``from_stage`` (counts from 0) and those after it, trained anew."
    )
    return workflow(graph)


retrain = staged(STAGES)
retrain_1 = staged(1)
retrain_2 = staged(2)
retrain_8 = staged(8)
