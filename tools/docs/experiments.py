"""Tables and figures of docs/laboratory.md and docs/reproduction.md.

python -m tools.docs.experiments laboratory a                                      (make laboratory-a)
python -m tools.docs.experiments reproduction --config configs/reproduce-tiny.yaml (make reproduce)
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from tasks.errors import UserError
from tasks.experiments.compare import compare_finished
from tasks.experiments.figures import make_figures
from tasks.experiments.laboratory import FIGURE, find_parts
from tasks.experiments.parallel import run_part
from tasks.experiments.questions import FULL, QUICK
from tasks.experiments.result import (
    ReproductionResult,
    arms_table,
    describe_missing,
    how_to_read,
    laboratory_legend,
    tables,
)
from tasks.experiments.runs import load_run, match_reports
from tasks.settings.experiment import Part, read_experiment
from tasks.store import Store
from tools.docs import DOCS
from tools.docs.sections import find_section, render_markdown, replace_section

app = typer.Typer()


@app.command()
def laboratory(part: Part, quick: bool = False, overrides: str = "", page: Path = DOCS / "laboratory.md") -> None:
    """Run a part of the laboratory as ``mu-grpo laboratory`` does, and write its table and figure into the page."""
    find_section(page, f"part {part}")  # The runs take hours.
    size = QUICK if quick else FULL
    result = run_part(part, size, Path(size.config), os.cpu_count() or 1, overrides)
    text = f"{render_markdown(arms_table(result))}\n\n{laboratory_legend(result)}"
    curves = (Path(result.folder) / FIGURE).read_text(encoding="utf-8")
    _write(page, f"part {part}", text, {part: ("accuracy over updates", curves)})


@app.command()
def reproduction(
    config: Annotated[Path, typer.Option(help="File with an experiment.")], page: Path = DOCS / "reproduction.md"
) -> None:
    """Compare the finished runs of a reproduction, and write the tables and figures into the page."""
    experiment, place = read_experiment(config)
    store = Store.open(place, create=False)
    planned = experiment.runs(store.ref.uri)
    reports = match_reports(store, planned)
    runs = [load_run(store, run, report) for run, report in zip(planned, reports, strict=True) if report]
    result = compare_finished(store, experiment, runs)
    figures = make_figures(result, runs, find_parts(store, [report for report in reports if report]))
    _write(page, "tables", reproduction_text(result), {name: (one.title, one.svg) for name, one in figures.items()})


def reproduction_text(result: ReproductionResult) -> str:
    """Return the missing runs and all tables as Markdown."""
    parts = [describe_missing(result)] if result.missing else []
    for title, table in tables(result).values():
        parts += [f"**{title}**", render_markdown(table)]
    return "\n\n".join([*parts, how_to_read(result)]) + "\n"


def _write(page: Path, section: str, text: str, figures: Mapping[str, tuple[str, str]]) -> None:
    """Replace a section of a page; figures, with title and SVG by name, go into the page's folder."""
    folder = page.with_suffix("")
    folder.mkdir(exist_ok=True)
    for file, (_, svg) in figures.items():
        (folder / f"{file}.svg").write_text(svg, encoding="utf-8")
    images = [f"![{title}]({folder.name}/{file}.svg)" for file, (title, _) in figures.items()]
    replace_section(page, section, "\n\n".join([text, *images]) + "\n")
    print(f"wrote {page}")


if __name__ == "__main__":
    try:
        app()
    except UserError as error:
        sys.exit(error.message)
