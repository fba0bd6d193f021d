"""Flyte task that writes the report."""

from tasks.platform import Artifact, once, step
from tasks.platform.inputs import Keyed, ReportInputs

VERSION = "8"


@step(VERSION)
def report(inputs: Keyed[ReportInputs], evaluations: list[Artifact]) -> Artifact:
    """One HTML page about a run, which is also the task's deck.

    The run's settings are an input, because runs that differ in them are two runs, also where they gave the same.
    """
    from tasks.report.step import write_report

    return once(
        inputs.store, "report", VERSION, write_report, evaluations, inputs.seed, inputs.settings, inputs.trained_from
    )
