"""The commands of experiments: one runs a part of the laboratory, one compares the runs of a reproduction."""

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tasks.cli.pages import explain_write_errors, replace_between_marks
from tasks.errors import DataError
from tasks.experiments.arms import FULL, QUESTIONS, QUICK, Part

if TYPE_CHECKING:
    from tasks.store import Store


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
    from tasks.experiments.spread import Plan, run_part
    from tasks.store import Store

    form = QUICK if quick else FULL
    plan = Plan(part, form, config or Path(form.config), jobs or os.cpu_count() or 1, overrides)
    store = plan.settings(QUESTIONS[part].arms[0]).store
    run_part(plan, log_folder(store))
    if docs is not None:
        _renew_part(Store.open(store, create=False), part, docs)
        print(f"wrote {docs}")


def _renew_part(store: "Store", part: str, page: Path) -> None:
    """Renew what stands between a part's marks in a page, and the figure beside the page."""
    from tasks.experiments.laboratory import FIGURE, find_parts
    from tasks.experiments.result import laboratory_markdown

    result = find_parts(store).get(part)
    if result is None:
        raise DataError(f"{store.ref.uri}: no result of part {part} in this store. Run `mu-grpo laboratory {part}`.")
    figure = page.with_suffix("") / f"{part}.svg"
    figure.parent.mkdir(exist_ok=True)
    shutil.copyfile(Path(result.folder) / FIGURE, figure)
    made = f"{laboratory_markdown(result)}\n\n![accuracy over updates]({figure.parent.name}/{figure.name})\n"
    replace_between_marks(page, f"part {part}", made)


def log_folder(store: str) -> Path:
    """Return the folder of the runs' output: beside the artifacts, or beside the local copy of those on S3."""
    from tasks.store import Store

    return (Store.open(store).root if store.startswith("s3://") else Path(store).expanduser()) / "logs"


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
    from tasks.experiments.compare import compare_finished, load_runs
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
    result = compare_finished(opened, experiment, planned, runs)
    print(result)
    parts = list(find_parts(opened).values()) if page or docs else []
    if page is not None:
        with explain_write_errors(page, "--page"):
            page.mkdir(parents=True, exist_ok=True)
            write_page(page, result, runs, parts, {one.name: str(ref) for one, ref in found.items()})
        print(f"wrote {page}/report.html")
    if docs is not None:
        folder = docs.with_suffix("")
        shown = [markdown(result)]
        with explain_write_errors(folder, "--docs"):
            folder.mkdir(exist_ok=True)
            for name, one in make_figures(result, runs, parts).items():
                (folder / f"{name}.svg").write_text(one.svg, encoding="utf-8")
                shown.append(f"![{one.title}]({folder.name}/{name}.svg)")
        replace_between_marks(docs, "tables", "\n\n".join(shown) + "\n")
        print(f"wrote {docs}")
