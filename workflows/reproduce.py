"""The paper's comparison: models x systems x seeds, ending in tables, tests, figures and one page.

    pyflyte run workflows/reproduce.py reproduce --inputs-file configs/reproduce-tiny.yaml

On a cluster each run is an execution of its own, which the execution of the reproduction starts, waits for and links
to. Steps that runs share are done once, because the output of a step depends on its inputs alone: runs with the same
start share the base policy, its evaluation and their first rollouts.
"""

from functools import partial
from typing import Any

from flytekit import FlyteContextManager, LaunchPlan, WorkflowFailurePolicy
from flytekit import workflow as flyte_workflow
from flytekit.core.workflow import PythonFunctionWorkflow

from tasks.experiments.result import ReproductionResult
from tasks.flyte.decorators import dynamic_part, named
from tasks.flyte.experiments import close_reproduction, find_reports, open_reproduction
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
    """Run all runs, in their order."""
    return [named(_run(store, settings), f"run-{number + 1}") for number, settings in enumerate(runs)]


def _run(store: str, settings: RunSettings) -> RunSummary:
    given = {"store": store, "seed": settings.seed}
    summary: RunSummary
    if settings.alternates:
        summary = _run_workflow(grpo, settings, **given, updates_per_rollout=settings.updates_per_rollout)
    else:
        summary = _run_workflow(mu_grpo, settings, **given)
    return summary


def _run_workflow(graph: PythonFunctionWorkflow, settings: RunSettings, **inputs: Any) -> Any:
    """Run a workflow as an execution of its own, or on this machine directly, and return its outputs."""
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
    """Run and compare the parts of the laboratory that the reproduction asks for."""
    asked = experiment.laboratory
    if asked is None:
        return []
    (settings,) = laboratory
    start = partial(_run_workflow, arm, settings)
    compared = []
    for part in asked.parts:
        runs = add_runs(part, asked.updates, experiment.seeds, start, store=store, evaluations=asked.evaluations)
        made = compare_arms(store=opened, part=part, studies=[run.study for run in runs])
        compared.append(named(made, f"part-{part}"))
    return compared


@flyte_workflow(  # type: ignore[untyped-decorator]  # flytekit has no types
    failure_policy=WorkflowFailurePolicy.FAIL_AFTER_EXECUTABLE_NODES_COMPLETE
)
def reproduce(experiment: ExperimentSettings, store: str = "runs", overrides: str = "") -> ReproductionResult:
    """Compare every model with every system on every seed; a run that fails does not stop the others."""
    opened = named(open_reproduction(store=store, experiment=experiment, overrides=overrides), "open-reproduction")
    ended = named(every_run(store=store, runs=opened.runs), "runs")
    parts = every_question(store=store, opened=opened.store, experiment=opened.experiment, laboratory=opened.laboratory)
    found = find_reports(store=opened.store, experiment=opened.experiment, overrides=overrides, ended=ended)
    compared = compare_runs(
        store=opened.store,
        experiment=opened.experiment,
        reports=named(found, "reports"),
        laboratory=named(parts, "laboratory"),
    )
    return named(close_reproduction(store=opened.store, result=named(compared, "compare")), "close-reproduction")
