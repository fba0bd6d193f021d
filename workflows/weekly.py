"""Workflow for a schedule that runs Mu-GRPO with another seed every week; see launch_plans.py.

pyflyte run workflows/weekly.py weekly --inputs-file configs/tiny-cpu.yaml --kickoff 2026-11-20
"""

from datetime import datetime
from typing import Unpack

from tasks.flyte.decorators import named, unpack_options, workflow
from tasks.flyte.inputs import SECTIONS, RunSections
from tasks.flyte.uncached import seed_of_week
from tasks.report.summary import RunSummary
from tasks.settings import Given, OperationSettings
from workflows.mu_grpo import mu_grpo


@workflow
@unpack_options(**SECTIONS)
def weekly(
    kickoff: datetime,
    operation: Given[OperationSettings] = Given[OperationSettings](),
    **sections: Unpack[RunSections],
) -> RunSummary:
    """Run mu_grpo with a seed that follows from the week."""
    summary: RunSummary = mu_grpo(seed=named(seed_of_week(kickoff=kickoff), "seed"), operation=operation, **sections)
    return named(summary, "mu-grpo")
