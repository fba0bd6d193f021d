"""Runs and artifacts of a store, found by what a user types."""

import json
from collections.abc import Iterable, Mapping

from tasks.artifacts import Store
from tasks.artifacts.records import ArtifactRef, Kind, Manifest
from tasks.cli.contents import KINDS, ref_of
from tasks.cli.formats import some
from tasks.errors import DataError
from tasks.stored.reports import find_reports

LATEST = "latest"
_FEWEST_CHARACTERS = 4
_CANDIDATES = 12


def find_artifact(store: Store, wanted: str) -> ArtifactRef:
    """The artifact that ``kind/digest`` names, its digest abbreviated, or the last policy of the latest run.

    Raises:
        DataError: there is none, or more than one; candidates are named.
    """
    if wanted == LATEST:
        return last_policy(store, find_reports(store)[0])
    kind = kind_of(wanted)
    found = match([ref.folder for ref in store.refs(kind)], wanted)
    return store.manifest(ref_of(found)).ref


def last_policy(store: Store, report: Manifest) -> ArtifactRef:
    """The policy that a run ended with: workflows give a report its evaluations in the order of stages."""
    return store.manifest(report.parents["evaluations"][-1]).parents["policy"][0]


def kind_of(wanted: str) -> Kind:
    """The kind in ``kind/digest``.

    Raises:
        DataError: it is none, or the digest is too short.
    """
    kind, _, digest = wanted.partition("/")
    if kind not in KINDS or not digest:
        raise DataError(
            f"{wanted!r}: names no artifact; allowed: kind/digest, as in policy/0123abcd, with one of the kinds "
            f"{', '.join(KINDS)}; or {LATEST}, the last policy of the latest run."
        )
    if len(digest) < _FEWEST_CHARACTERS:
        raise DataError(f"{wanted!r}: give at least {_FEWEST_CHARACTERS} characters of the digest.")
    return kind


def match(names: Iterable[str], wanted: str) -> str:
    """The one of the artifacts that ``kind/digest`` names, its digest abbreviated.

    Raises:
        DataError: there is none, or more than one; candidates are named.
    """
    kind = kind_of(wanted)
    candidates = sorted(name for name in names if name.startswith(f"{kind}/"))
    # Folders have 16 characters of a digest; somebody may have copied all of it.
    start = wanted[: len(kind) + 17]
    found = [name for name in candidates if name.startswith(start)]
    if len(found) == 1:
        return found[0]
    if found:
        raise DataError(f"{wanted!r}: names {len(found)} artifacts: {some(found, _CANDIDATES)}. Give more characters.")
    here = some(candidates, _CANDIDATES) if candidates else f"no {kind}"
    raise DataError(f"{wanted!r}: no such artifact in this store. There is {here}.")


def finished_runs(manifests: Mapping[str, Manifest], keep: int | None = None) -> list[list[str]]:
    """The artifacts that finished runs end with, run by run, the latest first.

    They are reports (several that were rendered from the same evaluations are one run), studies and comparisons of the
    laboratory.

    Args:
        manifests: of a whole store, by folder.
        keep: how many of every algorithm, mu and seed; all when None.
    """
    runs: dict[tuple[str, ...], dict[tuple[str, ...], list[str]]] = {}
    for name, manifest in sorted(manifests.items(), key=lambda found: -found[1].timings.finished):
        if manifest.kind in ("report", "study", "laboratory"):
            run = tuple(ref.digest for ref in manifest.parents.get("evaluations", ())) or (manifest.digest,)
            runs.setdefault(_same(manifests, manifest), {}).setdefault(run, []).append(name)
    return [names for of_same in runs.values() for names in list(of_same.values())[:keep]]


def _same(manifests: Mapping[str, Manifest], manifest: Manifest) -> tuple[str, ...]:
    """Equal for runs of which the later one takes the place of the earlier one."""
    if manifest.kind != "report":
        # Arms of the laboratory differ in more than preset, mu and seed.
        return (manifest.kind, json.dumps(manifest.settings, sort_keys=True), str(manifest.seed))
    evaluations = [manifests.get(ref.folder) for ref in manifest.parents.get("evaluations", ())]
    policies = [manifests.get(ref.folder) for found in evaluations if found for ref in found.parents.get("policy", ())]
    mu = max((int(policy.facts.get("updates_per_rollout", 0)) for policy in policies if policy), default=0)
    return ("report", str(manifest.facts.get("algorithm")), str(mu), str(manifest.seed))
