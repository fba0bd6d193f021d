"""Train a stored run again from stage k on: stage k on its stored rollouts, later stages on new ones.

pyflyte run workflows/retrain.py retrain --inputs-file configs/tiny-cpu.yaml --from_stage 3 \
    --overrides "optimize.preset=relaxed"
"""

from typing import Unpack

from flytekit import workflow
from flytekit.core.workflow import PythonFunctionWorkflow

from tasks.flyte.decorators import dynamic_part, named, unpack_options
from tasks.flyte.inputs import OPTIONS, Artifact, RunOptions
from tasks.flyte.tasks import optimize as optimize_policy
from tasks.flyte.tasks import report
from tasks.flyte.uncached import close_run, find_stage, open_run
from tasks.formats import pluralize
from tasks.report.summary import RunSummary
from tasks.settings.run import STAGES
from workflows.stages import StageInputs, add_evaluation, prepare_shared_inputs, stage, stage_inputs


@dynamic_part
@unpack_options()
def stages_from(
    first: int,
    stages: int,
    policies: list[Artifact],
    rollouts: list[Artifact],
    verdicts: Artifact,
    **shared: Unpack[StageInputs],
) -> list[Artifact]:
    """Train stage ``first``, from 1, and all later ones, and measure the stored and the new policies."""
    accuracies = [add_evaluation(policy, shared, f"evaluate-{number}") for number, policy in enumerate(policies)]
    retrained = optimize_policy(
        inputs=shared["optimize"],
        reference=policies[0],
        policy=policies[-1],
        rollouts=rollouts,
        verdicts=verdicts,
        stage=first - 1,
    )
    policy = named(retrained, f"optimize-{first}")
    accuracies.append(add_evaluation(policy, shared, f"evaluate-{first}"))
    for number in range(first, stages):
        made = stage(reference=policies[0], policy=policy, stage=number, **shared)
        policy, mean_accuracy = named(made, f"stage-{number + 1}")
        accuracies.append(mean_accuracy)
    return accuracies


def make_workflow(stages: int) -> PythonFunctionWorkflow:
    """Make the workflow for runs with a number of stages: ``retrain`` with four, else ``retrain_<stages>``."""

    @unpack_options(**OPTIONS)
    def graph(from_stage: int = 1, algorithm: str = "", **options: Unpack[RunOptions]) -> RunSummary:
        opened = open_run(updates_per_rollout=0, from_stage=from_stage, algorithm=algorithm, **options)
        run = named(opened, "open-run")
        shared = prepare_shared_inputs(run)
        stored = named(find_stage(inputs=run.run, training=shared["training"], algorithm=algorithm), "stored-stage")
        accuracies = stages_from(
            first=from_stage,
            stages=stages,
            policies=stored.policies,
            rollouts=stored.rollouts,
            verdicts=stored.verdicts,
            **stage_inputs(run, shared),
        )
        page = named(report(inputs=run.report, evaluations=named(accuracies, "stages")), "report")
        return named(close_run(inputs=run.run, report=page), "close-run")

    graph.__name__ = graph.__qualname__ = "retrain" if stages == STAGES else f"retrain_{stages}"
    graph.__doc__ = f"Train a stored run of {pluralize(stages, 'stage')} again, from ``from_stage`` on."
    return workflow(graph)


retrain = make_workflow(STAGES)
retrain_1 = make_workflow(1)
retrain_2 = make_workflow(2)
retrain_8 = make_workflow(8)
