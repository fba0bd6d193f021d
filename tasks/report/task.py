"""Flyte task that writes the report."""

from tasks.platform import Artifact, once, step
from tasks.platform.inputs import Keyed, ReportInputs

VERSION = "6"


@step(VERSION)
def report(inputs: Keyed[ReportInputs], evaluations: list[Artifact]) -> Artifact:
    """One HTML page about a run, which is also the task's deck."""
    from tasks.report.step import write_report

    return once(inputs.store, "report", VERSION, write_report, evaluations, inputs.seed)
