"""Finds the stages of a stored run: policies, rollouts and verdicts."""

from dataclasses import dataclass

from tasks.artifacts import ArtifactRef, Store
from tasks.errors import DataError
from tasks.stored.reports import find_reports, run_of


@dataclass(frozen=True)
class StoredStage:
    """A stage of a run."""

    policies: list[ArtifactRef]
    """The base policy and those after every stage before this one; the last one sampled the rollouts."""
    rollouts: list[ArtifactRef]
    verdicts: ArtifactRef


def stored_stages(store: Store, algorithm: str, seed: int) -> list[StoredStage]:
    """Return the stages of the latest finished run.

    Args:
        store: the store that the run wrote to.
        algorithm: the run's preset; the latest run of any when empty.
        seed: the run's seed.

    Raises:
        DataError: there is no such run.
    """
    policies = run_of(store, find_reports(store, seed, algorithm or None)[0]).policies
    return [
        StoredStage(
            policies=[policy.ref for policy in policies[: stage + 1]],
            rollouts=after.parents["rollouts"],
            verdicts=after.parents["verdicts"][0],
        )
        for stage, after in enumerate(policies[1:])
    ]


def stored_stage(store: Store, algorithm: str, seed: int, stage: int) -> StoredStage:
    """Return one stage of a stored run; ``stage`` counts from 0.

    Raises:
        DataError: there is no such run, or it has fewer stages.
    """
    stages = stored_stages(store, algorithm, seed)
    if stage >= len(stages):
        allowed = f"0 to {len(stages) - 1}" if len(stages) > 1 else "0"
        raise DataError(f"stage {stage}: the stored run has {len(stages)}; allowed: {allowed}.")
    return stages[stage]
