"""The door of the step that writes the report."""

from flytekit import Deck

from tasks.artifacts import Store
from tasks.platform import Artifact, StoreHandle, step

VERSION = "3"


@step(VERSION, deck=True)
def report(store: StoreHandle, evaluations: list[Artifact], seed: int) -> Artifact:
    """One HTML page about a run, which is also the task's deck."""
    from tasks.report.step import write_report

    opened = Store(store, "report", VERSION)
    made = write_report(opened, evaluations, seed)
    Deck("report", (opened.path(made) / "report.html").read_text())
    return made
