"""The ``mu-grpo`` command.

Starting it imports neither torch nor flytekit; a command imports what it needs.
"""

import shlex
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from tasks.cli.experiments import OverridesOption, laboratory, reproduction
from tasks.errors import DataError, SettingsError, UserError
from tasks.process.logs import replace_unencodable_text
from tasks.settings import RunSettings
from tasks.settings.run import STAGES

if TYPE_CHECKING:
    from tasks.store import Store

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_show_locals=False)
app.command()(laboratory)
app.command()(reproduction)

Config = Annotated[Path, typer.Option("--config", help="Settings file, such as configs/tiny-cpu.yaml.")]
StoreFolder = Annotated[str, typer.Option("--store", help="Store of the run: a folder or s3://bucket/prefix.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(help="Single fields to override, as in optimize.preset=relaxed seed=1.")
]
Seed = Annotated[int | None, typer.Option(help="Seed of the run; default: that of the latest run.")]
Algorithm = Annotated[str | None, typer.Option(help="Algorithm of the run, such as mu_grpo; default: any.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and no tables.")]
ARTIFACT = "kind/digest, as in policy/0123abcd, or latest for the last policy of the latest run"
_PIPED_WIDTH, _WIDE = 200, 220


@app.callback()
def main() -> None:
    """Mu-GRPO: large-stage reinforcement learning of language models."""


@app.command()
def plan(
    config: Config,
    overrides: Overrides = None,
    text: OverridesOption = "",
    stages: Annotated[
        int, typer.Option(min=1, help=f"Number of stages of the workflow; mu_grpo has {STAGES}.")
    ] = STAGES,
    gpus: Annotated[
        int | None, typer.Option(min=0, help="Estimate time, storage and price on this many GPUs; 0: on this machine.")
    ] = None,
    accelerator: Annotated[
        str | None,
        typer.Option(help="Kind of GPU, such as nvidia-h200; default: as in the deployment, or the first in --prices."),
    ] = None,
    prices: Annotated[Path | None, typer.Option(help="Prices and assumptions; default: configs/prices.yaml.")] = None,
    measured: Annotated[str | None, typer.Option(help="Store; rates of its latest run replace assumed rates.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the estimates of --gpus, as JSON.")] = False,
) -> None:
    """Show the plan of a run before it starts: stages, prompts, responses, updates, shards, memory, and more.

    For a file with an experiment, show the plan of all its runs together.
    """
    from tasks.cli.plan import print_plan
    from tasks.cluster.plan import plan_cluster

    planner = None
    if gpus is not None:
        planner = partial(plan_cluster, gpus=gpus, accelerator=accelerator, prices=prices, store=measured)
    else:
        options = {"--accelerator": accelerator, "--prices": prices, "--measured": measured, "--json": as_json or None}
        if given := [name for name, value in options.items() if value is not None]:
            raise SettingsError(f"{given[0]}: needs --gpus, which is not given. Add --gpus, or remove {given[0]}.")
    print_plan(_console(), config, " ".join([*(overrides or []), text]), stages, planner, as_json)


@app.command()
def preflight(
    config: Config,
    overrides: Overrides = None,
    text: OverridesOption = "",
    deployment: Annotated[
        Path | None, typer.Option(help="File of configs/deployments; default: the file in MU_GRPO_DEPLOYMENT.")
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="Kubeconfig; default: KUBECONFIG, the service account of a pod, or ~/.kube/config."),
    ] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig; default: the current one.")] = None,
    project: Annotated[str, typer.Option(help="Project of Flyte.")] = "mu-grpo",
    domain: Annotated[str, typer.Option(help="Domain of Flyte; the namespace is PROJECT-DOMAIN.")] = "development",
    flyte: Annotated[str | None, typer.Option(help="URL of Flyte's console; default: Flyte is not checked.")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for an answer.")] = 10,
    as_json: Json = False,
) -> None:
    """Check whether a run can start on a cluster, and name what prevents it. Changes nothing in the cluster.

    The exit code is 1 if something prevents a run.
    """
    from tasks.cli.preflight import failed, preflight_json, preflight_table
    from tasks.cluster.api import Target
    from tasks.cluster.preflight import preflight as ask
    from tasks.settings.deployment import DeploymentSettings

    pods = DeploymentSettings.read(deployment, "--deployment") if deployment else DeploymentSettings.current()
    # Launch plans use the deployment's store.
    store = [f"store={pods.store}"] if pods.store else []
    settings = RunSettings.read(config, " ".join([*store, *(overrides or []), text]))
    target = Target(project, domain, kubeconfig, context, flyte, timeout)
    with Console(stderr=True).status("asking the cluster"):
        findings = ask(settings, pods, target)
    if as_json:
        print(preflight_json(findings, target))
    else:
        _console().print(preflight_table(findings, target))
    if failed(findings):
        raise typer.Exit(1)


@app.command()
def start(
    plan: Annotated[str, typer.Argument(help="Name of a registered launch plan, such as smoke.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option("--set", help="Input of the plan that is not fixed, as in seed=1; may be repeated."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Follow the execution to its end: print every change, then the result.")
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(help="Config file of pyflyte; default: the file in FLYTECTL_CONFIG, or ~/.flyte/config.yaml."),
    ] = None,
    project: Annotated[str, typer.Option(envvar="FLYTE_DEFAULT_PROJECT", help="Project of Flyte.")] = "mu-grpo",
    domain: Annotated[str, typer.Option(envvar="FLYTE_DEFAULT_DOMAIN", help="Domain of Flyte.")] = "development",
    version: Annotated[str | None, typer.Option(help="Version of the plan; default: the latest.")] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Name of the execution; default: chosen by Flyte. If it exists, --wait only follows it."),
    ] = None,
    overwrite_cache: Annotated[
        bool,
        typer.Option("--overwrite-cache", help="Ask the store again, and make missing and damaged artifacts again."),
    ] = False,
) -> None:
    """Start a launch plan on the Flyte of a cluster, and print a link to its execution.

    With --wait, the exit code is 1 if the execution fails.
    """
    from tasks.cli.start import Options
    from tasks.cli.start import start as begin

    begin(plan, inputs or [], Options(config, project, domain, version, name, overwrite_cache), wait)


@app.command()
def algorithms() -> None:
    """Show a table of all presets of the objective, with their formulas and sources."""
    from tasks.cli.algorithms import algorithms_table

    _print_wide(algorithms_table())


@app.command()
def data() -> None:
    """Show tables of known benchmarks and training sets: sources, statements of the paper, and choices made here."""
    from tasks.cli.algorithms import benchmarks_table, training_sets_table

    _print_wide(benchmarks_table(), training_sets_table())


@app.command(name="settings")
def settings_command(
    name: Annotated[
        str, typer.Argument(help="Setting or section, as in optimize.objective.gate or learning_rate; default: all.")
    ] = "",
) -> None:
    """Show the full name, type, default and meaning of settings."""
    from tasks.cli.settings import settings_table

    _console().print(settings_table(name))


@app.command(name="inspect")
def inspect_command(
    store: StoreFolder,
    artifact: Annotated[
        str | None, typer.Argument(help="Report of the run, as in report/0123abcd; default: the latest run.")
    ] = None,
    stage: Annotated[int, typer.Option(min=1, help="Number of the stage, from 1.")] = 1,
    seed: Seed = None,
    algorithm: Algorithm = None,
    prompt: Annotated[str | None, typer.Option(help="Show only the group of this prompt_id.")] = None,
    outcome: Annotated[str | None, typer.Option(help="Show only responses with this outcome, such as wrong.")] = None,
    groups: Annotated[int, typer.Option(min=1, help="Largest number of groups to show.")] = 3,
    every: Annotated[
        bool, typer.Option("--all", help="Show every response of a group, not only the best and the worst.")
    ] = False,
) -> None:
    """Show responses of a stage with outcome, reward, advantage, length and log-probabilities.

    The run may be unfinished.
    """
    from tasks.cli.inspect import ResponseFilter, inspect_run, inspect_stage

    opened, chosen = _open(store), ResponseFilter(prompt, outcome, groups, every)
    if artifact is None:
        tables = inspect_stage(opened, stage, seed, algorithm, chosen)
    elif seed is None and algorithm is None:
        tables = inspect_run(opened, artifact, stage, chosen)
    else:
        raise DataError(f"{artifact} with --seed or --algorithm; allowed: the report alone, or the options without it.")
    _console().print(tables)


@app.command()
def lineage(
    artifact: Annotated[str, typer.Argument(help=f"{ARTIFACT}.")],
    store: StoreFolder,
    settings: Annotated[bool, typer.Option("--settings", help="Show all settings of the artifact.")] = False,
    as_json: Json = False,
) -> None:
    """Show the lineage of an artifact: its parents by name, with seeds, facts, commits and times, and its packages."""
    from tasks.cli.store import lineage_json, lineage_tables

    if as_json:
        print(lineage_json(_open(store), artifact))
    else:
        _console().print(lineage_tables(_open(store), artifact, settings))


@app.command()
def check(
    store: StoreFolder,
    artifact: Annotated[
        str | None, typer.Argument(help=f"{ARTIFACT}, or run for the latest run; default: all artifacts.")
    ] = None,
) -> None:
    """Check the digests of all files of artifacts and of their lineage.

    The exit code is 1 if a file is damaged or missing.
    """
    from tasks.cli.store import check_tables
    from tasks.stored.check import check_store

    began = time.monotonic()
    findings = check_store(_open(store), artifact)
    _console().print(check_tables(findings, time.monotonic() - began))
    if findings.faults:
        raise typer.Exit(1)


@app.command()
def gc(
    store: StoreFolder,
    delete: Annotated[bool, typer.Option("--delete", help="Delete everything that is listed.")] = False,
    older_than: Annotated[
        float,
        typer.Option(min=0, help="Hours; younger items stay. All artifacts stay while a step or a local run goes on."),
    ] = 24,
    names: Annotated[bool, typer.Option("--names", help="Show the name of every item.")] = False,
) -> None:
    """List what no finished run refers to: artifacts, unfinished work, and files of dead processes."""
    from tasks.cli.store import garbage_tables
    from tasks.stored.garbage import delete_garbage, find_garbage

    opened = _open(store)
    garbage = find_garbage(opened, older_than)
    if delete:
        garbage = delete_garbage(opened, garbage)
    _console().print(garbage_tables(garbage, older_than, delete, names))
    if garbage.items and not delete:
        options = f" --older-than {older_than:g}" if older_than != 24 else ""
        print(f"delete it: mu-grpo gc --store {shlex.quote(store)}{options} --delete")


@app.command()
def report(
    store: StoreFolder,
    seed: Seed = None,
    algorithm: Algorithm = None,
    page: Annotated[
        Path | None, typer.Option(help="File to write; default: the store, or ./report.html for an unfinished run.")
    ] = None,
) -> None:
    """Render the page of a run again and print its summary, also for an unfinished run."""
    from tasks.cli.runs import report_of

    print(report_of(_open(store), seed, algorithm, page))


@app.command()
def compare(
    store: StoreFolder,
    seed: Annotated[int | None, typer.Option(help="Compare only runs with this seed.")] = None,
) -> None:
    """Compare the runs of a store: settings that differ, accuracy after equal numbers of updates, and times."""
    from tasks.cli.runs import all_runs
    from tasks.report.compare import compare as side_by_side

    runs = all_runs(_open(store), seed)
    if len(runs) < 2:
        of_seed, fix = ("", "") if seed is None else (f" with seed {seed}", ", or leave --seed out")
        found = f"only one finished run{of_seed} in this store; two are needed"
        raise DataError(f"{store}: {found}. Start another run in it{fix}.")
    print(side_by_side(runs, Console().width if sys.stdout.isatty() else None))


def _open(store: str) -> "Store":
    from tasks.store import Store

    return Store.open(store, create=False)


def _print_wide(*tables: Table) -> None:
    """Print tables with many columns wider than a narrow terminal; ``less -S`` scrolls sideways."""
    console = Console(width=max(Console().width, _WIDE))
    for table in tables:
        console.print(table)


def _console() -> Console:
    """Return a console as wide as the terminal, or wider for a pipe, where lines need no wrapping."""
    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, _PIPED_WIDTH))


def run() -> None:
    """Run the command; errors that a user can fix are printed without a traceback."""
    replace_unencodable_text()
    try:
        app()
    except UserError as error:
        Console(stderr=True).print(Panel(escape(error.message), title="Error", title_align="left", border_style="red"))
        sys.exit(error.exit_code)
