"""The ``mu-grpo`` command. It never imports torch or flytekit, and the rest when needed: it answers at once."""

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel

from tasks.cli.data import data
from tasks.cli.laboratory import laboratory
from tasks.cli.pages import write_page, write_parts
from tasks.cli.reproduction import reproduction
from tasks.errors import DataError, SettingsError, UserError
from tasks.settings import RunSettings

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_show_locals=False)
app.command()(data)
app.command()(laboratory)
app.command()(reproduction)

Config = Annotated[Path, typer.Option("--config", help="A settings file such as configs/tiny-cpu.yaml.")]
StoreFolder = Annotated[
    str, typer.Option("--store", help="The folder, or the s3://bucket/prefix, that a run wrote to.")
]
ARTIFACT = "kind/digest, as in policy/0123abcd, or latest for the last policy of the latest run"
_PIPED_WIDTH = 200


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
    gpus: Annotated[
        int | None, typer.Option(min=0, help="Time, storage and price on so many GPUs; 0: in one process here.")
    ] = None,
    accelerator: Annotated[
        str | None, typer.Option(help="Which GPU, such as nvidia-h200; the deployment's, or the first of the prices.")
    ] = None,
    prices: Annotated[Path | None, typer.Option(help="Prices and assumptions; configs/prices.yaml without it.")] = None,
    measured: Annotated[
        str | None, typer.Option(help="A store; the rates of its latest run take the place of assumed ones.")
    ] = None,
    plain: Annotated[bool, typer.Option("--json", help="Print the part of --gpus alone, as JSON.")] = False,
) -> None:
    """What a run will do: stages, prompts, responses, updates, shards, memory, and every number that follows.

    Of a file with an experiment, what all of its runs do together.
    """
    from tasks.cli.plan import Pool, print_plan
    from tasks.cli.plan_experiment import print_experiment
    from tasks.settings.experiment import holds_experiment

    if gpus is None:
        given = {"--accelerator": accelerator, "--prices": prices, "--measured": measured, "--json": plain or None}
        if named := [name for name, value in given.items() if value is not None]:
            raise SettingsError(f"{named[0]}: belongs to --gpus, which is not given. Add it, or leave both out.")
    pool = None if gpus is None else Pool(gpus, accelerator, prices, measured)
    show = print_experiment if holds_experiment(config) else print_plan
    show(_console(), config, " ".join(overrides or []), stages, pool, plain)


@app.command()
def preflight(
    config: Config,
    overrides: Annotated[list[str] | None, typer.Argument(help="Single fields to override, as in seed=1.")] = None,
    deployment: Annotated[
        Path | None,
        typer.Option(help="A file of configs/deployments; the one that MU_GRPO_DEPLOYMENT names without it."),
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Of the cluster; kubectl's own, or this pod's service account, without it.")
    ] = None,
    context: Annotated[str | None, typer.Option(help="Of the kubeconfig; its current one without it.")] = None,
    project: Annotated[str, typer.Option(help="Flyte's project.")] = "mu-grpo",
    domain: Annotated[str, typer.Option(help="Flyte's domain; the namespace is PROJECT-DOMAIN.")] = "development",
    flyte: Annotated[str | None, typer.Option(help="The address of Flyte's console; not asked without it.")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for which an answer is waited.")] = 10,
    plain: Annotated[bool, typer.Option("--json", help="Print everything as JSON instead.")] = False,
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
        typer.Option(help="As of pyflyte; the file that FLYTECTL_CONFIG names, or ~/.flyte/config.yaml, without it."),
    ] = None,
    project: Annotated[str, typer.Option(envvar="FLYTE_DEFAULT_PROJECT", help="Flyte's project.")] = "mu-grpo",
    domain: Annotated[str, typer.Option(envvar="FLYTE_DEFAULT_DOMAIN", help="Flyte's domain.")] = "development",
    version: Annotated[str | None, typer.Option(help="Of the plan; the one registered last without it.")] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Of the execution; Flyte makes one up without it. One that is there is followed."),
    ] = None,
) -> None:
    """Starts a launch plan on a cluster's Flyte and prints the link of its page. 1 when it fails, with --wait."""
    from tasks.cli.start import Options
    from tasks.cli.start import start as begin

    begin(plan, given or [], Options(config, project, domain, version, name), wait)


@app.command()
def algorithms(
    markdown: Annotated[Path | None, typer.Option(help="Write the table to this file instead.")] = None,
) -> None:
    """Every preset of the objective: a row each, a column per component, and where it comes from."""
    from tasks.cli.algorithms import algorithms_table
    from tasks.report.tables import render_markdown

    if markdown is not None:
        write_parts(markdown, {"presets": render_markdown(algorithms_table()) + "\n"}, "--markdown")
        return
    # Narrower, twelve columns would be slivers; `less -S` scrolls sideways.
    Console(width=max(Console().width, 220)).print(algorithms_table())


@app.command(name="settings")
def settings_command(
    name: Annotated[str, typer.Argument(help="A setting or a section, as in optimize.objective.gate; else all.")] = "",
    markdown: Annotated[Path | None, typer.Option(help="Write the page of all settings to this file instead.")] = None,
) -> None:
    """Every setting: its full name, type, default and meaning."""
    from tasks.cli.settings import settings_table, settings_text

    if markdown is not None:
        write_parts(markdown, {"settings": settings_text()}, "--markdown")
        return
    _console().print(settings_table(name))


@app.command(name="inspect")
def inspect_command(
    store: StoreFolder,
    artifact: Annotated[
        str | None, typer.Argument(help="A run, as report/0123abcd, or a shard, as rollouts/0123abcd; else the latest.")
    ] = None,
    stage: Annotated[int, typer.Option(min=1, help="Whose rollouts; 1 is the first stage.")] = 1,
    seed: Annotated[int | None, typer.Option(help="Of the run; the latest run without it.")] = None,
    algorithm: Annotated[str | None, typer.Option(help="Of the run, such as mu_grpo; any without it.")] = None,
    prompt: Annotated[str | None, typer.Option(help="Show the group of this prompt_id only.")] = None,
    outcome: Annotated[str | None, typer.Option(help="Show responses with this outcome only, such as wrong.")] = None,
    groups: Annotated[int, typer.Option(min=1, help="How many groups to show.")] = 3,
    every: Annotated[bool, typer.Option("--all", help="Every response of a group, not the best and worst.")] = False,
) -> None:
    """The responses of a stage, of an unfinished run too: outcome, reward, advantage, length, log-probabilities."""
    from tasks.cli.inspect import Chosen, inspect_artifact, inspect_stage
    from tasks.store import Store

    opened, chosen = Store.open(store, create=False), Chosen(prompt, outcome, groups, every)
    if artifact is not None:
        _console().print(inspect_artifact(opened, artifact, stage, chosen))
    else:
        _console().print(inspect_stage(opened, stage, seed, algorithm, chosen))


@app.command()
def lineage(
    artifact: Annotated[str, typer.Argument(help=f"{ARTIFACT}.")],
    store: StoreFolder,
    settings: Annotated[bool, typer.Option("--settings", help="Show the artifact's settings in full.")] = False,
    plain: Annotated[bool, typer.Option("--json", help="Print everything as JSON instead.")] = False,
) -> None:
    """What an artifact was made from: its parents by role, with settings, seeds, commits, times and packages."""
    from tasks.cli.store import lineage_json, lineage_tables
    from tasks.store import Store

    opened = Store.open(store, create=False)
    if plain:
        print(lineage_json(opened, artifact))
    else:
        _console().print(lineage_tables(opened, artifact, settings))


@app.command()
def check(
    store: StoreFolder,
    artifact: Annotated[
        str | None, typer.Argument(help=f"{ARTIFACT}, or run for the latest run; everything without it.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Check the latest run of this seed.")] = None,
    algorithm: Annotated[str | None, typer.Option(help="Check the latest run of this algorithm.")] = None,
) -> None:
    """Verifies the digest of every file of artifacts and of all that they descend from; 1 when something is wrong."""
    from tasks.cli.store import check_tables
    from tasks.store import Store
    from tasks.stored.check import check_store

    began = time.monotonic()
    findings = check_store(Store.open(store, create=False), artifact, seed, algorithm)
    _console().print(check_tables(findings, time.monotonic() - began))
    if findings.faults:
        raise typer.Exit(1)


@app.command()
def gc(
    store: StoreFolder,
    delete: Annotated[bool, typer.Option("--delete", help="Delete what is listed.")] = False,
    keep: Annotated[
        int | None,
        typer.Option(min=1, help="Keep the latest N runs of the same settings, base policy and seed; all without it."),
    ] = None,
    older_than: Annotated[
        float,
        typer.Option(min=0, help="Hours; what is younger is spared, and so is all while a step is at work."),
    ] = 24,
    names: Annotated[bool, typer.Option("--names", help="Name everything that is listed.")] = False,
) -> None:
    """Lists what no kept run refers to: artifacts, unfinished work, and what dead processes left."""
    from tasks.cli.store import garbage_tables
    from tasks.store import Store
    from tasks.stored.garbage import delete_garbage, find_garbage

    opened = Store.open(store, create=False)
    garbage = find_garbage(opened, keep, older_than)
    if delete:
        garbage = delete_garbage(opened, garbage)
    _console().print(garbage_tables(garbage, older_than, delete, names))
    if garbage.items and not delete:
        options = f"{f' --keep {keep}' if keep else ''}{f' --older-than {older_than:g}' if older_than != 24 else ''}"
        print(f"delete it: mu-grpo gc --store {shlex.quote(store)}{options} --delete")


@app.command()
def report(
    store: StoreFolder,
    seed: Annotated[int | None, typer.Option(help="Of the run; the latest run without it.")] = None,
    algorithm: Annotated[str | None, typer.Option(help="Of the run, such as grpo; any without it.")] = None,
    page: Annotated[
        Path | None,
        typer.Option(help="The file to write, in place of the store; report.html here of a run that is not finished."),
    ] = None,
) -> None:
    """The page of a run and its summary: rendered again, or of a run that is not finished, as far as it came."""
    from tasks.cli.runs import report_of
    from tasks.store import Store

    print(report_of(Store.open(store, create=False), seed, algorithm, page))


@app.command()
def compare(
    store: StoreFolder,
    seed: Annotated[int | None, typer.Option(help="Compare the runs of this seed only.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write a table over all seeds to this file.")] = None,
) -> None:
    """Runs of a store side by side: settings that differ, accuracy at equal numbers of updates, and times."""
    from tasks.cli.runs import all_runs, results_page
    from tasks.report.compare import compare as side_by_side
    from tasks.store import Store

    runs = all_runs(Store.open(store, create=False), seed)
    if markdown is not None:
        write_page(markdown, results_page(runs), "--markdown")
        print(f"wrote {markdown}")
        return
    if len(runs) < 2:
        raise DataError(f"{store}: one finished run here; two or more are needed. Run another one in this store.")
    print(side_by_side(runs, Console().width if sys.stdout.isatty() else None))


def _console() -> Console:
    """Of the terminal's width; wide in a pipe, where nothing needs to be wrapped."""
    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, _PIPED_WIDTH))


def run() -> None:
    """The entry point: errors that a user can fix are printed without a traceback."""
    try:
        app()
    except UserError as error:
        Console(stderr=True).print(Panel(escape(error.message), title="Error", title_align="left", border_style="red"))
        sys.exit(error.exit_code)
