"""The command that shows a reproduction, finished or not."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from tasks.cli.pages import renew, writing


def reproduction(
    config: Annotated[Path, typer.Option(help="A file with an experiment, such as configs/reproduce-tiny.yaml.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Single fields to override in every run, as they were when it started.")
    ] = None,
    store: Annotated[str | None, typer.Option(help="Where the runs are; the file's without it.")] = None,
    page: Annotated[
        Path | None,
        typer.Option(help="A folder for the HTML page about the runs that are there, and its figures."),
    ] = None,
    docs: Annotated[
        Path | None,
        typer.Option(help="A Markdown page; between its marks stand tables and figures then."),
    ] = None,
) -> None:
    """Compares the runs of a reproduction that are finished, and names those that are missing."""
    from tasks.artifacts import Store
    from tasks.experiments.figures import make_figures
    from tasks.experiments.laboratory import find_parts
    from tasks.experiments.page import write_page as write_report
    from tasks.experiments.runs import find_reports
    from tasks.experiments.step import load_runs, result_of
    from tasks.experiments.tables import markdown
    from tasks.settings.experiment import read_experiment

    experiment, written = read_experiment(config)
    opened = Store.open(store or written, create=False)
    planned = experiment.runs(opened.ref.uri, " ".join(overrides or []))
    found = find_reports(opened, planned)
    runs = load_runs(opened, found)
    result = result_of(opened, experiment, planned, runs)
    print(result)
    if page is not None:
        with writing(page, "--page"):
            page.mkdir(parents=True, exist_ok=True)
            write_report(page, result, runs, find_parts(opened), {one.name: str(ref) for one, ref in found.items()})
        print(f"wrote {page}/report.html")
    if docs is not None:
        figures = {name: (one.title, one.svg) for name, one in make_figures(result, runs, find_parts(opened)).items()}
        renew(docs, "tables", f"{markdown(result)}\n{_beside(docs, figures)}\n")
        print(f"wrote {docs}")


def _beside(page: Path, figures: Mapping[str, tuple[str, str]]) -> str:
    """Writes figures, titles and SVG by name, into the folder that is named like the page; what shows them there."""
    folder = page.with_suffix("")
    with writing(folder, "--docs"):
        folder.mkdir(exist_ok=True)
        for name, (_, svg) in figures.items():
            (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
    return "\n\n".join(f"![{title}]({folder.name}/{name}.svg)" for name, (title, _) in figures.items())
