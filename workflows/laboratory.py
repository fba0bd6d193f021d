"""The laboratory for staleness: each question is a fan-out of short training runs of the tiny policy, on three seeds.

    mu-grpo laboratory a --config configs/laboratory.yaml

starts the runs side by side, each as the workflow ``arm``, and then the workflow of the question, which finds all runs
in the cache.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Unpack

from flytekit.core.workflow import PythonFunctionWorkflow

from tasks.experiments.arms import FULL, QUESTIONS, QUICK, Form, Part
from tasks.experiments.result import LaboratoryResult
from tasks.flyte.decorators import named, unpack_options, workflow
from tasks.flyte.ends import open_run
from tasks.flyte.experiments import close_laboratory
from tasks.flyte.experiments import laboratory as compare_arms
from tasks.flyte.inputs import SECTIONS, Artifact, RunSections, StoreHandle
from tasks.flyte.tasks import prepare_prompts, study
from tasks.settings import Given, OperationSettings
from workflows.stages import prepare

_SECTIONS = {**SECTIONS, "store": "runs/laboratory"}


class Run(NamedTuple):
    """A training run, and the store that it is in."""

    study: Artifact
    store: StoreHandle


@workflow
@unpack_options(**_SECTIONS)
def arm(
    evaluations: int = FULL.evaluations,
    seed: int = 0,
    arm: str = "",
    overrides: str = "",
    **sections: Unpack[RunSections],
) -> Run:
    """A training run with evaluations on the way; ``arm`` holds the overrides of the arm."""
    operation = Given[OperationSettings]()
    opened = open_run(updates_per_rollout=0, arm=arm, seed=seed, overrides=overrides, operation=operation, **sections)
    run = named(opened, "open-run")
    start = prepare(run)
    made = study(
        inputs=run.study,
        evaluations=evaluations,
        policy=start.policy,
        prompts=named(prepare_prompts(inputs=run.prompts, training=start.training, stage=0), "prompts"),
        held_out=start.benchmarks,
    )
    return Run(study=named(made, "study"), store=run.store)


def add_runs(part: Part, updates: int, seeds: Sequence[int], start: Callable[..., Run], **inputs: object) -> list[Run]:
    """Add the nodes of all arms of a part on all seeds, arm by arm.

    Args:
        part: the part of the laboratory.
        updates: number of updates of each run.
        seeds: seeds of each arm.
        start: the workflow ``arm``, or a function that starts it as an execution.
        inputs: the other inputs of ``arm``.
    """
    return [
        named(start(seed=seed, arm=each.overrides(updates), **inputs), f"part-{part}-arm-{number}-seed-{seed}")
        for number, each in enumerate(QUESTIONS[part].arms, 1)
        for seed in seeds
    ]


def make_workflow(form: Form, part: Part) -> PythonFunctionWorkflow:
    """Make the workflow of a part: all its arms on all seeds, and their comparison."""

    @unpack_options(**_SECTIONS)
    def graph(overrides: str = "", **sections: Unpack[RunSections]) -> LaboratoryResult:
        inputs = {"evaluations": form.evaluations, "overrides": overrides, **sections}
        runs = add_runs(part, form.updates, form.seeds, arm, **inputs)
        opened = runs[0].store
        compared = named(compare_arms(store=opened, part=part, studies=[run.study for run in runs]), "compare")
        return named(close_laboratory(store=opened, result=compared), "close-laboratory")

    graph.__name__ = graph.__qualname__ = f"{form.name}_{part}"
    graph.__doc__ = f"{QUESTIONS[part].title}: {QUESTIONS[part].asks}"
    return workflow(graph)


laboratory_a, laboratory_b, laboratory_c, laboratory_d = (make_workflow(FULL, part) for part in QUESTIONS)
quick_a, quick_b, quick_c, quick_d = (make_workflow(QUICK, part) for part in QUESTIONS)
