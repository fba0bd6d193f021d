"""The door of the step that writes the report."""

from flytekit import Deck

from tasks.artifacts import Store
from tasks.platform import Artifact, StoreHandle, once, step

VERSION = "4"


@step(VERSION, deck=True)
def report(store: StoreHandle, evaluations: list[Artifact], seed: int) -> Artifact:
    """One HTML page about a run, which is also the task's deck."""
    from tasks.report.step import write_report

    made = once(store, "report", VERSION, write_report, evaluations, seed)
    Deck("report", (Store(store).path(made) / "report.html").read_text())
    return made
