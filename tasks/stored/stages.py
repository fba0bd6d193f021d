"""The stages of a stored run: policies, rollouts and verdicts, found by its report."""

from dataclasses import dataclass

from tasks.artifacts import ArtifactRef, Store
from tasks.artifacts.records import Manifest
from tasks.errors import DataError
from tasks.stored.reports import find_reports


@dataclass(frozen=True)
class StoredStage:
    """A stage of a run."""

    policies: list[ArtifactRef]
    """The base policy and those after every stage before this one; the last one sampled the rollouts."""
    rollouts: list[ArtifactRef]
    verdicts: ArtifactRef


def stored_stages(store: Store, algorithm: str, seed: int) -> list[StoredStage]:
    """The stages of the latest finished run.

    Args:
        store: that the run wrote to.
        algorithm: its preset; the latest run of any when empty.
        seed: the run's.

    Raises:
        DataError: there is no such run.
    """
    chain = _policies(store, find_reports(store, seed, algorithm or None)[0])
    return [
        StoredStage(
            policies=[policy.ref for policy in chain[: stage + 1]],
            rollouts=after.parents["rollouts"],
            verdicts=after.parents["verdicts"][0],
        )
        for stage, after in enumerate(chain[1:])
    ]


def stored_stage(store: Store, algorithm: str, seed: int, stage: int) -> StoredStage:
    """One stage of a stored run; ``stage`` counts from 0.

    Raises:
        DataError: there is no such run, or it has fewer stages.
    """
    stages = stored_stages(store, algorithm, seed)
    if stage >= len(stages):
        allowed = f"0 to {len(stages) - 1}" if len(stages) > 1 else "0"
        raise DataError(f"stage {stage}: the stored run has {len(stages)}; allowed: {allowed}.")
    return stages[stage]


def _policies(store: Store, report: Manifest) -> list[Manifest]:
    """The base policy first, the run's last policy last."""
    evaluated = [store.manifest(ref).parents["policy"][0] for ref in report.parents["evaluations"]]
    chain = [max((store.manifest(policy) for policy in evaluated), key=lambda policy: policy.facts["stage"])]
    while parents := chain[0].parents.get("policy"):
        chain.insert(0, store.manifest(parents[0]))
    return chain
