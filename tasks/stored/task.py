"""Flyte tasks that look into stored runs; none is cached, because what a store holds changes."""

from typing import NamedTuple

from tasks.artifacts import Store
from tasks.platform import Artifact, StoreHandle, always
from tasks.platform.inputs import BenchmarkInputs, EvaluationInputs, Keyed, MeanInputs, VerifyInputs
from tasks.prompts.sources import with_commits
from tasks.run.task import benchmark_inputs, evaluation_inputs
from tasks.settings import EvaluateSettings, OperationSettings, PromptsSettings, VerifySettings
from tasks.settings.evaluate import measures
from tasks.stored.evaluated import EvaluatedPolicy
from tasks.stored.rescored import RescoredRun


class FoundStage(NamedTuple):
    """A stage of a stored run; see ``StoredStage``."""

    policies: list[Artifact]
    rollouts: list[Artifact]
    verdicts: Artifact


class OpenRescore(NamedTuple):
    """The stages of a stored run, and the inputs of a new verifier of their rollouts."""

    verify: Keyed[VerifyInputs]
    stages: list[int]
    """Numbers that count from 0."""
    rollouts: list[list[Artifact]]
    """The rollouts of every stage."""
    verdicts: list[Artifact]
    """The verdicts that the run stored."""


@always
def open_rescore(store: str, verify: VerifySettings, seed: int, algorithm: str) -> OpenRescore:
    """Find the stages of the latest finished run of an algorithm and a seed."""
    from tasks.stored.stages import stored_stages

    opened = Store.open(store, create=False)
    found = stored_stages(opened, algorithm, seed)
    return OpenRescore(
        verify=VerifyInputs(store=opened.ref, seed=seed, settings=verify),
        stages=list(range(len(found))),
        rollouts=[one.rollouts for one in found],
        verdicts=[one.verdicts for one in found],
    )


@always
def find_stage(store: StoreHandle, seed: int, algorithm: str, stage: int) -> FoundStage:
    """Find a stage of the latest finished run of an algorithm and a seed; ``stage`` counts from 0."""
    from tasks.stored.stages import stored_stage

    found = stored_stage(Store(store), algorithm, seed, stage)
    return FoundStage(found.policies, found.rollouts, found.verdicts)


class OpenEvaluation(NamedTuple):
    """A stored policy, and the inputs of the steps that evaluate it; see ``OpenRun``."""

    policy: Artifact
    benchmarks: list[Keyed[BenchmarkInputs]]
    evaluations: list[Keyed[EvaluationInputs]]
    mean: Keyed[MeanInputs]


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
    """Find a stored policy, as ``policy/0123abcd`` or ``latest``, and resolve the benchmarks."""
    from tasks.stored.find import find_policy

    opened = Store.open(store, create=False)
    found = find_policy(opened, policy)
    measured = measures(with_commits(evaluate, operation.mirror), prompts, verify, evaluate.engine)
    return OpenEvaluation(
        policy=found,
        benchmarks=benchmark_inputs(opened.ref, measured, operation),
        evaluations=evaluation_inputs(opened.ref, seed, measured, operation),
        mean=MeanInputs(store=opened.ref, seed=seed),
    )


@always
def close_evaluation(inputs: Keyed[MeanInputs], average: Artifact) -> EvaluatedPolicy:
    """Return what was found about a policy."""
    from tasks.stored.evaluated import evaluated_policy

    return evaluated_policy(Store(inputs.store), average)


@always
def compare_verdicts(inputs: Keyed[VerifyInputs], before: list[Artifact], after: list[Artifact]) -> RescoredRun:
    """Return what changed from the stored verdicts to the new ones."""
    from tasks.stored.rescored import compare_verdicts as compare

    return compare(Store(inputs.store), before, after)
