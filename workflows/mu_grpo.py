"""Mu-GRPO: a few large stages, each prompts -> generate -> verify -> optimize -> evaluate, in a static graph.

pyflyte run workflows/mu_grpo.py mu_grpo --inputs-file configs/tiny-cpu.yaml
"""

from collections.abc import Callable
from typing import Unpack

from flytekit import workflow
from flytekit.core.workflow import PythonFunctionWorkflow

from tasks.flyte.decorators import named, unpack_options
from tasks.flyte.ends import OpenRun, close_run, open_run
from tasks.flyte.inputs import OPTIONS, Artifact, RunOptions
from tasks.flyte.tasks import report
from tasks.report.summary import RunSummary
from workflows.stages import Stage, Start, evaluated, in_stages, prepared

STAGES = 4
StageNode = Callable[[OpenRun, Start, Artifact, int], Stage]
"""A function from a run, its start, a policy and a stage's number to the node of the stage."""


def report_of(run: OpenRun, stages: int, stage_node: StageNode) -> Artifact:
    """The report of a run: the accuracies of the base policy and of the policy after every stage."""
    start = prepared(run)
    policy = start.policy
    accuracies = [evaluated(run, start.benchmarks, policy)]
    for number in range(stages):
        policy, accuracy = stage_node(run, start, policy, number)
        accuracies.append(accuracy)
    return named(report(inputs=run.report, evaluations=accuracies), "report")


def staged(stages: int) -> PythonFunctionWorkflow:
    """The workflow with another number of stages; ``mu_grpo`` has four, the others are named ``mu_grpo_<stages>``."""

    @unpack_options(**OPTIONS)
    def graph(**options: Unpack[RunOptions]) -> RunSummary:
        run = named(open_run(updates_per_rollout=0, **options), "open-run")
        return named(close_run(inputs=run.run, report=report_of(run, stages, in_stages)), "close-run")

    graph.__name__ = graph.__qualname__ = "mu_grpo" if stages == STAGES else f"mu_grpo_{stages}"
    graph.__doc__ = f"Mu-GRPO in {stages} stages."
    return workflow(graph)


mu_grpo = staged(STAGES)
mu_grpo_1 = staged(1)
mu_grpo_2 = staged(2)
mu_grpo_8 = staged(8)
