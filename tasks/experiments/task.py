"""Flyte tasks that compare runs: a reproduction, and a part of the laboratory."""

from typing import NamedTuple

from tasks.artifacts import Store
from tasks.experiments.result import LaboratoryResult, ReproductionResult
from tasks.platform import Artifact, StoreHandle, always, once, step
from tasks.settings import ExperimentSettings, RunSettings

VERSION = "3"


class OpenReproduction(NamedTuple):
    """The runs of a reproduction with their settings checked, and their store."""

    store: StoreHandle
    experiment: ExperimentSettings
    runs: list[RunSettings]
    """Seed by seed, model by model."""
    laboratory: list[RunSettings]
    """What the runs of the laboratory share; empty without it."""


@always
def open_reproduction(store: str, experiment: ExperimentSettings, overrides: str) -> OpenReproduction:
    """Resolve and check the settings of every run before the first one starts.

    Raises:
        SettingsError: what is wrong, and in which run.
    """
    opened = Store.open(store)
    return OpenReproduction(
        store=opened.ref,
        experiment=experiment,
        runs=[one.settings for one in experiment.runs(store, overrides)],
        laboratory=[experiment.laboratory_settings(store, overrides)] if experiment.laboratory else [],
    )


@step(VERSION)
def reproduction(
    store: StoreHandle, experiment: ExperimentSettings, reports: list[Artifact], laboratory: list[Artifact]
) -> Artifact:
    """Make tables, tests, figures and one page about all runs; the page is also the task's deck."""
    from tasks.experiments.step import compare_runs

    return once(store, "reproduction", VERSION, compare_runs, experiment, reports, laboratory)


@always
def close_reproduction(store: StoreHandle, result: Artifact) -> ReproductionResult:
    """Return the tables that a reproduction ends with."""
    from tasks.experiments.step import load_result

    return load_result(Store(store), result)


@step(VERSION)
def laboratory(store: StoreHandle, part: str, studies: list[Artifact]) -> Artifact:
    """Make the table and figure of a part; ``studies`` holds the runs arm by arm, and the seeds of each in order."""
    from tasks.experiments.laboratory import compare_arms

    return once(store, "laboratory", VERSION, compare_arms, part, studies)


@always
def close_laboratory(store: StoreHandle, result: Artifact) -> LaboratoryResult:
    """Return the table that a part ends with."""
    from tasks.experiments.laboratory import load_result

    return load_result(Store(store), result)
