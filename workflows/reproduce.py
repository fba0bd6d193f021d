"""The paper's comparison: models x systems x seeds, ending in tables, tests, figures and one page.

    pyflyte run workflows/reproduce.py reproduce --inputs-file configs/reproduce-tiny.yaml

On a cluster every run is an execution of its own, which the reproduction's execution starts, waits for and links to.
Steps that runs have in common are done once: what is a step's output depends on its inputs alone, so runs that start
alike share the base policy, its evaluation and their first rollouts.
"""

from typing import Any

from flytekit import FlyteContextManager, LaunchPlan, WorkflowFailurePolicy
from flytekit import workflow as flyte_workflow
from flytekit.core.workflow import PythonFunctionWorkflow

from tasks.experiments.arms import QUESTIONS
from tasks.experiments.result import ReproductionResult
from tasks.flyte.decorators import named, unrolling, workflow
from tasks.flyte.ends import close_run, open_run
from tasks.flyte.experiments import close_reproduction, open_reproduction
from tasks.flyte.experiments import laboratory as compare_arms
from tasks.flyte.experiments import reproduction as compare_runs
from tasks.flyte.inputs import Artifact, StoreHandle
from tasks.settings import (
    EvaluateSettings,
    ExperimentSettings,
    Given,
    OperationSettings,
    OptimizeSettings,
    PolicySettings,
    PromptsSettings,
    RolloutSettings,
    RunSettings,
    VerifySettings,
)
from workflows.grpo import alternating_run
from workflows.laboratory import arm
from workflows.mu_grpo import STAGES, staged_run


@workflow
def in_stages(
    policy: Given[PolicySettings],
    prompts: Given[PromptsSettings],
    rollout: Given[RolloutSettings],
    optimize: Given[OptimizeSettings],
    evaluate: Given[EvaluateSettings],
    verify: Given[VerifySettings],
    operation: Given[OperationSettings],
    store: str,
    seed: int,
) -> Artifact:
    """The report of a run in large stages."""
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
        overrides="",
        operation=operation,
    )
    run = named(opened, "open-run")
    page = staged_run(run, STAGES)
    named(close_run(inputs=run.run, report=page), "close-run")
    return page


@workflow
def alternating(
    policy: Given[PolicySettings],
    prompts: Given[PromptsSettings],
    rollout: Given[RolloutSettings],
    optimize: Given[OptimizeSettings],
    evaluate: Given[EvaluateSettings],
    verify: Given[VerifySettings],
    operation: Given[OperationSettings],
    updates_per_rollout: int,
    store: str,
    seed: int,
) -> Artifact:
    """The report of a run that refreshes its rollouts every few updates."""
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
        overrides="",
        operation=operation,
    )
    run = named(opened, "open-run")
    page = alternating_run(run)
    named(close_run(inputs=run.run, report=page), "close-run")
    return page


@unrolling
def every_run(store: str, runs: list[RunSettings]) -> list[Artifact]:
    """The reports of all runs, in their order."""
    return [named(_run(store, settings), f"run-{number + 1}") for number, settings in enumerate(runs)]


def _run(store: str, settings: RunSettings) -> Artifact:
    given = {**_given(settings), "operation": settings.operation, "store": store, "seed": settings.seed}
    if settings.updates_per_rollout is None:
        page: Artifact = _execution(in_stages, **given)
    else:
        page = _execution(alternating, **given, updates_per_rollout=settings.updates_per_rollout)
    return page


def _execution(graph: PythonFunctionWorkflow, **inputs: Any) -> Any:
    """Run a workflow as an execution of its own, or directly on this machine; returns its outputs."""
    return LaunchPlan.get_default_launch_plan(FlyteContextManager.current_context(), graph)(**inputs)


def _given(settings: RunSettings) -> dict[str, Any]:
    values = settings.given()
    return {
        "policy": Given[PolicySettings].model_validate(values["policy"]),
        "prompts": Given[PromptsSettings].model_validate(values["prompts"]),
        "rollout": Given[RolloutSettings].model_validate(values["rollout"]),
        "optimize": Given[OptimizeSettings].model_validate(values["optimize"]),
        "evaluate": Given[EvaluateSettings].model_validate(values["evaluate"]),
        "verify": Given[VerifySettings].model_validate(values["verify"]),
    }


@unrolling
def every_question(
    store: str, opened: StoreHandle, experiment: ExperimentSettings, laboratory: list[RunSettings]
) -> list[Artifact]:
    """The comparisons of the laboratory's parts that the reproduction asks for."""
    asked = experiment.laboratory
    if asked is None:
        return []
    (settings,) = laboratory
    compared = []
    for part in asked.parts:
        studies = [
            named(
                _execution(
                    arm,
                    **_given(settings),
                    store=store,
                    seed=seed,
                    overrides="",
                    arm=each.overrides(asked.updates),
                    evaluations=asked.evaluations,
                ),
                f"part-{part}-arm-{number + 1}-seed-{seed}",
            ).study
            for number, each in enumerate(QUESTIONS[part].arms)
            for seed in experiment.seeds
        ]
        compared.append(named(compare_arms(store=opened, part=part, studies=studies), f"part-{part}"))
    return compared


@flyte_workflow(  # type: ignore[untyped-decorator]  # flytekit has no types
    failure_policy=WorkflowFailurePolicy.FAIL_AFTER_EXECUTABLE_NODES_COMPLETE
)
def reproduce(experiment: ExperimentSettings, store: str = "runs", overrides: str = "") -> ReproductionResult:
    """Every model with every system on every seed, compared; a run that fails does not stop the others."""
    opened = named(open_reproduction(store=store, experiment=experiment, overrides=overrides), "open-reproduction")
    reports = named(every_run(store=store, runs=opened.runs), "runs")
    parts = every_question(store=store, opened=opened.store, experiment=opened.experiment, laboratory=opened.laboratory)
    compared = compare_runs(
        store=opened.store,
        experiment=opened.experiment,
        reports=reports,
        laboratory=named(parts, "laboratory"),
    )
    return named(close_reproduction(store=opened.store, result=named(compared, "compare")), "close-reproduction")
