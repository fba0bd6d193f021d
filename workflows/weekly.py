"""Mu-GRPO again with another seed every week, for a schedule; see launch_plans.py.

pyflyte run workflows/weekly.py weekly --inputs-file configs/tiny-cpu.yaml --kickoff 2026-11-20
"""

from datetime import datetime

from tasks.flyte.decorators import named, workflow
from tasks.flyte.ends import seed_of_week
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
from workflows.mu_grpo import mu_grpo


@workflow
def weekly(
    kickoff: datetime,
    policy: Given[PolicySettings],
    prompts: Given[PromptsSettings],
    rollout: Given[RolloutSettings],
    optimize: Given[OptimizeSettings],
    evaluate: Given[EvaluateSettings],
    verify: Given[VerifySettings] = Given[VerifySettings](),  # noqa: B008 - settings are immutable
    operation: Given[OperationSettings] = Given[OperationSettings](),  # noqa: B008
    store: str = "runs",
) -> RunSummary:
    """A run of mu_grpo whose seed is that of the week."""
    made: RunSummary = mu_grpo(
        policy=policy,
        prompts=prompts,
        rollout=rollout,
        optimize=optimize,
        evaluate=evaluate,
        verify=verify,
        operation=operation,
        store=store,
        seed=named(seed_of_week(kickoff=kickoff), "seed"),
    )
    return named(made, "mu-grpo")
