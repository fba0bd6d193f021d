"""Finished runs of a store, found by their reports."""

import json
from dataclasses import dataclass
from typing import Any

from tasks.artifacts import Store
from tasks.artifacts.layout import RUNS
from tasks.artifacts.lineage import Lineage, ancestry
from tasks.artifacts.records import Manifest
from tasks.errors import DamagedError, DataError
from tasks.settings.base import determining


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


@dataclass(frozen=True)
class StoredRun:
    """A finished run, read from its report."""

    report: Manifest
    evaluations: list[Manifest]
    """Those of the report, in the order of its stages."""
    evaluated: list[Manifest]
    """The policies that they are about, in the same order."""
    policies: list[Manifest]
    """The base policy, and those after every stage, another run's among them."""


def run_of(store: Store, report: Manifest) -> StoredRun:
    """Return the run of a report.

    Raises:
        ArtifactError: a policy or an evaluation of the run is missing.
    """
    found = ancestry(store, [report.ref], ("evaluations", "policy"))
    for why in found.missing.values():
        raise DamagedError(why)
    evaluated = found.evaluated(report)
    last = max(evaluated, key=lambda policy: policy.known_facts["stage"])
    return StoredRun(report, list(found.parents_of(report, "evaluations")), evaluated, found.policies(last))


def run_settings(store: Store, report: Manifest) -> dict[str, Any]:
    """Return the settings of a report's run, as far as they change results; empty where they are not noted."""
    if report.settings:
        return report.settings
    # A report of an earlier release has none: they are in the run's record alone.
    text = store.read_note(f"{RUNS}/{report.digest[:16]}.json")
    return {} if text is None else determining(json.loads(text)["settings"])


def run_key(store: Store, report: Manifest) -> str:
    """Return a key that is equal for reports that were rendered of the same run."""
    evaluations = [ref.digest for ref in report.parents.get("evaluations", ())]
    return json.dumps([run_settings(store, report), evaluations or report.digest], sort_keys=True)


def finished_runs(lineage: Lineage, keep: int | None = None) -> list[list[str]]:
    """Return the artifacts that finished runs end with, run by run, the latest first.

    They are reports (several that were rendered of the same run are one), studies, comparisons of the
    laboratory and reproductions.

    Args:
        lineage: the artifacts of a whole store.
        keep: how many runs of those that differ in nothing but what they gave; all when None.
    """
    runs: dict[tuple[str, ...], dict[tuple[str, ...], list[str]]] = {}
    for name, manifest in sorted(lineage.manifests.items(), key=lambda found: -found[1].timings.finished):
        if manifest.kind in ("report", "study", "laboratory", "reproduction"):
            run = tuple(ref.digest for ref in manifest.parents.get("evaluations", ())) or (manifest.digest,)
            runs.setdefault(_same(lineage, manifest), {}).setdefault(run, []).append(name)
    return [names for of_same in runs.values() for names in list(of_same.values())[:keep]]


def _same(lineage: Lineage, manifest: Manifest) -> tuple[str, ...]:
    """Return a key that is equal for runs of which the later one takes the place of the earlier one."""
    if manifest.kind != "report":
        # Arms of the laboratory differ in more than preset, mu and seed.
        return (manifest.kind, json.dumps(manifest.settings, sort_keys=True), str(manifest.seed))
    policies, facts = lineage.evaluated(manifest), manifest.known_facts
    mu = max((int(policy.known_facts.get("updates_per_rollout", 0)) for policy in policies), default=0)
    base = lineage.policies(policies[0])[0].digest if policies else ""
    own = json.dumps([manifest.settings, facts.get("other_settings")], sort_keys=True)
    return ("report", base, str(facts.get("algorithm")), str(mu), str(manifest.seed), own)
