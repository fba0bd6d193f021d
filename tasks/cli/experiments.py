"""Commands of experiments: run a part of the laboratory, and compare the runs of a reproduction."""

import os
from pathlib import Path
from typing import Annotated

import typer

from tasks.experiments.questions import FULL, QUICK
from tasks.process.interruption import STOPPED
from tasks.settings.experiment import Part

OverridesOption = Annotated[str, typer.Option("--overrides", help="Overrides in one text, as pyflyte run takes them.")]


def laboratory(
    part: Annotated[
        Part,
        typer.Argument(help="a: the clipping dilemma; b: harmful tokens; c: threshold and stages; d: all presets."),
    ],
    quick: Annotated[bool, typer.Option(help="Run a miniature on one seed, which proves nothing.")] = False,
    config: Annotated[
        Path | None,
        typer.Option(help="Settings file; default in configs/: laboratory.yaml, with --quick laboratory-quick.yaml."),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Number of parallel runs; default: one per core.")] = None,
    overrides: Annotated[str, typer.Option(help="Single fields to override in every run.")] = "",
) -> None:
    """Run a part of the laboratory for staleness: short training runs of the tiny policy, with statistical tests."""
    from tasks.experiments.parallel import run_part

    size = QUICK if quick else FULL
    try:
        run_part(part, size, config or Path(size.config), jobs or os.cpu_count() or 1, overrides)
    except KeyboardInterrupt:
        print(STOPPED, flush=True)
        raise SystemExit(130) from None


def reproduction(
    config: Annotated[Path, typer.Option(help="File with an experiment, such as configs/reproduce-tiny.yaml.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Single fields to override in every run, as when the runs were started.")
    ] = None,
    text: OverridesOption = "",
    store: Annotated[str | None, typer.Option(help="Store of the runs; default: the store in the file.")] = None,
    page: Annotated[
        Path | None, typer.Option(help="Folder for an HTML page about the finished runs, and its figures.")
    ] = None,
) -> None:
    """Compare the finished runs of a reproduction, and name the missing ones."""
    from tasks.cli.runs import explain_write_errors
    from tasks.experiments.compare import compare_finished
    from tasks.experiments.laboratory import find_parts
    from tasks.experiments.page import write_page
    from tasks.experiments.runs import load_run, match_reports
    from tasks.settings.experiment import read_experiment
    from tasks.store import Store

    experiment, default_store = read_experiment(config)
    opened = Store.open(store or default_store, create=False)
    planned = experiment.runs(opened.ref.uri, " ".join([*(overrides or []), text]))
    reports = match_reports(opened, planned)
    runs = [load_run(opened, run, report) for run, report in zip(planned, reports, strict=True) if report]
    result = compare_finished(opened, experiment, runs)
    print(result)
    if page is not None:
        with explain_write_errors(page):
            page.mkdir(parents=True, exist_ok=True)
            write_page(page, result, runs, find_parts(opened, [report for report in reports if report]))
        print(f"wrote {page}/report.html")
