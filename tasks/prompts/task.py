"""The doors of the step that provides prompts."""

from tasks.platform import Artifact, StoreHandle, judging, once, step
from tasks.settings import (
    BenchmarkSettings,
    OperationSettings,
    PromptsSettings,
    TrainingSetSettings,
    VerifySettings,
)

VERSION = "4"
JUDGING = judging(VERSION)


@step(VERSION)
def prepare_prompts(
    store: StoreHandle, settings: PromptsSettings, training: Artifact, stage: int, seed: int
) -> list[Artifact]:
    """The prompts of a stage, a list of shards."""
    from tasks.prompts import step as logic

    return once(store, "prepare_prompts", VERSION, logic.prepare_stage, settings, training, stage, seed)


@step(JUDGING, role="prefetch")
def prepare_training_set(
    store: StoreHandle,
    settings: TrainingSetSettings,
    verify: VerifySettings,
    source: str,
    benchmarks: list[Artifact],
    operation: OperationSettings,
) -> Artifact:
    """The rows that a run trains on. ``source`` is a fingerprint of what settings name outside of the hub."""
    from tasks.prompts.training import prepare_training_set as prepare

    return once(
        store, "prepare_training_set", JUDGING, prepare, settings, verify, source, benchmarks, operation=operation
    )


@step(JUDGING, role="prefetch")
def prepare_benchmark(
    store: StoreHandle, settings: BenchmarkSettings, verify: VerifySettings, source: str, operation: OperationSettings
) -> Artifact:
    """The problems of a benchmark. ``source`` is a fingerprint of what settings name outside of the hub."""
    from tasks.prompts.benchmarks import prepare_benchmark as prepare

    return once(store, "prepare_benchmark", JUDGING, prepare, settings, verify, source, operation=operation)
