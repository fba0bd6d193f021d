"""A new objective from the rollouts of a stored run: stage k is trained again on what is stored, later stages anew.

pyflyte run workflows/retrain.py retrain --inputs-file configs/tiny-cpu.yaml --from_stage 2 \
    --overrides "optimize.preset=relaxed"
"""

from flytekit import workflow
from flytekit.core.workflow import PythonFunctionWorkflow

from tasks.flyte.decorators import named, unrolling
from tasks.flyte.ends import close_run, find_stage, open_run
from tasks.flyte.inputs import (
    Artifact,
    EvaluationInputs,
    Keyed,
    MeanInputs,
    OptimizeInputs,
    PromptsInputs,
    RolloutInputs,
    VerifyInputs,
)
from tasks.flyte.tasks import optimize as optimize_policy
from tasks.flyte.tasks import report
from tasks.report.summary import RunSummary
from tasks.settings import (
    EvaluateSettings,
    Given,
    OperationSettings,
    OptimizeSettings,
    PolicySettings,
    PromptsSettings,
    RolloutSettings,
    VerifySettings,
)
from workflows.mu_grpo import STAGES
from workflows.stages import evaluate as evaluate_policy
from workflows.stages import prepared
from workflows.stages import stage as large_stage


@unrolling
def stages_from(
    first: int,
    stages: int,
    prompts: Keyed[PromptsInputs],
    rollout: Keyed[RolloutInputs],
    verify: Keyed[VerifyInputs],
    optimize: Keyed[OptimizeInputs],
    evaluations: list[Keyed[EvaluationInputs]],
    mean: Keyed[MeanInputs],
    training: Artifact,
    benchmarks: list[Artifact],
    policies: list[Artifact],
    rollouts: list[Artifact],
    verdicts: Artifact,
) -> list[Artifact]:
    """Accuracies of the stored policies, and of those after stage ``first`` and all later ones, trained anew."""

    def accuracy(policy: Artifact, number: int) -> Artifact:
        made = evaluate_policy(inputs=evaluations, mean=mean, benchmarks=benchmarks, policy=policy)
        return named(made, f"evaluate-{number}")

    accuracies = [accuracy(policy, number) for number, policy in enumerate(policies)]
    retrained = optimize_policy(
        inputs=optimize,
        reference=policies[0],
        policy=policies[-1],
        rollouts=rollouts,
        verdicts=verdicts,
        stage=first,
    )
    policy = named(retrained, f"optimize-{first + 1}")
    accuracies.append(accuracy(policy, first + 1))
    for number in range(first + 1, stages):
        made = large_stage(
            prompts=prompts,
            rollout=rollout,
            verify=verify,
            optimize=optimize,
            evaluations=evaluations,
            mean=mean,
            training=training,
            benchmarks=benchmarks,
            reference=policies[0],
            policy=policy,
            stage=number,
        )
        policy, mean_accuracy = named(made, f"stage-{number + 1}")
        accuracies.append(mean_accuracy)
    return accuracies


def staged(stages: int) -> PythonFunctionWorkflow:
    """The workflow for runs of another number of stages; ``retrain`` is for four."""

    def graph(
        policy: Given[PolicySettings],
        prompts: Given[PromptsSettings],
        rollout: Given[RolloutSettings],
        optimize: Given[OptimizeSettings],
        evaluate: Given[EvaluateSettings],
        verify: Given[VerifySettings] = Given[VerifySettings](),  # noqa: B008 - settings are immutable
        operation: Given[OperationSettings] = Given[OperationSettings](),  # noqa: B008
        store: str = "runs",
        seed: int = 0,
        overrides: str = "",
        from_stage: int = 0,
        algorithm: str = "",
    ) -> RunSummary:
        opened = open_run(
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
            trained_from=from_stage,
        )
        run = named(opened, "open-run")
        found = named(find_stage(store=run.store, algorithm=algorithm, seed=run.seed, stage=from_stage), "stored-stage")
        start = prepared(run)
        accuracies = stages_from(
            first=from_stage,
            stages=stages,
            prompts=run.prompts,
            rollout=run.rollout,
            verify=run.verify,
            optimize=run.optimize,
            evaluations=run.evaluations,
            mean=run.mean,
            training=start.training,
            benchmarks=start.benchmarks,
            policies=found.policies,
            rollouts=found.rollouts,
            verdicts=found.verdicts,
        )
        page = named(report(inputs=run.report, evaluations=named(accuracies, "stages")), "report")
        return named(close_run(inputs=run.run, report=page), "close-run")

    graph.__name__ = graph.__qualname__ = "retrain" if stages == STAGES else f"retrain_{stages}"
    graph.__doc__ = (
        f"Of the {stages} stages of a stored run, ``from_stage`` (counts from 0) and those after it, trained anew."
    )
    return workflow(graph)


retrain = staged(STAGES)
retrain_1 = staged(1)
retrain_2 = staged(2)
retrain_8 = staged(8)
