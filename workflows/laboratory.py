"""The laboratory for staleness: every question a fan-out of short training runs on the tiny policy, on three seeds.

    mu-grpo laboratory a --config configs/laboratory.yaml

starts the runs side by side, each as the workflow ``arm``, and ends with the workflow of the question, which finds all
of them in the cache.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from flytekit import workflow
from flytekit.core.workflow import PythonFunctionWorkflow

from tasks.experiments.arms import EVALUATIONS, QUESTIONS, QUICK_EVALUATIONS, QUICK_UPDATES, SEEDS, UPDATES, Part
from tasks.experiments.result import LaboratoryResult
from tasks.flyte.decorators import named
from tasks.flyte.ends import open_run
from tasks.flyte.experiments import close_laboratory
from tasks.flyte.experiments import laboratory as compare_arms
from tasks.flyte.inputs import Artifact, StoreHandle
from tasks.flyte.tasks import prepare_prompts, study
from workflows.inputs import RUN, inputs_of
from workflows.stages import prepared


class Run(NamedTuple):
    """A training run, and the store that it is in."""

    study: Artifact
    store: StoreHandle


@workflow
@inputs_of(
    open_run,
    without=("updates_per_rollout", "operation", "trained_from"),
    **{**RUN, "store": "runs/laboratory", "arm": ""},
)
def arm(evaluations: int = EVALUATIONS, **settings: Any) -> Run:
    """One training run, evaluated along the way; ``arm`` holds what it changes in the settings."""
    run = named(open_run(updates_per_rollout=0, **settings), "open-run")
    start = prepared(run)
    made = study(
        inputs=run.study,
        evaluations=evaluations,
        policy=start.policy,
        prompts=named(prepare_prompts(inputs=run.prompts, training=start.training, stage=0), "prompts"),
        held_out=start.benchmarks,
    )
    return Run(study=named(made, "study"), store=run.store)


def runs_of(part: Part, updates: int, seeds: Sequence[int], start: Callable[..., Run], **inputs: Any) -> list[Run]:
    """The nodes of all arms of a part on all seeds, arm by arm.

    Args:
        part: of the laboratory.
        updates: of every run.
        seeds: of every arm.
        start: the workflow ``arm``, or what runs it.
        inputs: the other inputs of ``arm``.
    """
    return [
        named(start(seed=seed, arm=each.overrides(updates), **inputs), f"part-{part}-arm-{number}-seed-{seed}")
        for number, each in enumerate(QUESTIONS[part].arms, 1)
        for seed in seeds
    ]


def question(part: Part, name: str, updates: int, evaluations: int, seeds: Sequence[int]) -> PythonFunctionWorkflow:
    """The workflow of a part: all its arms on all seeds, and their comparison."""

    @inputs_of(arm, without=("seed", "arm", "evaluations"))
    def graph(**inputs: Any) -> LaboratoryResult:
        runs = runs_of(part, updates, seeds, arm, evaluations=evaluations, **inputs)
        opened = runs[0].store
        compared = named(compare_arms(store=opened, part=part, studies=[run.study for run in runs]), "compare")
        return named(close_laboratory(store=opened, result=compared), "close-laboratory")

    graph.__name__ = graph.__qualname__ = f"{name}_{part}"
    graph.__doc__ = f"{QUESTIONS[part].title}: {QUESTIONS[part].asks}"
    return workflow(graph)


laboratory_a = question("a", "laboratory", UPDATES, EVALUATIONS, SEEDS)
laboratory_b = question("b", "laboratory", UPDATES, EVALUATIONS, SEEDS)
laboratory_c = question("c", "laboratory", UPDATES, EVALUATIONS, SEEDS)
laboratory_d = question("d", "laboratory", UPDATES, EVALUATIONS, SEEDS)
quick_a = question("a", "quick", QUICK_UPDATES, QUICK_EVALUATIONS, SEEDS[:1])
quick_b = question("b", "quick", QUICK_UPDATES, QUICK_EVALUATIONS, SEEDS[:1])
quick_c = question("c", "quick", QUICK_UPDATES, QUICK_EVALUATIONS, SEEDS[:1])
quick_d = question("d", "quick", QUICK_UPDATES, QUICK_EVALUATIONS, SEEDS[:1])
