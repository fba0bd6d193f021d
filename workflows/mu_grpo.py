"""Mu-GRPO: a few large stages, each generate -> verify -> optimize -> evaluate, unrolled in a static graph.

pyflyte run workflows/mu_grpo.py mu_grpo --inputs-file configs/tiny-cpu.yaml
"""

from typing import Any

from flytekit import workflow
from flytekit.core.workflow import PythonFunctionWorkflow

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
from workflows.stages import measured, next_policy, prepared, prompted

STAGES = 4


def staged_run(run: Any, stages: int) -> Any:
    """The report of a run in stages; ``run`` is what ``open_run`` gives."""
    benchmarks = prepared(run)
    shards = prompted(run, benchmarks, stages)
    base = current = prepare_policy(
        store=run.store,
        settings=run.policy,
        arithmetic=run.arithmetic,
        source=run.policy_source,
        seed=run.seed,
        chat=run.chat,
    )
    evaluations = [measured(run, benchmarks, current)]
    for stage in range(stages):
        current = next_policy(run, shards[stage], base, current, stage)
        evaluations.append(measured(run, benchmarks, current))
    return report(store=run.store, evaluations=evaluations, seed=run.seed)


def staged(stages: int) -> PythonFunctionWorkflow:
    """The workflow with another number of stages; ``mu_grpo`` has four, the others are named ``mu_grpo_<stages>``."""

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
        page = staged_run(run, stages)
        return close_run(store=run.store, report=page, settings=run.settings, started=run.started)

    graph.__name__ = graph.__qualname__ = "mu_grpo" if stages == STAGES else f"mu_grpo_{stages}"
    graph.__doc__ = f"Mu-GRPO in {stages} stages."
    return workflow(graph)


mu_grpo = staged(STAGES)
mu_grpo_1 = staged(1)
mu_grpo_2 = staged(2)
mu_grpo_8 = staged(8)
