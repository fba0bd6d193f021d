"""The finished runs of a reproduction in a store, whether or not the reproduction itself came to its end."""

from collections.abc import Sequence
from typing import Any

from tasks.artifacts import ArtifactRef, Store
from tasks.artifacts.records import Manifest
from tasks.laboratory.result import LaboratoryResult
from tasks.laboratory.step import load_result
from tasks.settings.experiment import PlannedRun
from tasks.stored.reports import run_settings


def find_reports(store: Store, planned: Sequence[PlannedRun]) -> dict[PlannedRun, ArtifactRef]:
    """The report of every planned run that is finished, by the settings of the run.

    Raises:
        ArtifactError: the store cannot be read.
    """
    noted = [(report.ref, run_settings(store, report)) for report in store.manifests("report")]
    found = {}
    for one in planned:
        wanted = one.settings.determining()
        fitting = [ref for ref, settings in noted if settings and _fits(wanted, settings)]
        if fitting:
            found[one] = fitting[0]
    return found


def find_parts(store: Store) -> list[LaboratoryResult]:
    """The latest comparison of every part of the laboratory that the store has.

    Raises:
        ArtifactError: the store cannot be read.
    """
    latest = {one.facts["part"]: one.ref for one in sorted(store.manifests("laboratory"), key=_finished)}
    return [load_result(store, latest[part]) for part in sorted(latest)]


def _finished(manifest: Manifest) -> float:
    return manifest.timings.finished


def _fits(wanted: Any, found: Any) -> bool:
    """Whether settings are those that were planned; what a plan leaves open, as a commit, a run looked up."""
    if wanted in (None, ""):
        return True
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(_fits(value, found.get(name)) for name, value in wanted.items())
    if isinstance(wanted, list):
        both = isinstance(found, list) and len(wanted) == len(found)
        return both and all(_fits(one, other) for one, other in zip(wanted, found, strict=True))
    return bool(wanted == found)
