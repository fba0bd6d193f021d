"""The laboratory for staleness: every question a fan-out of short training runs on the tiny policy, on three seeds.

    mu-grpo laboratory a --config configs/laboratory.yaml

starts the runs side by side, each as the workflow ``arm``, and ends with the workflow of the question, which finds all
of them in the cache.
"""

from typing import NamedTuple

from flytekit.core.workflow import PythonFunctionWorkflow

from tasks.experiments.arms import EVALUATIONS, QUESTIONS, QUICK_EVALUATIONS, QUICK_UPDATES, SEEDS, UPDATES, Part
from tasks.experiments.result import LaboratoryResult
from tasks.flyte.decorators import named, workflow
from tasks.flyte.ends import open_run
from tasks.flyte.experiments import close_laboratory
from tasks.flyte.experiments import laboratory as compare_arms
from tasks.flyte.inputs import Artifact, StoreHandle
from tasks.flyte.tasks import prepare_prompts, study
from tasks.settings import (
    EvaluateSettings,
    Given,
    OptimizeSettings,
    PolicySettings,
    PromptsSettings,
    RolloutSettings,
    VerifySettings,
)
from workflows.stages import prepared


class Run(NamedTuple):
    """A training run, and the store that it is in."""

    study: Artifact
    store: StoreHandle


@workflow
def arm(
    policy: Given[PolicySettings],
    prompts: Given[PromptsSettings],
    rollout: Given[RolloutSettings],
    optimize: Given[OptimizeSettings],
    evaluate: Given[EvaluateSettings],
    verify: Given[VerifySettings] = Given[VerifySettings](),  # noqa: B008 - settings are immutable
    store: str = "runs/laboratory",
    seed: int = 0,
    overrides: str = "",
    arm: str = "",
    evaluations: int = EVALUATIONS,
) -> Run:
    """One training run, evaluated along the way; ``arm`` holds what it changes in the settings."""
    opened = open_run(
        store=store,
        seed=seed,
        policy=policy,
        prompts=prompts,
        rollout=rollout,
        verify=verify,
        optimize=optimize,
        evaluate=evaluate,
        updates_per_rollout=0,
        overrides=overrides,
        arm=arm,
    )
    run = named(opened, "open-run")
    start = prepared(run)
    made = study(
        inputs=run.study,
        evaluations=evaluations,
        policy=start.policy,
        prompts=named(prepare_prompts(inputs=run.prompts, training=start.training, stage=0), "prompts"),
        held_out=start.benchmarks,
    )
    return Run(study=named(made, "study"), store=run.store)


def question(part: Part, name: str, updates: int, evaluations: int, seeds: tuple[int, ...]) -> PythonFunctionWorkflow:
    """The workflow of a part: all its arms on all seeds, and their comparison."""

    def graph(
        policy: Given[PolicySettings],
        prompts: Given[PromptsSettings],
        rollout: Given[RolloutSettings],
        optimize: Given[OptimizeSettings],
        evaluate: Given[EvaluateSettings],
        verify: Given[VerifySettings] = Given[VerifySettings](),  # noqa: B008 - settings are immutable
        store: str = "runs/laboratory",
        overrides: str = "",
    ) -> LaboratoryResult:
        runs = [
            named(
                arm(
                    policy=policy,
                    prompts=prompts,
                    rollout=rollout,
                    optimize=optimize,
                    evaluate=evaluate,
                    verify=verify,
                    store=store,
                    seed=seed,
                    overrides=overrides,
                    arm=each.overrides(updates),
                    evaluations=evaluations,
                ),
                f"arm-{number + 1}-seed-{seed}",
            )
            for number, each in enumerate(QUESTIONS[part].arms)
            for seed in seeds
        ]
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
