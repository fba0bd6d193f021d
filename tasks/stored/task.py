"""The doors to stored runs; none is cached, because what a store holds changes."""

from typing import NamedTuple

from tasks.artifacts import Store
from tasks.platform import Artifact, StoreHandle, always
from tasks.prompts.sources import fingerprints, with_commits
from tasks.settings import (
    BenchmarkSettings,
    EvaluateSettings,
    EvaluationSettings,
    OperationSettings,
    PromptsSettings,
    VerifySettings,
)
from tasks.settings.evaluate import measures
from tasks.stored.evaluated import EvaluatedPolicy
from tasks.stored.rescored import RescoredRun


class FoundStages(NamedTuple):
    """All stages of a stored run, in their order."""

    stages: list[int]
    rollouts: list[list[Artifact]]
    verdicts: list[Artifact]


class FoundStage(NamedTuple):
    """A stage of a stored run; see ``StoredStage``."""

    policies: list[Artifact]
    rollouts: list[Artifact]
    verdicts: Artifact


@always
def open_store(store: str) -> StoreHandle:
    """A store that a run wrote to."""
    return Store.open(store, create=False).ref


@always
def find_stages(store: StoreHandle, algorithm: str, seed: int) -> FoundStages:
    """The stages of the latest finished run of an algorithm and a seed."""
    from tasks.stored.stages import stored_stages

    found = stored_stages(Store(store), algorithm, seed)
    return FoundStages(
        stages=list(range(len(found))),
        rollouts=[one.rollouts for one in found],
        verdicts=[one.verdicts for one in found],
    )


@always
def find_stage(store: StoreHandle, algorithm: str, seed: int, stage: int) -> FoundStage:
    """A stage of the latest finished run of an algorithm and a seed; ``stage`` counts from 0."""
    from tasks.stored.stages import stored_stage

    found = stored_stage(Store(store), algorithm, seed, stage)
    return FoundStage(found.policies, found.rollouts, found.verdicts)


class OpenEvaluation(NamedTuple):
    """A store, one of its policies, and what is measured of it; see ``OpenRun``."""

    store: StoreHandle
    policy: Artifact
    benchmarks: list[BenchmarkSettings]
    benchmark_sources: list[str]
    evaluations: list[EvaluationSettings]
    verifiers: list[VerifySettings]
    operation: OperationSettings
    seed: int


@always
def open_evaluation(
    store: str,
    policy: str,
    prompts: PromptsSettings,
    evaluate: EvaluateSettings,
    verify: VerifySettings,
    operation: OperationSettings,
    seed: int,
) -> OpenEvaluation:
    """A stored policy, as ``policy/0123abcd`` or ``latest``, and the benchmarks with nothing left open."""
    from tasks.stored.find import find_policy

    opened = Store.open(store, create=False)
    found = find_policy(opened, policy)
    measured = measures(with_commits(evaluate, operation.mirror), prompts, verify, evaluate.engine)
    return OpenEvaluation(
        store=opened.ref,
        policy=found,
        benchmarks=[one.benchmark for one in measured],
        benchmark_sources=fingerprints(measured, operation.mirror),
        evaluations=[one.evaluation for one in measured],
        verifiers=[one.verify for one in measured],
        operation=operation,
        seed=seed,
    )


@always
def close_evaluation(store: StoreHandle, average: Artifact) -> EvaluatedPolicy:
    """What was found about a policy."""
    from tasks.stored.evaluated import evaluated_policy

    return evaluated_policy(Store(store), average)


@always
def compare_verdicts(store: StoreHandle, before: list[Artifact], after: list[Artifact]) -> RescoredRun:
    """What changed from the stored verdicts to the new ones."""
    from tasks.stored.rescored import compare_verdicts as compare

    return compare(Store(store), before, after)
