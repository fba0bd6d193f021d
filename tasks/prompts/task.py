"""Flyte tasks that provide problems: benchmarks, the training set, and the prompts of a stage."""

from tasks.platform import Artifact, judging, once, step
from tasks.platform.inputs import BenchmarkInputs, Keyed, PromptsInputs, TrainingSetInputs

VERSION = "4"
JUDGING = judging(VERSION)


@step(VERSION)
def prepare_prompts(inputs: Keyed[PromptsInputs], training: Artifact, stage: int) -> list[Artifact]:
    """The prompts of a stage, a list of shards."""
    from tasks.prompts import step as logic

    return once(
        inputs.store,
        "prepare_prompts",
        VERSION,
        logic.prepare_stage,
        inputs.settings,
        training,
        stage,
        inputs.seed,
    )


@step(JUDGING, role="prefetch")
def prepare_training_set(inputs: Keyed[TrainingSetInputs], benchmarks: list[Artifact]) -> Artifact:
    """The rows that a run trains on, without the problems of its benchmarks."""
    from tasks.artifacts import Store
    from tasks.prompts.step import check_stages
    from tasks.prompts.training import prepare_training_set as prepare

    made = once(
        inputs.store,
        "prepare_training_set",
        JUDGING,
        prepare,
        inputs.settings,
        inputs.verify,
        inputs.source,
        benchmarks,
        operation=inputs.operation,
    )
    check_stages(Store(inputs.store), inputs.prompts, made)
    return made


@step(JUDGING, role="prefetch", mapped=True)
def prepare_benchmark(inputs: Keyed[BenchmarkInputs]) -> Artifact:
    """The problems of a benchmark."""
    from tasks.prompts.benchmarks import prepare_benchmark as prepare

    return once(
        inputs.store,
        "prepare_benchmark",
        JUDGING,
        prepare,
        inputs.settings,
        inputs.verify,
        inputs.source,
        operation=inputs.operation,
    )
