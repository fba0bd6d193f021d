"""The ``mu-grpo`` command. It never imports torch or flytekit, and the rest when needed: it answers at once."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel

from tasks.errors import DataError, UserError
from tasks.laboratory.arms import Part
from tasks.settings import RunSettings

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_show_locals=False)

Config = Annotated[Path, typer.Option("--config", help="A settings file such as configs/tiny-cpu.yaml.")]
StoreFolder = Annotated[Path, typer.Option("--store", help="The folder that a run wrote to.")]


@app.callback()
def main() -> None:
    """Mu-GRPO: large-stage reinforcement learning of language models."""


@app.command()
def plan(
    config: Config,
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Single fields to override, as in optimize.preset=relaxed seed=1.")
    ] = None,
    stages: Annotated[int, typer.Option(min=1, help="Stages of the workflow; mu_grpo has 4.")] = 4,
) -> None:
    """What a run will do: stages, prompts, responses, updates, shards, memory, and every number that follows."""
    from tasks.cli.plan import plan_tables

    settings = RunSettings.read(config, " ".join(overrides or []))
    console = Console()
    for table in plan_tables(settings, stages):
        console.print(table)


@app.command()
def algorithms(
    markdown: Annotated[Path | None, typer.Option(help="Write the table to this file instead.")] = None,
) -> None:
    """Every preset of the objective: a row each, a column per component, and where it comes from."""
    from tasks.cli.algorithms import algorithms_page, algorithms_table

    if markdown is not None:
        markdown.write_text(algorithms_page(), encoding="utf-8")
        print(f"wrote {markdown}")
        return
    # Narrower, twelve columns would be slivers; `less -S` scrolls sideways.
    Console(width=max(Console().width, 220)).print(algorithms_table())


@app.command(name="inspect")
def inspect_command(
    store: StoreFolder,
    stage: Annotated[int, typer.Option(min=1, help="Whose rollouts; 1 is the first stage.")] = 1,
    seed: Annotated[int | None, typer.Option(help="Of the run; the latest run without it.")] = None,
    algorithm: Annotated[str | None, typer.Option(help="Of the run, such as mu_grpo; any without it.")] = None,
    prompt: Annotated[str | None, typer.Option(help="Show the group of this prompt_id only.")] = None,
    outcome: Annotated[str | None, typer.Option(help="Show responses with this outcome only, such as wrong.")] = None,
    groups: Annotated[int, typer.Option(min=1, help="How many groups to show.")] = 3,
) -> None:
    """The responses of a stage, group by group, with outcome, reward, length and mean log-probability."""
    from tasks.artifacts import Store
    from tasks.cli.inspect import inspect_rollouts

    Console().print(inspect_rollouts(Store.open(store, create=False), stage, seed, algorithm, prompt, outcome, groups))


@app.command()
def report(
    store: StoreFolder,
    seed: Annotated[int | None, typer.Option(help="Of the run; the latest run without it.")] = None,
    algorithm: Annotated[str | None, typer.Option(help="Of the run, such as grpo; any without it.")] = None,
) -> None:
    """Renders the report of a run again and prints its summary."""
    from tasks.artifacts import Store
    from tasks.cli.runs import find_reports
    from tasks.report.step import summarise, write_report

    opened = Store.open(store, create=False)
    found = find_reports(opened, seed, algorithm)[0]
    made = write_report(opened, found.parents["evaluations"], found.seed)
    print(summarise(opened, made, []))


@app.command()
def compare(
    store: StoreFolder,
    seed: Annotated[int | None, typer.Option(help="Compare the runs of this seed only.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write a table over all seeds to this file.")] = None,
) -> None:
    """Runs of a store side by side: accuracy at equal numbers of updates, wall-clock, and what it was spent on."""
    from tasks.artifacts import Store
    from tasks.cli.runs import latest_runs, results_page
    from tasks.report.compare import compare as side_by_side

    runs = latest_runs(Store.open(store, create=False), seed)
    if markdown is not None:
        markdown.write_text(results_page(runs), encoding="utf-8")
        print(f"wrote {markdown}")
        return
    if len(runs) < 2:
        raise DataError(f"{store}: {len(runs)} run here; two or more are needed. `make compare` makes both.")
    print(side_by_side(runs))


@app.command()
def laboratory(
    part: Annotated[
        Part,
        typer.Argument(help="a: the clipping dilemma; b: where the harm is; c: threshold and stages; d: all presets."),
    ],
    quick: Annotated[bool, typer.Option(help="Everything in miniature, on one seed; proves nothing.")] = False,
    config: Annotated[Path | None, typer.Option(help="Settings; configs/laboratory.yaml without it.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs side by side; one per core without it.")] = None,
    overrides: Annotated[str, typer.Option(help="Single fields to override in every run.")] = "",
    docs: Annotated[Path | None, typer.Option(help="A page whose table and figure of this part are renewed.")] = None,
) -> None:
    """Runs a part of the laboratory for staleness: short training runs on the tiny policy, compared and tested."""
    from tasks.artifacts import Store
    from tasks.cli.laboratory import renew_page
    from tasks.laboratory.arms import EVALUATIONS, QUICK_EVALUATIONS, QUICK_UPDATES, UPDATES
    from tasks.laboratory.spread import Plan, run_part

    chosen = config or Path("configs/laboratory-quick.yaml" if quick else "configs/laboratory.yaml")
    store = Path(RunSettings.read(chosen, overrides).store)
    plan = Plan(part, chosen, quick, jobs or os.cpu_count() or 1, overrides)
    updates, evaluations = (QUICK_UPDATES, QUICK_EVALUATIONS) if quick else (UPDATES, EVALUATIONS)
    run_part(plan, updates, evaluations, store / "logs")
    if docs is not None:
        renew_page(Store.open(store, create=False), part, docs)
        print(f"wrote {docs}")


def run() -> None:
    """The entry point: errors that a user can mend are printed without a traceback."""
    try:
        app()
    except UserError as error:
        Console(stderr=True).print(Panel(escape(error.message), title="Error", title_align="left", border_style="red"))
        sys.exit(error.exit_code)
