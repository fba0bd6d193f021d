"""The command that shows a reproduction, finished or not."""

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
    from tasks.experiments.compare import load_runs, result_of
    from tasks.experiments.figures import make_figures
    from tasks.experiments.laboratory import find_parts
    from tasks.experiments.page import write_page
    from tasks.experiments.result import markdown
    from tasks.experiments.runs import find_reports
    from tasks.settings.experiment import read_experiment
    from tasks.store import Store

    experiment, written = read_experiment(config)
    opened = Store.open(store or written, create=False)
    planned = experiment.runs(opened.ref.uri, " ".join(overrides or []))
    found = find_reports(opened, planned)
    runs = load_runs(opened, found)
    result = result_of(opened, experiment, planned, runs)
    print(result)
    parts = list(find_parts(opened).values()) if page or docs else []
    if page is not None:
        with writing(page, "--page"):
            page.mkdir(parents=True, exist_ok=True)
            write_page(page, result, runs, parts, {one.name: str(ref) for one, ref in found.items()})
        print(f"wrote {page}/report.html")
    if docs is not None:
        folder = docs.with_suffix("")
        shown = [markdown(result)]
        with writing(folder, "--docs"):
            folder.mkdir(exist_ok=True)
            for name, one in make_figures(result, runs, parts).items():
                (folder / f"{name}.svg").write_text(one.svg, encoding="utf-8")
                shown.append(f"![{one.title}]({folder.name}/{name}.svg)")
        renew(docs, "tables", "\n\n".join(shown) + "\n")
        print(f"wrote {docs}")
