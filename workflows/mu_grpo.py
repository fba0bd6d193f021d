"""Mu-GRPO: a few large stages, each prompts -> generate -> verify -> optimize -> evaluate, in a static graph.

pyflyte run workflows/mu_grpo.py mu_grpo --inputs-file configs/tiny-cpu.yaml
"""

from flytekit import workflow
from flytekit.core.workflow import PythonFunctionWorkflow

from tasks.flyte.decorators import named
from tasks.flyte.ends import OpenRun, close_run, open_run
from tasks.flyte.inputs import Artifact
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
from workflows.stages import evaluated, in_stages, prepared

STAGES = 4


def staged_run(run: OpenRun, stages: int) -> Artifact:
    """The report of a run in large stages."""
    start = prepared(run)
    policy = start.policy
    accuracies = [evaluated(run, start.benchmarks, policy)]
    for number in range(stages):
        policy, accuracy = in_stages(run, start, policy, number)
        accuracies.append(accuracy)
    return named(report(inputs=run.report, evaluations=accuracies), "report")


def staged(stages: int) -> PythonFunctionWorkflow:
    """The workflow with another number of stages; ``mu_grpo`` has four, the others are named ``mu_grpo_<stages>``."""

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
        )
        run = named(opened, "open-run")
        return named(close_run(inputs=run.run, report=staged_run(run, stages)), "close-run")

    graph.__name__ = graph.__qualname__ = "mu_grpo" if stages == STAGES else f"mu_grpo_{stages}"
    graph.__doc__ = f"Mu-GRPO in {stages} stages."
    return workflow(graph)


mu_grpo = staged(STAGES)
mu_grpo_1 = staged(1)
mu_grpo_2 = staged(2)
mu_grpo_8 = staged(8)
