r"""Launch plans, by which a run is started on a cluster. A deployment says which of them it offers, and when they run.

MU_GRPO_DEPLOYMENT=configs/deployments/gpu-4.yaml pyflyte --config flyte.yaml register --copy none \
  --project mu-grpo --domain development --activate-launchplans workflows

Inputs that decide a result are fixed, so that a start cannot change them; the others have defaults.
"""

from pathlib import Path

from flytekit import CronSchedule, Email, LaunchPlan, WorkflowExecutionPhase
from flytekit.core.workflow import PythonFunctionWorkflow
from flytekit.models.concurrency import ConcurrencyPolicy

from tasks.flyte.pods import DEPLOYMENT
from tasks.settings import RunSettings
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
"""The workflow of each plan and its fixed inputs; None stands for the value in the plan's file of settings."""


def _offered(name: PlanName) -> LaunchPlan:
    chosen = DEPLOYMENT.launch_plans[name]
    graph, fixed = PLANS[name]
    taken = _inputs(graph, ROOT / chosen.config)
    fixed = {one: taken[one] if value is None else value for one, value in fixed.items()}
    ended = [WorkflowExecutionPhase.FAILED, WorkflowExecutionPhase.ABORTED, WorkflowExecutionPhase.TIMED_OUT]
    kickoff = "kickoff" if "kickoff" in graph.python_interface.inputs else None
    return LaunchPlan.get_or_create(
        graph,
        name=name,
        fixed_inputs=fixed,
        default_inputs={one: value for one, value in taken.items() if one not in fixed},
        schedule=CronSchedule(schedule=chosen.schedule, kickoff_time_input_arg=kickoff) if chosen.schedule else None,
        notifications=[Email(phases=ended, recipients_email=DEPLOYMENT.notify)] if DEPLOYMENT.notify else None,
        max_parallelism=DEPLOYMENT.max_parallelism,
        # A schedule does not start a run while the one before is running.
        concurrency=ConcurrencyPolicy(max_concurrency=1) if chosen.schedule else None,
    )


def _inputs(graph: PythonFunctionWorkflow, config: Path) -> dict[str, object]:
    """Read a workflow's inputs from a file."""
    if "experiment" in graph.python_interface.inputs:
        experiment, _ = read_experiment(config)
        experiment.runs(DEPLOYMENT.store)  # Mistakes in a run's settings are found at registration.
        return {"experiment": experiment, "store": DEPLOYMENT.store}
    settings = RunSettings.read(config, f"store={DEPLOYMENT.store}")
    return {one: getattr(settings, one) for one in graph.python_interface.inputs if hasattr(settings, one)}


OFFERED = {name: _offered(name) for name in DEPLOYMENT.launch_plans}
