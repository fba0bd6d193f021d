"""Tasks that compare runs: of a reproduction and of the laboratory. Pods of a run do not load this module."""

from typing import NamedTuple

from tasks.errors import DataError
from tasks.experiments.result import LaboratoryResult, ReproductionResult
from tasks.flyte.decorators import Logic, step, uncached
from tasks.flyte.inputs import Artifact, StoreHandle
from tasks.report.summary import RunSummary
from tasks.settings import ExperimentSettings, RunSettings
from tasks.store import Store


class OpenReproduction(NamedTuple):
    """The runs of a reproduction with their settings checked, and their store."""

    store: StoreHandle
    experiment: ExperimentSettings
    runs: list[RunSettings]
    """Settings of the runs, ordered by seed and then by model."""
    laboratory: list[RunSettings]
    """Settings that the runs of the laboratory share; empty without it."""


@uncached
def open_reproduction(store: str, experiment: ExperimentSettings, overrides: str) -> OpenReproduction:
    """Resolve and check the settings of every run before the first one starts.

    Raises:
        SettingsError: a setting of a run is wrong; the message names both.
    """
    opened = Store.open(store)
    return OpenReproduction(
        store=opened.ref,
        experiment=experiment,
        runs=[one.settings for one in experiment.runs(store, overrides)],
        laboratory=[experiment.laboratory_settings(store, overrides)] if experiment.laboratory else [],
    )


@uncached
def find_reports(
    store: StoreHandle, experiment: ExperimentSettings, overrides: str, ended: list[RunSummary]
) -> list[Artifact]:
    """Find the reports of all runs, in the order of the experiment, by their settings.

    Raises:
        DataError: a report is missing.
    """
    from tasks.experiments.runs import find_reports as find

    opened = Store(store)
    planned = experiment.runs(opened.ref.uri, overrides)
    found = find(opened, planned)
    if missing := [run.name for run in planned if run not in found]:
        raise DataError(f"{opened.ref.uri}: no report of {'; '.join(missing)}. Start the reproduction again.")
    return [found[run] for run in planned]


@step("6")
def reproduction(
    store: StoreHandle, experiment: ExperimentSettings, reports: list[Artifact], laboratory: list[Artifact]
) -> Logic[Artifact]:
    """Compare all runs in tables, tests, figures and one page, which is also the task's deck."""
    from tasks.experiments.compare import compare_runs

    return compare_runs


@uncached
def close_reproduction(store: StoreHandle, result: Artifact) -> ReproductionResult:
    """Return the tables of a reproduction."""
    return ReproductionResult.load(Store(store), result)


@step("4")
def laboratory(store: StoreHandle, part: str, studies: list[Artifact]) -> Logic[Artifact]:
    """Compare the runs of one part in a table and a figure.

    ``studies`` holds the runs arm by arm, and the seeds of each arm in order.
    """
    from tasks.experiments.laboratory import compare_arms

    return compare_arms


@uncached
def close_laboratory(store: StoreHandle, result: Artifact) -> LaboratoryResult:
    """Return the table of a part of the laboratory."""
    return LaboratoryResult.load(Store(store), result)
