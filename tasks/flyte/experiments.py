"""The tasks of experiments, which compare many runs; the pods of a single run do not import this module."""

from typing import NamedTuple

from tasks.errors import DataError, SettingsError
from tasks.experiments.questions import QUESTIONS
from tasks.experiments.result import LaboratoryResult, ReproductionResult
from tasks.flyte.decorators import Logic, step, uncached
from tasks.flyte.inputs import Artifact, StoreHandle
from tasks.flyte.uncached import open_store
from tasks.report.summary import RunSummary
from tasks.settings import ExperimentSettings, RunSettings
from tasks.store import Store
from tasks.stored.check import check_bucket


class OpenReproduction(NamedTuple):
    """The runs of a reproduction with checked settings, and their store."""

    store: StoreHandle
    experiment: ExperimentSettings
    runs: list[RunSettings]
    """Settings of the runs, in the order of seeds and then of models."""
    laboratory: list[RunSettings]
    """Settings that the runs of the laboratory share; empty without a laboratory."""


@uncached
def open_reproduction(store: str, experiment: ExperimentSettings, overrides: str) -> OpenReproduction:
    """Resolve and check the settings of every run, also of the laboratory's arms, before the first one starts.

    Raises:
        SettingsError: the settings of a run are wrong; the message names the run or the arm.
    """
    opened, laboratory = open_store(store), list[RunSettings]()
    if plan := experiment.laboratory:
        laboratory = [experiment.laboratory_settings(store, overrides)]
        for arm in (arm for part in plan.parts for arm in QUESTIONS[part].arms):
            try:
                arm.settings(laboratory[0].given(), plan.updates)
            except SettingsError as error:
                raise SettingsError(f"experiment.laboratory, arm {arm.name!r}: {error.message}") from None
    return OpenReproduction(
        store=opened.ref,
        experiment=experiment,
        runs=[run.settings for run in experiment.runs(store, overrides)],
        laboratory=laboratory,
    )


@uncached
def match_reports(
    store: StoreHandle, experiment: ExperimentSettings, overrides: str, ended: list[RunSummary]
) -> list[Artifact]:
    """Find the reports of the finished runs by their settings, in the order of the experiment.

    Raises:
        DataError: a run has no report.
    """
    from tasks.experiments.runs import match_reports

    opened = Store(store)
    planned = experiment.runs(opened.ref.uri, overrides)
    reports = match_reports(opened, planned)
    if missing := [run.name for run, report in zip(planned, reports, strict=True) if report is None]:
        raise DataError(f"{opened.ref.uri}: no report of {'; '.join(missing)}. Start the reproduction again.")
    return [report for report in reports if report]


@step("19")
def reproduction(
    store: StoreHandle, experiment: ExperimentSettings, reports: list[Artifact], laboratory: list[Artifact]
) -> Logic[Artifact]:
    """Compare all runs in tables, tests, figures and a page, which is also the task's deck."""
    from tasks.experiments.compare import compare_runs

    return compare_runs


@uncached
def close_reproduction(store: StoreHandle, result: Artifact) -> ReproductionResult:
    """Return the tables of a reproduction."""
    check_bucket(opened := Store(store), [result])
    return ReproductionResult.load(opened, result)


@step("9")
def laboratory(store: StoreHandle, part: str, studies: list[Artifact]) -> Logic[Artifact]:
    """Compare the runs of one part in a table and a figure.

    ``studies`` holds the runs in the order of arms and then of seeds.
    """
    from tasks.experiments.laboratory import compare_arms

    return compare_arms


@uncached
def close_laboratory(store: StoreHandle, result: Artifact) -> LaboratoryResult:
    """Return the table of a part of the laboratory."""
    check_bucket(opened := Store(store), [result])
    return LaboratoryResult.load(opened, result)
