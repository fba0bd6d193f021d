r"""Launch plans. A deployment says which of them it offers, with which settings, and on which schedule.

MU_GRPO_DEPLOYMENT=configs/deployments/gpu-4.yaml pyflyte --config flyte.yaml register --copy none \
  --project mu-grpo --domain development --version NAME workflows

Fixed inputs cannot be changed when a plan is started; every other input has a default.
"""

from pathlib import Path

from flytekit import CronSchedule, Email, LaunchPlan, WorkflowExecutionPhase
from flytekit.core.workflow import PythonFunctionWorkflow
from flytekit.models.concurrency import ConcurrencyPolicy

from tasks.errors import SettingsError
from tasks.flyte.decorators import DEPLOYMENT
from tasks.settings import Given, OptimizeSettings, RunSettings
from tasks.settings.deployment import PlanName
from tasks.settings.experiment import read_experiment
from workflows.evaluation import evaluation
from workflows.mu_grpo import mu_grpo
from workflows.reproduce import reproduce
from workflows.weekly import weekly

ROOT = Path(__file__).parents[1]
_RESULT = ("policy", "prompts", "rollout", "optimize", "evaluate", "verify")
"""Settings that decide a run's result."""
PLANS: dict[PlanName, tuple[PythonFunctionWorkflow, dict[str, object]]] = {
    "smoke": (mu_grpo, dict.fromkeys(_RESULT)),
    "single_gpu": (mu_grpo, {}),
    "paper_7b": (mu_grpo, {**dict.fromkeys(_RESULT), "overrides": ""}),
    "nightly_evaluation": (evaluation, {**dict.fromkeys(("prompts", "evaluate", "verify")), "policy": "latest"}),
    "weekly": (weekly, dict.fromkeys(_RESULT)),
    "reproduction": (reproduce, {"experiment": None, "overrides": ""}),
}
"""The workflow of every plan and its fixed inputs; None stands for the value in the plan's file of settings."""


def _launch_plan(name: PlanName) -> LaunchPlan:
    plan = DEPLOYMENT.launch_plans[name]
    graph, fixed = PLANS[name]
    kickoff = "kickoff" if "kickoff" in graph.python_interface.inputs else None
    try:
        inputs = _inputs(graph, ROOT / plan.config)
    except SettingsError as error:
        raise SettingsError(f"launch_plans.{name}.config: {error.message}") from None
    try:
        schedule = CronSchedule(schedule=plan.schedule, kickoff_time_input_arg=kickoff) if plan.schedule else None
    except ValueError as error:
        allowed = "a cron expression of five fields, as 0 3 * * *"
        raise SettingsError(f"launch_plans.{name}.schedule: got {plan.schedule!r}; allowed: {allowed}") from error
    fixed = {key: inputs[key] if value is None else value for key, value in fixed.items()}
    failures = [WorkflowExecutionPhase.FAILED, WorkflowExecutionPhase.ABORTED, WorkflowExecutionPhase.TIMED_OUT]
    return LaunchPlan.get_or_create(
        graph,
        name=name,
        fixed_inputs=fixed,
        default_inputs={key: value for key, value in inputs.items() if key not in fixed},
        schedule=schedule,
        notifications=[Email(phases=failures, recipients_email=DEPLOYMENT.notify)] if DEPLOYMENT.notify else None,
        max_parallelism=DEPLOYMENT.max_parallelism,
        # A schedule never starts a run while the one before it is running.
        concurrency=ConcurrencyPolicy(max_concurrency=1) if plan.schedule else None,
    )


def _inputs(graph: PythonFunctionWorkflow, config: Path) -> dict[str, object]:
    """Return a workflow's inputs, as read from a file."""
    if "experiment" in graph.python_interface.inputs:
        experiment, _ = read_experiment(config)
        experiment.runs(DEPLOYMENT.store)  # This reports mistakes in a run's settings at registration.
        return {"experiment": experiment, "store": DEPLOYMENT.store}
    settings = RunSettings.read(config, f"store={DEPLOYMENT.store}")
    if settings.alternates and graph is not evaluation:
        raise SettingsError(
            f"updates_per_rollout: got {settings.updates_per_rollout} in a plan of a workflow that generates once per "
            "stage; allowed: null. `pyflyte run --remote workflows/grpo.py` starts a run that alternates."
        )
    # Without the preset's row of the objective, so that a preset in ``overrides`` brings its own.
    values = dict(settings) | {"optimize": Given[OptimizeSettings].model_validate(settings.given()["optimize"])}
    if graph is evaluation:  # It has no input ``rollout``, from which a run takes the engine of its evaluations.
        values["evaluate"] = settings.evaluate.model_copy(update={"engine": settings.evaluation_engine})
    return {key: values[key] for key in graph.python_interface.inputs if key in values}


OFFERED = {name: _launch_plan(name) for name in DEPLOYMENT.launch_plans}
