"""Finished runs of a store, found by their reports."""

import json
from collections.abc import Mapping
from typing import Any

from tasks.artifacts import Store
from tasks.artifacts.records import ArtifactRef, Manifest
from tasks.errors import DataError
from tasks.settings.base import determining

RUNS = "runs"
"""The folder of runs' records, each named by its report's abbreviated digest."""


def find_reports(store: Store, seed: int | None = None, algorithm: str | None = None) -> list[Manifest]:
    """Manifests of the reports, the latest first.

    Raises:
        DataError: there is none.
    """
    found = [
        manifest
        for manifest in store.manifests("report")
        if seed in (None, manifest.seed) and algorithm in (None, manifest.facts["algorithm"])
    ]
    if not found:
        named = (("seed", seed), ("algorithm", algorithm))
        wanted = ", ".join(f"{name} {value}" for name, value in named if value is not None)
        which = f"no finished run{f' with {wanted}' if wanted else ''} in this store"
        raise DataError(f"{store.ref.uri}: {which}. Run it, or name another.")
    return found


def run_settings(store: Store, report: Manifest) -> dict[str, Any]:
    """The settings of the run that a report is about, as far as they change results; empty where they are not noted."""
    if report.settings:
        return report.settings
    # A report of an earlier release has none: they are in the run's record alone.
    text = store.read_note(f"{RUNS}/{report.digest[:16]}.json")
    return {} if text is None else determining(json.loads(text)["settings"])


def run_key(store: Store, report: Manifest) -> str:
    """Equal for reports that were rendered of the same run."""
    evaluations = [ref.digest for ref in report.parents.get("evaluations", ())]
    return json.dumps([run_settings(store, report), evaluations or report.digest], sort_keys=True)


def finished_runs(manifests: Mapping[str, Manifest], keep: int | None = None) -> list[list[str]]:
    """The artifacts that finished runs end with, run by run, the latest first.

    They are reports (several that were rendered of the same run are one), studies, comparisons of the
    laboratory and reproductions.

    Args:
        manifests: of a whole store, by folder.
        keep: how many that differ in nothing but what they gave; all when None.
    """
    runs: dict[tuple[str, ...], dict[tuple[str, ...], list[str]]] = {}
    for name, manifest in sorted(manifests.items(), key=lambda found: -found[1].timings.finished):
        if manifest.kind in ("report", "study", "laboratory", "reproduction"):
            run = tuple(ref.digest for ref in manifest.parents.get("evaluations", ())) or (manifest.digest,)
            runs.setdefault(_same(manifests, manifest), {}).setdefault(run, []).append(name)
    return [names for of_same in runs.values() for names in list(of_same.values())[:keep]]


def _same(manifests: Mapping[str, Manifest], manifest: Manifest) -> tuple[str, ...]:
    """Equal for runs of which the later one takes the place of the earlier one."""
    if manifest.kind != "report":
        # Arms of the laboratory differ in more than preset, mu and seed.
        return (manifest.kind, json.dumps(manifest.settings, sort_keys=True), str(manifest.seed))
    evaluations = [manifests.get(ref.folder) for ref in manifest.parents.get("evaluations", ())]
    evaluated = [ref for found in evaluations if found for ref in found.parents.get("policy", ())]
    policies = [manifests.get(ref.folder) for ref in evaluated]
    mu = max((int(policy.facts.get("updates_per_rollout", 0)) for policy in policies if policy), default=0)
    base = _base(manifests, evaluated[0]).digest if evaluated else ""
    own = json.dumps([manifest.settings, manifest.facts.get("other_settings")], sort_keys=True)
    return ("report", base, str(manifest.facts.get("algorithm")), str(mu), str(manifest.seed), own)


def _base(manifests: Mapping[str, Manifest], policy: ArtifactRef) -> ArtifactRef:
    """The policy that a run began with, as far as its policies are there."""
    while (manifest := manifests.get(policy.folder)) and (parents := manifest.parents.get("policy")):
        policy = parents[0]
    return policy
