"""Known data sets, each as a row."""

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from tasks.cli.pages import write_parts
from tasks.report.tables import render_markdown
from tasks.settings import BENCHMARKS, TRAINING_SETS, BenchmarkSettings, SourceSettings

_NOTHING = "-"
_GOLD = {"plain": "", "hashes": ", after ####", "boxed": ", in its box", "livecodebench": ""}


def benchmarks_table() -> Table:
    """Return the table of known benchmarks, with what the paper states and what was chosen here."""
    table = Table(box=box.SIMPLE_HEAD)
    headings = ("name", "source", "commit", "fields", "problems", "samples", "the paper", "chosen here")
    for heading in headings:
        table.add_column(heading, no_wrap=heading == "name", overflow="fold")
    for name, benchmark in BENCHMARKS.items():
        settings = BenchmarkSettings.parse({"name": name})
        samples = str(settings.samples_per_problem or "of the run")
        table.add_row(
            name,
            *_source(settings.source),
            str(settings.problems or "of the run"),
            f"{samples}{', greedy' if settings.greedy else ''}",
            benchmark.stated,
            benchmark.chosen or _NOTHING,
        )
    return table


def training_sets_table() -> Table:
    """Return the table of known training sets."""
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("name", "source", "commit", "fields", "rows", "about"):
        table.add_column(heading, no_wrap=heading == "name", overflow="fold")
    for name, one in TRAINING_SETS.items():
        table.add_row(name, *_source(SourceSettings.parse(one.source)), str(one.rows or _NOTHING), one.about)
    return table


def _source(source: SourceSettings | None) -> tuple[str, str, str]:
    if source is None:
        return "prompts, held out", _NOTHING, _NOTHING
    first, *others = source.files
    files = first + (f" and {len(others)} more" if others else "")
    identity = f", {source.id}" if source.id else ""
    fields = f"{source.prompt}, {source.answer}{_GOLD[source.gold]}{identity}"
    return f"{source.hub}: {files}", source.pinned[:12] or "looked up", fields


def data_parts() -> dict[str, str]:
    """Return the tables of docs/data.md, by the marks between which they stand."""
    tables = {"benchmarks": benchmarks_table(), "training sets": training_sets_table()}
    return {name: render_markdown(table) + "\n" for name, table in tables.items()}


def data(
    markdown: Annotated[Path | None, typer.Option(help="Write the tables to this file instead.")] = None,
) -> None:
    """Known benchmarks and training sets: where they are from, what is the paper's about them, and what was chosen."""
    if markdown is not None:
        write_parts(markdown, data_parts(), "--markdown")
        return
    console = Console(width=max(Console().width, 220))
    for table in (benchmarks_table(), training_sets_table()):
        console.print(table)
