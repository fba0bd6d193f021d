"""The near-on-policy baseline: the same steps, prompts and updates, with generation and optimization in one task.

    pyflyte run workflows/grpo.py grpo --inputs-file configs/tiny-cpu-grpo.yaml

The updates are cut into as many parts as Mu-GRPO has stages, so that both are evaluated after the same updates.
"""

from tasks.flyte.decorators import named, workflow
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
from workflows.stages import evaluated, in_turns, prepared

PARTS = 4


def alternating_run(run: OpenRun) -> Artifact:
    """The report of a run in which generation and optimization alternate."""
    start = prepared(run)
    policy = start.policy
    accuracies = [evaluated(run, start.benchmarks, policy)]
    for number in range(PARTS):
        policy, accuracy = in_turns(run, start, policy, number)
        accuracies.append(accuracy)
    return named(report(inputs=run.report, evaluations=accuracies), "report")


@workflow
def grpo(
    policy: Given[PolicySettings],
    prompts: Given[PromptsSettings],
    rollout: Given[RolloutSettings],
    optimize: Given[OptimizeSettings],
    evaluate: Given[EvaluateSettings],
    verify: Given[VerifySettings] = Given[VerifySettings](),  # noqa: B008 - settings are immutable
    operation: Given[OperationSettings] = Given[OperationSettings](),  # noqa: B008
    updates_per_rollout: int = 4,
    store: str = "runs",
    seed: int = 0,
    overrides: str = "",
) -> RunSummary:
    """Any preset at any mu (updates_per_rollout); GRPO with mu = 4 by default."""
    opened = open_run(
        store=store,
        seed=seed,
        policy=policy,
        prompts=prompts,
        rollout=rollout,
        verify=verify,
        optimize=optimize,
        evaluate=evaluate,
        updates_per_rollout=updates_per_rollout,
        overrides=overrides,
        operation=operation,
    )
    run = named(opened, "open-run")
    return named(close_run(inputs=run.run, report=alternating_run(run)), "close-run")
