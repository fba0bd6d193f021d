"""The ``mu-grpo`` command. It never imports torch or flytekit, and the rest when needed: it answers at once."""

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

from tasks.cli.experiments import laboratory, reproduction
from tasks.errors import DataError, SettingsError, UserError
from tasks.settings import RunSettings

if TYPE_CHECKING:
    from tasks.store import Store

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_show_locals=False)
app.command()(laboratory)
app.command()(reproduction)

Config = Annotated[Path, typer.Option("--config", help="A settings file such as configs/tiny-cpu.yaml.")]
StoreFolder = Annotated[
    str, typer.Option("--store", help="The folder, or the s3://bucket/prefix, that a run wrote to.")
]
Overrides = Annotated[
    list[str] | None, typer.Argument(help="Single fields to override, as in optimize.preset=relaxed seed=1.")
]
Seed = Annotated[int | None, typer.Option(help="Seed of the run; the latest run without it.")]
Algorithm = Annotated[str | None, typer.Option(help="Algorithm of the run, such as mu_grpo; any without it.")]
Json = Annotated[bool, typer.Option("--json", help="Print everything as JSON instead.")]
ARTIFACT = "kind/digest, as in policy/0123abcd, or latest for the last policy of the latest run"
_PIPED_WIDTH, _WIDE = 200, 220


@app.callback()
def main() -> None:
    """Mu-GRPO: large-stage reinforcement learning of language models."""


@app.command()
def plan(
    config: Config,
    overrides: Overrides = None,
    stages: Annotated[int, typer.Option(min=1, help="Stages of the workflow; mu_grpo has 4.")] = 4,
    gpus: Annotated[
        int | None, typer.Option(min=0, help="Time, storage and price on so many GPUs; 0: in one process here.")
    ] = None,
    accelerator: Annotated[
        str | None, typer.Option(help="Kind of GPU, such as nvidia-h200; the deployment's, or the first of the prices.")
    ] = None,
    prices: Annotated[Path | None, typer.Option(help="Prices and assumptions; configs/prices.yaml without it.")] = None,
    measured: Annotated[
        str | None, typer.Option(help="A store; the rates of its latest run take the place of assumed ones.")
    ] = None,
    plain: Annotated[bool, typer.Option("--json", help="Print the part of --gpus alone, as JSON.")] = False,
) -> None:
    """The plan of a run: stages, prompts, responses, updates, shards, memory, and every number that follows.

    A file with an experiment gives the plan of all its runs together.
    """
    from tasks.cli.plan import print_plan
    from tasks.cluster.plan import PRICES, plan_cluster

    planner = None
    if gpus is not None:
        planner = partial(plan_cluster, gpus=gpus, accelerator=accelerator, prices=prices or PRICES, store=measured)
    else:
        given = {"--accelerator": accelerator, "--prices": prices, "--measured": measured, "--json": plain or None}
        if named := [name for name, value in given.items() if value is not None]:
            raise SettingsError(f"{named[0]}: belongs to --gpus, which is not given. Add it, or leave both out.")
    print_plan(_console(), config, " ".join(overrides or []), stages, planner, plain)


@app.command()
def preflight(
    config: Config,
    overrides: Overrides = None,
    deployment: Annotated[
        Path | None,
        typer.Option(help="A file of configs/deployments; the one that MU_GRPO_DEPLOYMENT names without it."),
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            help="Kubeconfig of the cluster; that of KUBECONFIG, a pod's service account or ~/.kube/config without it."
        ),
    ] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig; its current one without it.")] = None,
    project: Annotated[str, typer.Option(help="Flyte's project.")] = "mu-grpo",
    domain: Annotated[str, typer.Option(help="Flyte's domain; the namespace is PROJECT-DOMAIN.")] = "development",
    flyte: Annotated[str | None, typer.Option(help="The address of Flyte's console; not asked without it.")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for which an answer is waited.")] = 10,
    plain: Json = False,
) -> None:
    """Asks a cluster whether a run can start, and names what stops it; changes nothing there. 1 when something does."""
    from tasks.cli.preflight import failed, preflight_json, preflight_table
    from tasks.cluster.preflight import Target
    from tasks.cluster.preflight import preflight as ask
    from tasks.settings.deployment import DeploymentSettings

    settings = RunSettings.read(config, " ".join(overrides or []))
    chosen = DeploymentSettings.read(deployment, "--deployment") if deployment else DeploymentSettings.current()
    target = Target(project, domain, kubeconfig, context, flyte, timeout)
    with Console(stderr=True).status("asking the cluster"):
        findings = ask(settings, chosen, target)
    if plain:
        print(preflight_json(findings, target))
    else:
        _console().print(preflight_table(findings, target))
    if failed(findings):
        raise typer.Exit(1)


@app.command()
def start(
    plan: Annotated[str, typer.Argument(help="A launch plan that is registered, such as smoke.")],
    given: Annotated[
        list[str] | None,
        typer.Option("--set", help="An input of the plan that is not fixed, as in seed=1; once for each."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Follow it to its end: a line for what changes, then its result.")
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            help="Config as pyflyte takes it; the file that FLYTECTL_CONFIG names, or ~/.flyte/config.yaml, without it."
        ),
    ] = None,
    project: Annotated[str, typer.Option(envvar="FLYTE_DEFAULT_PROJECT", help="Flyte's project.")] = "mu-grpo",
    domain: Annotated[str, typer.Option(envvar="FLYTE_DEFAULT_DOMAIN", help="Flyte's domain.")] = "development",
    version: Annotated[
        str | None, typer.Option(help="Version of the plan; the one registered last without it.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Name of the execution; Flyte makes one up without it. One that is there is followed."),
    ] = None,
) -> None:
    """Starts a launch plan on a cluster's Flyte and prints the link of its page. 1 when it fails, with --wait."""
    from tasks.cli.start import Options
    from tasks.cli.start import start as begin

    begin(plan, given or [], Options(config, project, domain, version, name), wait)


@app.command()
def algorithms() -> None:
    """Every preset of the objective: a row each, a column per component, and where it comes from."""
    from tasks.cli.algorithms import algorithms_table

    _print_wide(algorithms_table())


@app.command()
def data() -> None:
    """Known benchmarks and training sets: where they are from, what is the paper's about them, and what was chosen."""
    from tasks.cli.data import benchmarks_table, training_sets_table

    _print_wide(benchmarks_table(), training_sets_table())


@app.command(name="settings")
def settings_command(
    name: Annotated[str, typer.Argument(help="A setting or a section, as in optimize.objective.gate; else all.")] = "",
) -> None:
    """Every setting: its full name, type, default and meaning."""
    from tasks.cli.settings import settings_table

    _console().print(settings_table(name))


@app.command(name="inspect")
def inspect_command(
    store: StoreFolder,
    artifact: Annotated[
        str | None, typer.Argument(help="A run by its report, as report/0123abcd; else the latest.")
    ] = None,
    stage: Annotated[int, typer.Option(min=1, help="Number of the stage; 1 is the first one.")] = 1,
    seed: Seed = None,
    algorithm: Algorithm = None,
    prompt: Annotated[str | None, typer.Option(help="Show the group of this prompt_id only.")] = None,
    outcome: Annotated[str | None, typer.Option(help="Show responses with this outcome only, such as wrong.")] = None,
    groups: Annotated[int, typer.Option(min=1, help="How many groups to show.")] = 3,
    every: Annotated[bool, typer.Option("--all", help="Every response of a group, not the best and worst.")] = False,
) -> None:
    """The responses of a stage, of an unfinished run too: outcome, reward, advantage, length, log-probabilities."""
    from tasks.cli.inspect import Chosen, inspect_run, inspect_stage

    opened, chosen = _open(store), Chosen(prompt, outcome, groups, every)
    if artifact is not None:
        shown = inspect_run(opened, artifact, stage, chosen)
    else:
        shown = inspect_stage(opened, stage, seed, algorithm, chosen)
    _console().print(shown)


@app.command()
def lineage(
    artifact: Annotated[str, typer.Argument(help=f"{ARTIFACT}.")],
    store: StoreFolder,
    settings: Annotated[bool, typer.Option("--settings", help="Show the artifact's settings in full.")] = False,
    plain: Json = False,
) -> None:
    """The lineage of an artifact: its parents by role, with settings, seeds, commits, times and packages."""
    from tasks.cli.store import lineage_json, lineage_tables

    if plain:
        print(lineage_json(_open(store), artifact))
    else:
        _console().print(lineage_tables(_open(store), artifact, settings))


@app.command()
def check(
    store: StoreFolder,
    artifact: Annotated[
        str | None, typer.Argument(help=f"{ARTIFACT}, or run for the latest run; everything without it.")
    ] = None,
) -> None:
    """Verifies the digest of every file of artifacts and of all that they descend from; 1 when something is wrong."""
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
    delete: Annotated[bool, typer.Option("--delete", help="Delete what is listed.")] = False,
    older_than: Annotated[
        float,
        typer.Option(min=0, help="Hours; what is younger stays, and so does everything while a step is at work."),
    ] = 24,
    names: Annotated[bool, typer.Option("--names", help="Name everything that is listed.")] = False,
) -> None:
    """Lists what no finished run refers to: artifacts, unfinished work, and what dead processes left."""
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
        Path | None,
        typer.Option(help="The file to write, in place of the store; report.html here of a run that is not finished."),
    ] = None,
) -> None:
    """The page of a run and its summary: rendered again, or of a run that is not finished, as far as it came."""
    from tasks.cli.runs import report_of

    print(report_of(_open(store), seed, algorithm, page))


@app.command()
def compare(
    store: StoreFolder,
    seed: Annotated[int | None, typer.Option(help="Compare the runs of this seed only.")] = None,
) -> None:
    """Runs of a store side by side: settings that differ, accuracy at equal numbers of updates, and times."""
    from tasks.cli.runs import all_runs
    from tasks.report.compare import compare as side_by_side

    runs = all_runs(_open(store), seed)
    if len(runs) < 2:
        raise DataError(f"{store}: one finished run here; two or more are needed. Run another one in this store.")
    print(side_by_side(runs, Console().width if sys.stdout.isatty() else None))


def _open(store: str) -> "Store":
    from tasks.store import Store

    return Store.open(store, create=False)


def _print_wide(*tables: Table) -> None:
    """Print tables whose many columns would be slivers on a narrow terminal; `less -S` scrolls sideways."""
    console = Console(width=max(Console().width, _WIDE))
    for table in tables:
        console.print(table)


def _console() -> Console:
    """Return a console as wide as the terminal; wider in a pipe, where nothing needs to be wrapped."""
    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, _PIPED_WIDTH))


def run() -> None:
    """The entry point: errors that a user can fix are printed without a traceback."""
    try:
        app()
    except UserError as error:
        Console(stderr=True).print(Panel(escape(error.message), title="Error", title_align="left", border_style="red"))
        sys.exit(error.exit_code)
