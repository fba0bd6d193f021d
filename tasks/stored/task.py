"""The doors to stored runs; none is cached, because what a store holds changes."""

from typing import NamedTuple

from tasks.artifacts import Store
from tasks.platform import Artifact, StoreHandle, always
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


@always
def compare_verdicts(store: StoreHandle, before: list[Artifact], after: list[Artifact]) -> RescoredRun:
    """What changed from the stored verdicts to the new ones."""
    from tasks.stored.rescored import compare_verdicts as compare

    return compare(Store(store), before, after)
