"""The near-on-policy baseline: the same steps, prompts and updates, with generation and optimization in one task.

    pyflyte run workflows/grpo.py grpo --inputs-file configs/tiny-cpu-grpo.yaml

The updates are cut into as many parts as Mu-GRPO has stages, so that both are evaluated after the same updates.
"""

from typing import Any

from flytekit import workflow

from tasks.alternate.task import alternate
from tasks.policy.task import prepare_policy
from tasks.report.summary import RunSummary
from tasks.report.task import report
from tasks.run.task import close_run, open_run
from tasks.settings import (
    EvaluateSettings,
    OperationSettings,
    OptimizeSettings,
    PolicySettings,
    PromptsSettings,
    RolloutSettings,
    VerifySettings,
)
from workflows.stages import measured, prepared, prompted

PARTS = 4


def alternating_run(run: Any) -> Any:
    """The report of a run that alternates; ``run`` is what ``open_run`` gives."""
    benchmarks = prepared(run)
    shards = prompted(run, benchmarks, PARTS)
    base = current = prepare_policy(
        store=run.store,
        settings=run.policy,
        arithmetic=run.arithmetic,
        source=run.policy_source,
        seed=run.seed,
        chat=run.chat,
    )
    evaluations = [measured(run, benchmarks, current)]
    for part in range(PARTS):
        current = alternate(
            store=run.store,
            rollout=run.rollout,
            verify=run.verify,
            optimize=run.optimize,
            updates_per_rollout=run.updates_per_rollout,
            reference=base,
            policy=current,
            prompts=shards[part],
            stage=part,
            seed=run.seed,
            operation=run.operation,
        )
        evaluations.append(measured(run, benchmarks, current))
    return report(store=run.store, evaluations=evaluations, seed=run.seed)


@workflow
def grpo(
    policy: PolicySettings,
    prompts: PromptsSettings,
    rollout: RolloutSettings,
    optimize: OptimizeSettings,
    evaluate: EvaluateSettings,
    verify: VerifySettings = VerifySettings(),  # noqa: B008 - settings are immutable
    operation: OperationSettings = OperationSettings(),  # noqa: B008
    updates_per_rollout: int = 4,
    store: str = "runs",
    seed: int = 0,
    overrides: str = "",
) -> RunSummary:
    """Any preset at any mu (updates_per_rollout); GRPO with mu = 4 by default."""
    run = open_run(
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
    page = alternating_run(run)
    return close_run(store=run.store, report=page, settings=run.settings, started=run.started)
