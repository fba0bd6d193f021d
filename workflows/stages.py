"""The stages of a run as sub-workflows; Flyte's console shows each as a node that opens to its steps."""

from functools import partial
from typing import NamedTuple, TypedDict, Unpack

from flytekit import map_task

from tasks.flyte import tasks
from tasks.flyte.decorators import named, unpack_options, workflow
from tasks.flyte.inputs import (
    AlternateInputs,
    Artifact,
    BenchmarkInputs,
    EvaluationInputs,
    Keyed,
    MeanInputs,
    OptimizeInputs,
    PromptsInputs,
    RolloutInputs,
    VerifyInputs,
)
from tasks.flyte.uncached import OpenRun


class Stage(NamedTuple):
    """Artifacts of a stage."""

    policy: Artifact
    accuracy: Artifact
    """Accuracy of the policy, as the mean over the benchmarks."""


def prepare_benchmarks(benchmarks: list[Keyed[BenchmarkInputs]]) -> list[Artifact]:
    """Add the node that reads the problems of each benchmark."""
    prepared: list[Artifact] = named(map_task(tasks.prepare_benchmark)(inputs=benchmarks), "benchmarks")
    return prepared


@workflow
def evaluate(
    inputs: list[Keyed[EvaluationInputs]], mean: Keyed[MeanInputs], benchmarks: list[Artifact], policy: Artifact
) -> Artifact:
    """Measure the accuracy of a policy on each benchmark, and the mean over benchmarks."""
    evaluate_benchmark = partial(tasks.evaluate, policy=policy)
    evaluations = named(map_task(evaluate_benchmark)(inputs=inputs, prompts=benchmarks), "benchmarks")
    return named(tasks.average(inputs=mean, policy=policy, evaluations=evaluations), "mean")


class SharedInputs(TypedDict):
    """Inputs that all stages of a run share."""

    prompts: Keyed[PromptsInputs]
    evaluations: list[Keyed[EvaluationInputs]]
    mean: Keyed[MeanInputs]
    training: Artifact
    """Rows from which all stages take their prompts, without the problems of the benchmarks."""
    benchmarks: list[Artifact]
    """Problems of each benchmark."""


class StageInputs(SharedInputs):
    """Inputs that all large stages of a run share, which generate once."""

    rollout: Keyed[RolloutInputs]
    verify: Keyed[VerifyInputs]
    optimize: Keyed[OptimizeInputs]


def prepare_shared_inputs(run: OpenRun) -> SharedInputs:
    """Add the nodes that read the benchmarks and the training set, and return the inputs that all stages share."""
    benchmarks = prepare_benchmarks(run.benchmarks)
    training = named(tasks.prepare_training_set(inputs=run.training_set, benchmarks=benchmarks), "training-set")
    return {
        "prompts": run.prompts,
        "evaluations": run.evaluations,
        "mean": run.mean,
        "training": training,
        "benchmarks": benchmarks,
    }


@workflow
@unpack_options()
def stage(reference: Artifact, policy: Artifact, stage: int, **shared: Unpack[StageInputs]) -> Stage:
    """A large stage of Mu-GRPO, whose updates all learn from one set of rollouts."""
    shards = named(tasks.prepare_prompts(inputs=shared["prompts"], training=shared["training"], stage=stage), "prompts")
    generate_shard = partial(tasks.generate, inputs=shared["rollout"], policy=policy, stage=stage)
    rollouts = named(map_task(generate_shard)(prompts=shards), "generate")
    verdicts = named(tasks.verify(inputs=shared["verify"], rollouts=rollouts, stage=stage), "verify")
    optimized = tasks.optimize(
        inputs=shared["optimize"],
        reference=reference,
        policy=policy,
        rollouts=rollouts,
        verdicts=verdicts,
        stage=stage,
    )
    trained = named(optimized, "optimize")
    return Stage(trained, add_evaluation(trained, shared, "evaluate"))


@workflow
@unpack_options()
def alternating_stage(
    alternate_inputs: Keyed[AlternateInputs],
    reference: Artifact,
    policy: Artifact,
    stage: int,
    **shared: Unpack[SharedInputs],
) -> Stage:
    """A stage whose updates alternate with the generation of rollouts, in one task."""
    shards = named(tasks.prepare_prompts(inputs=shared["prompts"], training=shared["training"], stage=stage), "prompts")
    made = tasks.alternate(inputs=alternate_inputs, reference=reference, policy=policy, prompts=shards, stage=stage)
    trained = named(made, "alternate")
    return Stage(trained, add_evaluation(trained, shared, "evaluate"))


def add_evaluation(policy: Artifact, shared: SharedInputs, name: str) -> Artifact:
    """Add the node ``name``, which measures the accuracy of a policy."""
    inputs, benchmarks = shared["evaluations"], shared["benchmarks"]
    accuracy = evaluate(inputs=inputs, mean=shared["mean"], benchmarks=benchmarks, policy=policy)
    return named(accuracy, name)


def stage_inputs(run: OpenRun, shared: SharedInputs) -> StageInputs:
    """Return the inputs that all large stages of a run share."""
    return {**shared, "rollout": run.rollout, "verify": run.verify, "optimize": run.optimize}
