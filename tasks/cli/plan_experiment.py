"""The plan of a reproduction: a row per model and system, and what all of its runs take together."""

import json
from collections.abc import Mapping
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
Key = tuple[str, str]
"""Model and system."""


def print_experiment(
    console: Console, config: Path, overrides: str, stages: int, pool: Pool | None, plain: bool
) -> None:
    """The plan of all runs; ``plain`` is the pool's part alone, as JSON."""
    experiment, store = read_experiment(config)
    first = experiment.seeds[0]
    runs = {(run.model, run.system): run for run in experiment.runs(store, overrides) if run.seed == first}
    tables = [] if plain else [experiment_table(experiment, runs, stages)]
    if pool is not None:
        plans = {key: pool.plan(run.settings, stages) for key, run in runs.items()}
        if plain:
            print(experiment_json(plans, len(experiment.seeds)))
        else:
            alternating = {key for key, run in runs.items() if run.settings.alternates}
            tables.append(costs_table(experiment, plans, alternating))
    for table in tables:
        print_whole(console, table)


def experiment_table(experiment: ExperimentSettings, runs: Mapping[Key, PlannedRun], stages: int) -> Table:
    """What every run does."""
    seeds = ", ".join(map(str, experiment.seeds))
    headings = ("preset", "updates", "mu", "refreshes", "responses", "tokens\nat most", "evaluation\nresponses")
    table = _table(f"{len(runs)} runs for each seed ({seeds}), {len(runs) * len(experiment.seeds)} in all", *headings)
    for key, run in runs.items():
        settings = run.settings
        responses, updates = stages * settings.responses_per_stage, stages * settings.updates_per_stage
        answers = sum(answers_of(settings, one) for one in settings.measures)
        longest = responses * settings.rollout.max_new_tokens
        numbers = (updates, settings.mu, updates // settings.mu, responses, longest, (stages + 1) * answers)
        table.add_row(*key, settings.optimize.preset, *(f"{number:,}" for number in numbers))
    if experiment.laboratory:
        parts = " and ".join(experiment.laboratory.parts)
        table.caption = f"Besides: part {parts} of the laboratory, {experiment.laboratory.updates} updates a study."
    return table


def costs_table(experiment: ExperimentSettings, plans: Mapping[Key, "ClusterPlan"], alternating: set[Key]) -> Table:
    """What they take, each and together."""
    first = next(iter(plans.values()))
    where = f"{first.gpus} GPU{'s' if first.gpus > 1 else ''} a run" if first.gpus else "one process"
    headings = ("wall-clock\nof a run", "GPU-hours", f"with {len(experiment.seeds)} seeds", first.currency)
    table = _table(f"time and price on {where}, estimated", *headings, caption=SHARED)
    # The other prediction of a plan is what the run is compared with.
    planned = {key: plan.grpo if key in alternating else plan.mu_grpo for key, plan in plans.items()}
    seeds = len(experiment.seeds)
    rows = [
        (one.wall_seconds, sum(one.gpu_seconds.values()) / 3600, sum(one.price.values())) for one in planned.values()
    ]
    for key, (wall, hours, price) in zip(planned, rows, strict=True):
        table.add_row(*key, duration(wall), f"{hours:,.1f}", f"{seeds * hours:,.1f}", f"{seeds * price:,.2f}")
    table.add_section()
    wall, hours, price = (seeds * sum(column) for column in zip(*rows, strict=True))
    table.add_row("all", "", f"{duration(wall)} one by one", "", f"{hours:,.1f}", f"{price:,.2f}")
    return table


def experiment_json(plans: Mapping[Key, "ClusterPlan"], seeds: int) -> str:
    """A plan per model and system, each of one run."""
    rows = [
        {"model": model, "system": system, "runs": seeds, **asdict(plan)} for (model, system), plan in plans.items()
    ]
    return json.dumps(rows, indent=1)


def _table(title: str, *headings: str, caption: str | None = None) -> Table:
    table = Table(
        title=title,
        caption=caption,
        box=box.SIMPLE_HEAD,
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        pad_edge=False,
    )
    for heading in ("model", "system"):
        table.add_column(heading, no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table
