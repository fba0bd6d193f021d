"""One self-contained HTML page about a reproduction."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from pyarrow.csv import write_csv
from rich.table import Table

from tasks.experiments.figures import CaptionedFigure, make_figures
from tasks.experiments.result import (
    ALL,
    LEVEL,
    MEAN,
    Cause,
    LaboratoryResult,
    PairedTest,
    ReproductionResult,
    Speed,
    how_to_read,
    p_value,
    table_of,
    tables,
)
from tasks.experiments.runs import SystemRun
from tasks.formats import MISSING, percent, percent_range, points
from tasks.report.look import render
from tasks.settings.base import flat
from tasks.store.layout import PAGE_FILE


def write_page(
    folder: Path,
    result: ReproductionResult,
    runs: Sequence[SystemRun],
    laboratory: Sequence[LaboratoryResult],
    reports: Mapping[str, str],
) -> None:
    """Write ``report.html``, and every figure into ``figures/`` as SVG and CSV; for arguments see ``render_page``."""
    figures = make_figures(result, runs, laboratory)
    (folder / PAGE_FILE).write_text(render_page(result, runs, figures, reports), encoding="utf-8")
    (folder / "figures").mkdir()
    for name, one in figures.items():
        (folder / f"figures/{name}.svg").write_text(one.svg, encoding="utf-8")
        write_csv(one.data, folder / f"figures/{name}.csv")


def render_page(
    result: ReproductionResult,
    runs: Sequence[SystemRun],
    figures: Mapping[str, CaptionedFigure],
    reports: Mapping[str, str],
) -> str:
    """Return the page: figures are inline, nothing is loaded from elsewhere, and there is no script.

    Args:
        result: the tables.
        runs: the runs that they are made from.
        figures: what ``make_figures`` gives for the same.
        reports: where the report of a run is, by the run's name.
    """
    different, shared = _settings(result, runs)
    return render(
        "experiments/page.html.j2",
        result=result,
        count=len(runs),
        figures=partial(_named, figures),
        baselines=[system for system in result.systems if system != result.reference],
        sentences=[_sentence(result, test) for test in result.tests if test.benchmark == MEAN],
        tables={name: (title, _cells(table)) for name, (title, table) in tables(result).items()},
        measured=_cells(_measured(result.causes)),
        different=_cells(different),
        shared=_cells(shared),
        runs=_cells(_runs(runs, reports)),
        margin=points(result.margin).lstrip("+"),
        how_to_read=how_to_read(result),
    )


Cells = list[list[tuple[str, bool]]]
"""Rows of a table, the first of which are headings: every cell, and whether it is text."""


def _cells(table: Table) -> Cells:
    columns = table.columns
    rows = [[str(one.header) for one in columns], *zip(*(map(str, one.cells) for one in columns), strict=True)]
    texts = [one.justify == "left" for one in columns]
    return [list(zip(row, texts, strict=True)) for row in rows]


def _named(figures: Mapping[str, CaptionedFigure], kind: str, model: str = "") -> dict[str, CaptionedFigure]:
    """Return the figures of a kind, such as ``accuracy``, of one model."""
    return {name: one for name, one in figures.items() if name.split("-")[0] == kind and one.model == model}


def _sentence(result: ReproductionResult, test: PairedTest) -> str:
    """Tell in one sentence how the reference stands to a baseline."""
    if test.equivalent:
        verdict = "matches"
    elif test.p_bootstrap < LEVEL:
        verdict = "exceeds" if test.difference > 0 else "falls below"
    else:
        verdict = "is not told apart from"
    cells = {one.system: one for one in result.cells if (one.model, one.benchmark) == (test.model, test.benchmark)}
    found = [cells[system] for system in (result.reference, test.baseline) if system in cells]
    levels = " against ".join(f"{percent(one.accuracy)} ({percent_range(one.low, one.high)})" for one in found)
    speeds = [_speed(one) for one in result.speeds if (one.model, one.baseline) == (test.model, test.baseline)]
    return (
        f"{'Over all models' if test.model == ALL else f'With {test.model}'}, {result.reference} {verdict} "
        f"{test.baseline}: {levels + ', ' if levels else ''}{points(test.difference)} points ({points(test.low)} to "
        f"{points(test.high)}; p {p_value(test.p_bootstrap)}){'; speed: ' if speeds else ''}{', '.join(speeds)}."
    )


def _speed(speed: Speed) -> str:
    if speed.ratio is None:
        return f"{speed.name} not on every seed"
    known = [one for one in speed.by_seed if one is not None]
    spread = f" ({min(known):.2f} to {max(known):.2f} over seeds)" if len(known) > 1 else ""
    return f"{speed.name} {speed.ratio:.2f}x{spread}"


def _measured(causes: Sequence[Cause]) -> Table:
    """Return how every cause is measured; where that differs between models and baselines, of each."""
    ways: dict[tuple[str, str], list[str]] = {}
    for one in causes:
        ways.setdefault((one.name, one.how), []).append(f"{one.model}, against {one.baseline}")
    names = [name for name, _ in ways]
    rows = [
        (name if names.count(name) == 1 else f"{name}; {'; '.join(where)}", how) for (name, how), where in ways.items()
    ]
    return table_of("cause", "how it is measured", left=2, rows=rows)


def _settings(result: ReproductionResult, runs: Sequence[SystemRun]) -> tuple[Table, Table]:
    """Return the settings that differ between systems with a model, and those that they share."""
    different = table_of("model", "setting", *result.systems, left=2 + len(result.systems))
    shared = table_of("model", "setting", "value", left=3)
    for model in result.models:
        first = {run.system: flat(run.history.settings) for run in reversed(runs) if run.model == model}
        for name in dict.fromkeys(name for settings in first.values() for name in settings):
            values = {system: str(settings.get(name, MISSING)) for system, settings in first.items()}
            if len(set(values.values())) == 1:
                shared.add_row(model, name, next(iter(values.values())))
            else:
                different.add_row(model, name, *(values.get(system, MISSING) for system in result.systems))
    return different, shared


def _runs(runs: Sequence[SystemRun], reports: Mapping[str, str]) -> Table:
    rows = [
        (
            run.model,
            run.system,
            str(run.seed),
            percent(run.history.evaluated[-1].accuracy.value),
            run.history.evaluated[-1].policy.digest[:16],
            reports.get(run.name, MISSING),
        )
        for run in runs
    ]
    return table_of("model", "system", "seed", "accuracy", "last policy", "report", left=2, rows=rows)
