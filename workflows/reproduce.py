"""The paper's comparison of models x systems x seeds, which ends with tables, tests, figures and one page.

    pyflyte run workflows/reproduce.py reproduce --inputs-file configs/reproduce-tiny.yaml

On a cluster every run is a separate execution, which the reproduction's execution starts, waits for and links to.
Steps that runs have in common are done once, because a step's output depends on its inputs alone: runs with the same
first stages share the base policy, its evaluation and the first rollouts.
"""

from functools import partial
from typing import Any

from flytekit import FlyteContextManager, LaunchPlan, WorkflowFailurePolicy
from flytekit import workflow as flyte_workflow
from flytekit.core.workflow import PythonFunctionWorkflow

from tasks.experiments.result import ReproductionResult
from tasks.flyte.decorators import dynamic_part, named
from tasks.flyte.experiments import close_reproduction, match_reports, open_reproduction
from tasks.flyte.experiments import laboratory as compare_arms
from tasks.flyte.experiments import reproduction as compare_runs
from tasks.flyte.inputs import Artifact, StoreHandle
from tasks.report.summary import RunSummary
from tasks.settings import ExperimentSettings, Given, RunSettings
from workflows.grpo import grpo
from workflows.laboratory import add_runs, arm
from workflows.mu_grpo import mu_grpo


@dynamic_part
def every_run(store: str, runs: list[RunSettings]) -> list[RunSummary]:
    """Start all runs, and return their summaries in the same order."""
    return [named(_run(store, settings), f"run-{number + 1}") for number, settings in enumerate(runs)]


def _run(store: str, settings: RunSettings) -> Any:
    mu = {"updates_per_rollout": settings.updates_per_rollout} if settings.alternates else {}
    graph = grpo if settings.alternates else mu_grpo
    return _run_workflow(graph, settings, store=store, seed=settings.seed, **mu)


def _run_workflow(graph: PythonFunctionWorkflow, settings: RunSettings, **inputs: Any) -> Any:
    """Start a workflow as a separate execution, or call it on this machine, and return its outputs."""
    values = settings.given()
    sections = {
        name: kind.model_validate(values[name])
        for name, kind in graph.python_interface.inputs.items()
        if isinstance(kind, type) and issubclass(kind, Given)
    }
    return LaunchPlan.get_default_launch_plan(FlyteContextManager.current_context(), graph)(**sections, **inputs)


@dynamic_part
def every_question(
    store: str, opened: StoreHandle, experiment: ExperimentSettings, laboratory: list[RunSettings]
) -> list[Artifact]:
    """Run the laboratory's parts that the experiment names, and return their comparisons."""
    plan = experiment.laboratory
    if plan is None:
        return []
    (settings,) = laboratory
    start = partial(_run_workflow, arm, settings)
    comparisons = []
    for part in plan.parts:
        runs = add_runs(part, plan.updates, experiment.seeds, start, store=store, evaluations=plan.evaluations)
        comparison = compare_arms(store=opened, part=part, studies=[run.study for run in runs])
        comparisons.append(named(comparison, f"part-{part}"))
    return comparisons


@flyte_workflow(  # type: ignore[untyped-decorator]  # flytekit has no types
    failure_policy=WorkflowFailurePolicy.FAIL_AFTER_EXECUTABLE_NODES_COMPLETE
)
def reproduce(experiment: ExperimentSettings, store: str = "runs", overrides: str = "") -> ReproductionResult:
    """Run every model with every system on every seed, and compare them; a run that fails does not stop the others."""
    opened = named(open_reproduction(store=store, experiment=experiment, overrides=overrides), "open-reproduction")
    summaries = named(every_run(store=store, runs=opened.runs), "runs")
    parts = every_question(store=store, opened=opened.store, experiment=opened.experiment, laboratory=opened.laboratory)
    reports = match_reports(store=opened.store, experiment=opened.experiment, overrides=overrides, ended=summaries)
    compared = compare_runs(
        store=opened.store,
        experiment=opened.experiment,
        reports=named(reports, "reports"),
        laboratory=named(parts, "laboratory"),
    )
    return named(close_reproduction(store=opened.store, result=named(compared, "compare")), "close-reproduction")
