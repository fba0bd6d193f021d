"""The doors to stored runs; none is cached, because what a store holds changes."""

from typing import NamedTuple

from tasks.artifacts import Store
from tasks.platform import Artifact, StoreHandle, always
from tasks.run.sources import fingerprint
from tasks.settings import PromptsSettings
from tasks.stored.evaluated import EvaluatedPolicy
from tasks.stored.rescored import RescoredRun


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
def find_stage(store: StoreHandle, algorithm: str, seed: int, stage: int) -> FoundStage:
    """A stage of the latest finished run of an algorithm and a seed; ``stage`` counts from 0."""
    from tasks.stored.stages import stored_stage

    found = stored_stage(Store(store), algorithm, seed, stage)
    return FoundStage(found.policies, found.rollouts, found.verdicts)


class OpenEvaluation(NamedTuple):
    """A store, one of its policies, and what is read from outside of it."""

    store: StoreHandle
    policy: Artifact
    prompts_source: str


@always
def open_evaluation(store: str, policy: str, prompts: PromptsSettings) -> OpenEvaluation:
    """A stored policy, as ``policy/0123abcd`` or ``latest``, and a fingerprint of the prompts' files."""
    from tasks.stored.find import find_policy

    opened = Store.open(store, create=False)
    source = fingerprint(prompts.path) + fingerprint(prompts.held_out_path)
    return OpenEvaluation(opened.ref, find_policy(opened, policy), source)


@always
def close_evaluation(store: StoreHandle, evaluation: Artifact) -> EvaluatedPolicy:
    """What an evaluation says of its policy."""
    from tasks.stored.evaluated import evaluated_policy

    return evaluated_policy(Store(store), evaluation)


@always
def compare_verdicts(store: StoreHandle, before: list[Artifact], after: list[Artifact]) -> RescoredRun:
    """What changed from the stored verdicts to the new ones."""
    from tasks.stored.rescored import compare_verdicts as compare

    return compare(Store(store), before, after)
