"""The plan of a reproduction: a row per model and system, and what all of its runs take together."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table

from tasks.cli.plan import Pool
from tasks.cluster.steps import answers_of
from tasks.report.formats import duration
from tasks.report.tables import print_whole
from tasks.settings.experiment import ExperimentSettings, PlannedRun, read_experiment

if TYPE_CHECKING:  # a plan without GPUs answers before these are loaded
    from tasks.cluster.plan import ClusterPlan

SHARED = (
    "Steps that runs share, such as the base policy and its evaluation, are done once and counted in every run here."
)


def print_experiment(
    console: Console, config: Path, overrides: str, stages: int, pool: Pool | None, plain: bool
) -> None:
    """The plan of all runs; ``plain`` is the pool's part alone, as JSON."""
    experiment, store = read_experiment(config)
    runs = [run for run in experiment.runs(store, overrides) if run.seed == experiment.seeds[0]]
    seeds = len(experiment.seeds)
    if not plain:
        print_whole(console, _runs_table(experiment, runs, stages))
    if pool is None:
        return
    plans = [pool.plan(run.settings, stages) for run in runs]
    if plain:
        rows = [
            {"model": run.model, "system": run.system, "runs": seeds, **asdict(plan)}
            for run, plan in zip(runs, plans, strict=True)
        ]
        print(json.dumps(rows, indent=1))
    else:
        print_whole(console, _costs_table(runs, plans, seeds))


def _runs_table(experiment: ExperimentSettings, runs: Sequence[PlannedRun], stages: int) -> Table:
    """What every run does."""
    seeds = ", ".join(map(str, experiment.seeds))
    headings = ("preset", "updates", "mu", "refreshes", "responses", "tokens\nat most", "evaluation\nresponses")
    table = _table(f"{len(runs)} runs for each seed ({seeds}), {len(runs) * len(experiment.seeds)} in all", *headings)
    for run in runs:
        settings = run.settings
        responses, updates = stages * settings.responses_per_stage, stages * settings.updates_per_stage
        answers = sum(answers_of(settings, one) for one in settings.measures)
        longest = responses * settings.rollout.max_new_tokens
        numbers = (updates, settings.mu, updates // settings.mu, responses, longest, (stages + 1) * answers)
        table.add_row(run.model, run.system, settings.optimize.preset, *(f"{number:,}" for number in numbers))
    if experiment.laboratory:
        parts = " and ".join(experiment.laboratory.parts)
        table.caption = f"Besides: part {parts} of the laboratory, {experiment.laboratory.updates} updates a study."
    return table


def _costs_table(runs: Sequence[PlannedRun], plans: Sequence["ClusterPlan"], seeds: int) -> Table:
    """What they take, each and together."""
    gpus, currency = plans[0].gpus, plans[0].currency
    where = f"{gpus} GPU{'s' if gpus > 1 else ''} a run" if gpus else "one process"
    table = _table(
        f"time and price on {where}, estimated", "wall-clock\nof a run", "GPU-hours", f"with {seeds} seeds", currency
    )
    table.caption = SHARED
    totals = [0.0, 0.0, 0.0]
    for run, plan in zip(runs, plans, strict=True):
        # The other prediction of a plan is what the run is compared with.
        one = plan.grpo if run.settings.alternates else plan.mu_grpo
        hours = sum(one.gpu_seconds.values()) / 3600
        taken = (one.wall_seconds, hours, sum(one.price.values()))
        numbers = (f"{hours:,.1f}", f"{seeds * hours:,.1f}", f"{seeds * taken[2]:,.2f}")
        table.add_row(run.model, run.system, duration(one.wall_seconds), *numbers)
        totals = [total + seeds * amount for total, amount in zip(totals, taken, strict=True)]
    wall, hours, price = totals
    table.add_section()
    table.add_row("all", "", f"{duration(wall)} one by one", "", f"{hours:,.1f}", f"{price:,.2f}")
    return table


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    table.caption_justify = "left"
    for heading in ("model", "system"):
        table.add_column(heading, no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table
