"""The door of the step that writes the report."""

from tasks.platform import Artifact, StoreHandle, once, step
from tasks.settings import RunSettings

VERSION = "7"


@step(VERSION)
def report(store: StoreHandle, evaluations: list[Artifact], seed: int, settings: RunSettings) -> Artifact:
    """One HTML page about a run, which is also the task's deck.

    The settings are an input, because runs that differ in them are two runs, also where they gave the same.
    """
    from tasks.report.step import write_report

    return once(store, "report", VERSION, write_report, evaluations, seed, settings)
