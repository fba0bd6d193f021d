"""The staleness laboratory: each question is answered by short training runs of the tiny policy, on three seeds.

    mu-grpo laboratory a --config configs/laboratory.yaml

starts the runs in parallel, each as the workflow ``arm``, and then the workflow of the question, which finds all of
these runs in the cache.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Unpack

from flytekit.core.workflow import PythonFunctionWorkflow

from tasks.experiments.questions import FULL, QUESTIONS, QUICK, LaboratorySize
from tasks.experiments.result import LaboratoryResult
from tasks.flyte.decorators import named, unpack_options, workflow
from tasks.flyte.experiments import close_laboratory
from tasks.flyte.experiments import laboratory as compare_arms
from tasks.flyte.inputs import SECTIONS, Artifact, RunSections, StoreHandle
from tasks.flyte.tasks import prepare_policy, prepare_prompts, study
from tasks.flyte.uncached import open_run
from tasks.settings import Given, OperationSettings
from workflows.stages import prepare_shared_inputs

_SECTIONS = {**SECTIONS, "store": "runs/laboratory"}


class Run(NamedTuple):
    """Outputs of the workflow ``arm``: the artifact of a training run, and its store."""

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
    """Train once, with evaluations during training; ``arm`` holds the overrides that define the arm."""
    operation = Given[OperationSettings]()
    opened = open_run(updates_per_rollout=0, arm=arm, seed=seed, overrides=overrides, operation=operation, **sections)
    run = named(opened, "open-run")
    shared = prepare_shared_inputs(run)
    trained = study(
        inputs=run.study,
        evaluations=evaluations,
        policy=named(prepare_policy(inputs=run.policy), "base-policy"),
        prompts=named(prepare_prompts(inputs=run.prompts, training=shared["training"], stage=0), "prompts"),
        held_out=shared["benchmarks"],
    )
    return Run(study=named(trained, "study"), store=run.store)


def add_runs(part: str, updates: int, seeds: Sequence[int], start: Callable[..., Run], **inputs: object) -> list[Run]:
    """Add the nodes of all arms of a part on all seeds, arm by arm.

    ``start`` is the workflow ``arm``, or a function that starts it; ``inputs`` are its other inputs.
    """
    return [
        named(start(seed=seed, arm=setting.overrides(updates), **inputs), f"part-{part}-arm-{number}-seed-{seed}")
        for number, setting in enumerate(QUESTIONS[part].arms, 1)
        for seed in seeds
    ]


def make_workflow(size: LaboratorySize, part: str) -> PythonFunctionWorkflow:
    """Make the workflow of a part: all its arms on all seeds, and their comparison."""

    @unpack_options(**_SECTIONS)
    def graph(overrides: str = "", **sections: Unpack[RunSections]) -> LaboratoryResult:
        inputs = {"evaluations": size.evaluations, "overrides": overrides, **sections}
        runs = add_runs(part, size.updates, size.seeds, arm, **inputs)
        store = runs[0].store
        compared = named(compare_arms(store=store, part=part, studies=[run.study for run in runs]), "compare")
        return named(close_laboratory(store=store, result=compared), "close-laboratory")

    graph.__name__ = graph.__qualname__ = f"{size.name}_{part}"
    graph.__doc__ = f"{QUESTIONS[part].title}: {QUESTIONS[part].text}"
    return workflow(graph)


laboratory_a, laboratory_b, laboratory_c, laboratory_d = (make_workflow(FULL, part) for part in QUESTIONS)
quick_a, quick_b, quick_c, quick_d = (make_workflow(QUICK, part) for part in QUESTIONS)
