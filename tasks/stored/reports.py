"""Finished runs of a store, found by their reports, and what is in their stages."""

import json
from dataclasses import dataclass
from typing import Any

from tasks.errors import DamagedError, DataError
from tasks.store import ArtifactRef, Store
from tasks.store.lineage import Lineage, ancestry
from tasks.store.records import Manifest


def find_reports(store: Store, seed: int | None = None, algorithm: str | None = None) -> list[Manifest]:
    """Return the manifests of the reports, the latest first.

    Raises:
        DataError: there is none.
    """
    found = [
        manifest
        for manifest in store.manifests("report")
        if seed in (None, manifest.seed) and algorithm in (None, manifest.known_facts["algorithm"])
    ]
    if not found:
        named = (("seed", seed), ("algorithm", algorithm))
        wanted = ", ".join(f"{name} {value}" for name, value in named if value is not None)
        which = f"no finished run{f' with {wanted}' if wanted else ''} in this store"
        raise DataError(f"{store.ref.uri}: {which}. Run it, or name another.")
    return found


def run_of(store: Store, report: Manifest) -> Lineage:
    """Return the lineage of a report by its evaluations and policies alone.

    Raises:
        ArtifactError: a policy or an evaluation of the run is missing.
    """
    found = ancestry(store, [report.ref], ("evaluations", "policy"))
    for why in found.missing.values():
        raise DamagedError(why)
    return found


@dataclass(frozen=True)
class Responses:
    """Rollouts that were verified together, and what was made of them."""

    title: str
    rollouts: list[ArtifactRef]
    verdicts: ArtifactRef | None
    policy: Manifest | None
    """The policy that learned from them."""
    latest: float = 0.0
    """The time when the last of these was made, in Unix seconds."""

    @classmethod
    def learned(cls, title: str, policy: Manifest) -> "Responses":
        """Return the responses that a policy learned from."""
        rollouts, verdicts = policy.parents["rollouts"], policy.parents["verdicts"][0]
        return cls(title, rollouts, verdicts, policy, policy.timings.finished)


@dataclass(frozen=True)
class StoredStage:
    """A stage of a run."""

    policies: list[ArtifactRef]
    """The base policy and those after every stage before this one; the last one sampled the rollouts."""
    rollouts: list[ArtifactRef]
    verdicts: ArtifactRef


def stored_stages(store: Store, algorithm: str, seed: int) -> list[StoredStage]:
    """Return the stages of the latest finished run of a preset, of any when it is empty.

    Raises:
        DataError: there is no such run.
    """
    report = find_reports(store, seed, algorithm or None)[0]
    run = run_of(store, report)
    policies = run.policies(max(run.evaluated(report), key=lambda policy: policy.known_facts["stage"]))
    return [
        StoredStage(
            [policy.ref for policy in policies[:stage]], after.parents["rollouts"], after.parents["verdicts"][0]
        )
        for stage, after in enumerate(policies[1:], start=1)
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


def run_key(report: Manifest) -> str:
    """Return a key that is equal for reports that were rendered of the same run."""
    evaluations = [ref.digest for ref in report.parents.get("evaluations", ())]
    return json.dumps([report.settings, evaluations or report.digest], sort_keys=True)


def finished_runs(lineage: Lineage, keep: int | None = None) -> list[list[str]]:
    """Return the artifacts that finished runs end with, run by run, the latest first.

    They are reports (several that were rendered of the same run are one), studies, comparisons of the
    laboratory and reproductions.

    Args:
        lineage: the artifacts of a whole store.
        keep: how many runs of those that differ in nothing but what they gave; all when None.
    """
    runs: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for name, manifest in sorted(lineage.manifests.items(), key=lambda found: -found[1].timings.finished):
        if manifest.kind in ("report", "study", "laboratory", "reproduction"):
            run = tuple(ref.digest for ref in manifest.parents.get("evaluations", ())) or (manifest.digest,)
            runs.setdefault(_same(lineage, manifest), {}).setdefault(run, []).append(name)
    return [names for of_same in runs.values() for names in list(of_same.values())[:keep]]


def _same(lineage: Lineage, manifest: Manifest) -> str:
    """Return a key that is equal for runs of which the later one takes the place of the earlier one."""
    key: list[Any] = [manifest.kind, manifest.settings, manifest.seed]
    if manifest.kind == "report":
        policies, facts = lineage.evaluated(manifest), manifest.known_facts
        mu = max((policy.known_facts.get("updates_per_rollout", 0) for policy in policies), default=0)
        base = lineage.policies(policies[0])[0].digest if policies else ""
        key += [base, facts.get("algorithm"), mu, facts.get("other_settings")]
    return json.dumps(key, sort_keys=True)
