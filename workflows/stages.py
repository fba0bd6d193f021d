"""The stages of a run as sub-workflows; Flyte's console shows each as a node that opens to its steps."""

from functools import partial
from typing import NamedTuple, TypedDict, Unpack

from flytekit import map_task

from tasks.flyte.decorators import named, unpack_options, workflow
from tasks.flyte.ends import OpenRun
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
from tasks.flyte.tasks import (
    alternate,
    average,
    generate,
    prepare_benchmark,
    prepare_policy,
    prepare_prompts,
    prepare_training_set,
)
from tasks.flyte.tasks import evaluate as evaluate_policy
from tasks.flyte.tasks import optimize as optimize_policy
from tasks.flyte.tasks import verify as verify_rollouts


class Start(NamedTuple):
    """Artifacts that the stages of a run start from."""

    policy: Artifact
    """The base policy."""
    benchmarks: list[Artifact]
    """Problems of each benchmark."""
    training: Artifact
    """Rows from which all stages take their prompts, without the problems of the benchmarks."""


class Stage(NamedTuple):
    """Artifacts of a stage."""

    policy: Artifact
    accuracy: Artifact
    """Accuracy of the policy, as the mean over the benchmarks."""


def prepare(run: OpenRun) -> Start:
    """Add the nodes that come before the stages."""
    benchmarks, training = prepare_data(run)
    return Start(named(prepare_policy(inputs=run.policy), "base-policy"), benchmarks, training)


def prepare_data(run: OpenRun) -> tuple[list[Artifact], Artifact]:
    """Add the nodes that read the problems of the benchmarks and the training set."""
    benchmarks = prepare_benchmarks(run.benchmarks)
    return benchmarks, named(prepare_training_set(inputs=run.training_set, benchmarks=benchmarks), "training-set")


def prepare_benchmarks(benchmarks: list[Keyed[BenchmarkInputs]]) -> list[Artifact]:
    """Add the node that reads the problems of each benchmark."""
    prepared: list[Artifact] = named(map_task(prepare_benchmark)(inputs=benchmarks), "benchmarks")
    return prepared


@workflow
def evaluate(
    inputs: list[Keyed[EvaluationInputs]], mean: Keyed[MeanInputs], benchmarks: list[Artifact], policy: Artifact
) -> Artifact:
    """Measure the accuracy of a policy on each benchmark, and the mean over benchmarks."""
    found = named(map_task(partial(evaluate_policy, policy=policy))(inputs=inputs, prompts=benchmarks), "benchmarks")
    return named(average(inputs=mean, policy=policy, evaluations=found), "mean")


class SharedInputs(TypedDict):
    """Inputs that all stages of a run share."""

    prompts: Keyed[PromptsInputs]
    evaluations: list[Keyed[EvaluationInputs]]
    mean: Keyed[MeanInputs]
    training: Artifact
    benchmarks: list[Artifact]


class StageInputs(SharedInputs):
    """Inputs that all large stages of a run share, which generate once."""

    rollout: Keyed[RolloutInputs]
    verify: Keyed[VerifyInputs]
    optimize: Keyed[OptimizeInputs]


@workflow
@unpack_options()
def stage(reference: Artifact, policy: Artifact, stage: int, **given: Unpack[StageInputs]) -> Stage:
    """A large stage of Mu-GRPO, whose updates all learn from one set of rollouts."""
    shards = named(prepare_prompts(inputs=given["prompts"], training=given["training"], stage=stage), "prompts")
    generate_shard = partial(generate, inputs=given["rollout"], policy=policy, stage=stage)
    rollouts = named(map_task(generate_shard)(prompts=shards), "generate")
    verdicts = named(verify_rollouts(inputs=given["verify"], rollouts=rollouts, stage=stage), "verify")
    optimized = optimize_policy(
        inputs=given["optimize"],
        reference=reference,
        policy=policy,
        rollouts=rollouts,
        verdicts=verdicts,
        stage=stage,
    )
    return _evaluate_stage(named(optimized, "optimize"), given)


@workflow
@unpack_options()
def alternating_stage(
    alternate_inputs: Keyed[AlternateInputs],
    reference: Artifact,
    policy: Artifact,
    stage: int,
    **given: Unpack[SharedInputs],
) -> Stage:
    """A stage whose updates alternate with the generation of rollouts, in one task."""
    shards = named(prepare_prompts(inputs=given["prompts"], training=given["training"], stage=stage), "prompts")
    alternated = alternate(inputs=alternate_inputs, reference=reference, policy=policy, prompts=shards, stage=stage)
    return _evaluate_stage(named(alternated, "alternate"), given)


def _evaluate_stage(policy: Artifact, given: SharedInputs) -> Stage:
    return Stage(policy, add_evaluation(policy, given, "evaluate"))


def add_evaluation(policy: Artifact, given: SharedInputs, name: str) -> Artifact:
    """Add the node ``name``, which measures the accuracy of a policy."""
    accuracy = evaluate(inputs=given["evaluations"], mean=given["mean"], benchmarks=given["benchmarks"], policy=policy)
    return named(accuracy, name)


def stage_inputs(run: OpenRun, start: Start) -> StageInputs:
    """Return the inputs that all large stages of a run share."""
    return {**shared_inputs(run, start), "rollout": run.rollout, "verify": run.verify, "optimize": run.optimize}


def add_stage(run: OpenRun, start: Start, policy: Artifact, number: int) -> Stage:
    """Add the node of a large stage; ``number`` counts from 0."""
    made = stage(reference=start.policy, policy=policy, stage=number, **stage_inputs(run, start))
    return named(made, f"stage-{number + 1}")


def add_alternating_stage(run: OpenRun, start: Start, policy: Artifact, number: int) -> Stage:
    """Add the node of a stage in which generation and optimization alternate; ``number`` counts from 0."""
    given = shared_inputs(run, start)
    made = alternating_stage(
        alternate_inputs=run.alternate, reference=start.policy, policy=policy, stage=number, **given
    )
    return named(made, f"stage-{number + 1}")


def shared_inputs(run: OpenRun, start: Start) -> SharedInputs:
    """Return the inputs that all stages of a run share."""
    return {
        "prompts": run.prompts,
        "evaluations": run.evaluations,
        "mean": run.mean,
        "training": start.training,
        "benchmarks": start.benchmarks,
    }
