"""The door of the step that writes the report."""

from tasks.platform import Artifact, StoreHandle, once, step

VERSION = "7"


@step(VERSION)
def report(store: StoreHandle, evaluations: list[Artifact], seed: int) -> Artifact:
    """One HTML page about a run, which is also the task's deck."""
    from tasks.report.step import write_report

    return once(store, "report", VERSION, write_report, evaluations, seed)
