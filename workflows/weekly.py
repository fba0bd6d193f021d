"""Mu-GRPO again with another seed every week, for a schedule; see launch_plans.py.

pyflyte run workflows/weekly.py weekly --inputs-file configs/tiny-cpu.yaml --kickoff 2026-11-20
"""

from datetime import datetime

from tasks.flyte.decorators import named, workflow
from tasks.flyte.ends import seed_of_week
from tasks.report.summary import RunSummary
from workflows.inputs import inputs_of
from workflows.mu_grpo import mu_grpo


@workflow
@inputs_of(mu_grpo, without=("seed", "overrides"))
def weekly(kickoff: datetime, **settings: object) -> RunSummary:
    """A run of mu_grpo whose seed is that of the week."""
    made: RunSummary = mu_grpo(seed=named(seed_of_week(kickoff=kickoff), "seed"), **settings)
    return named(made, "mu-grpo")
