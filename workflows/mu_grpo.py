"""Mu-GRPO: a few large stages, each prompts -> generate -> verify -> optimize -> evaluate, in a static graph.

pyflyte run workflows/mu_grpo.py mu_grpo --inputs-file configs/tiny-cpu.yaml
"""

from typing import Unpack

from flytekit import workflow
from flytekit.core.workflow import PythonFunctionWorkflow

from tasks.flyte.decorators import named, unpack_options
from tasks.flyte.inputs import OPTIONS, Artifact, RunOptions
from tasks.flyte.tasks import prepare_policy, report
from tasks.flyte.uncached import OpenRun, close_run, open_run
from tasks.formats import pluralize
from tasks.report.summary import RunSummary
from tasks.settings.run import STAGES
from workflows.stages import add_evaluation, alternating_stage, prepare_shared_inputs, stage, stage_inputs


def add_stages(run: OpenRun, stages: int, alternating: bool = False) -> Artifact:
    """Add the stages of a run, and its report with the accuracies of the base policy and after each stage."""
    shared = prepare_shared_inputs(run)
    policy = base = named(prepare_policy(inputs=run.policy), "base-policy")
    accuracies = [add_evaluation(base, shared, "evaluate-base")]
    for number in range(stages):
        if alternating:
            made = alternating_stage(
                alternate_inputs=run.alternate, reference=base, policy=policy, stage=number, **shared
            )
        else:
            made = stage(reference=base, policy=policy, stage=number, **stage_inputs(run, shared))
        policy, accuracy = named(made, f"stage-{number + 1}")
        accuracies.append(accuracy)
    return named(report(inputs=run.report, evaluations=accuracies), "report")


def make_workflow(stages: int) -> PythonFunctionWorkflow:
    """Make the workflow with a number of stages: ``mu_grpo`` with four, else ``mu_grpo_<stages>``."""

    @unpack_options(**OPTIONS)
    def graph(**options: Unpack[RunOptions]) -> RunSummary:
        # 0: a stage generates once, for all of its updates.
        run = named(open_run(updates_per_rollout=0, **options), "open-run")
        return named(close_run(inputs=run.run, report=add_stages(run, stages)), "close-run")

    graph.__name__ = graph.__qualname__ = "mu_grpo" if stages == STAGES else f"mu_grpo_{stages}"
    graph.__doc__ = f"Mu-GRPO in {pluralize(stages, 'stage')}."
    return workflow(graph)


mu_grpo = make_workflow(STAGES)
mu_grpo_1 = make_workflow(1)
mu_grpo_2 = make_workflow(2)
mu_grpo_8 = make_workflow(8)
