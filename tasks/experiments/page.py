"""The self-contained HTML page of a reproduction."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from rich.table import Table

from tasks.experiments.figures import OF_THE_PAPER, make_figures
from tasks.experiments.result import (
    ALL,
    LEVEL,
    MEAN,
    LaboratoryResult,
    PairedTest,
    ReproductionResult,
    Speed,
    arms_table,
    how_to_read,
    p_value,
    tables,
)
from tasks.experiments.runs import SystemRun
from tasks.formats import points, share, share_with_interval
from tasks.report.drawing import Picture, write_pictures
from tasks.report.history import format_values
from tasks.report.tables import number_table
from tasks.report.theme import render
from tasks.settings.base import flat, names_that_differ
from tasks.store.layout import PAGE_FILE


def write_page(
    folder: Path, result: ReproductionResult, runs: Sequence[SystemRun], laboratory: Sequence[LaboratoryResult]
) -> None:
    """Write ``report.html``, and every figure into ``figures/`` as SVG and CSV; see ``render_page``."""
    figures = make_figures(result, runs, laboratory)
    (folder / PAGE_FILE).write_text(render_page(result, runs, laboratory, figures), encoding="utf-8")
    write_pictures(folder, figures)


def render_page(
    result: ReproductionResult,
    runs: Sequence[SystemRun],
    laboratory: Sequence[LaboratoryResult],
    figures: Mapping[str, Picture],
) -> str:
    """Return the self-contained page, with inline figures and without scripts.

    Args:
        result: the result of the comparison.
        runs: the compared runs.
        laboratory: results of parts of the laboratory. The page shows those of parts in ``OF_THE_PAPER``.
        figures: the figures of ``make_figures`` for the same arguments.
    """
    different, shared = _settings(result, runs)
    return render(
        "experiments/page.html.j2",
        result=result,
        count=len(runs),
        figures=partial(_figures_of_kind, figures),
        baselines=[system for system in result.systems if system != result.reference],
        sentences=[_sentence(result, test, runs) for test in result.tests if test.benchmark == MEAN],
        tables={name: (title, _cells(table)) for name, (title, table) in tables(result).items()},
        laboratory=[(one.title, _cells(arms_table(one))) for one in laboratory if one.part in OF_THE_PAPER],
        different=_cells(different),
        shared=_cells(shared),
        runs=_cells(_runs(runs)),
        margin=points(result.margin).lstrip("+"),
        how_to_read=how_to_read(result),
    )


Cells = list[list[tuple[str, bool]]]
"""Rows of a table, starting with the headings. A cell is its content and whether the column is text."""


def _cells(table: Table) -> Cells:
    columns = table.columns
    headings = [str(column.header) for column in columns]
    rows = [headings, *zip(*(map(str, column.cells) for column in columns), strict=True)]
    texts = [column.justify == "left" for column in columns]
    return [list(zip(row, texts, strict=True)) for row in rows]


def _figures_of_kind(figures: Mapping[str, Picture], kind: str, model: str = "") -> dict[str, Picture]:
    """Return the figures of a kind, such as ``accuracy``, of one model."""
    return {name: one for name, one in figures.items() if name.split("-")[0] == kind and one.model == model}


def _sentence(result: ReproductionResult, test: PairedTest, runs: Sequence[SystemRun]) -> str:
    """Return a sentence that compares the reference with a baseline."""
    if test.equivalent:
        verdict = f"is within {points(result.margin).lstrip('+')} points of"
    elif test.p_bootstrap < LEVEL:
        verdict = "exceeds" if test.difference.value > 0 else "falls below"
    else:
        verdict = "does not differ significantly from"
    # The last cell of a system is that of the mean, or of the only benchmark.
    cells = {one.system: one for one in result.cells if one.model == test.model}
    both = (result.reference, test.baseline)
    ours, theirs = ({run.seed for run in runs if (run.model, run.system) == (test.model, system)} for system in both)
    # Means over other seeds would contradict the difference, which is that of the common seeds.
    known = [share_with_interval(cells[system].accuracy) for system in both] if cells and ours == theirs else []
    levels = f"{' against '.join(known)}, " if known else ""
    speeds = [_speed(one) for one in result.speeds if (one.model, one.baseline) == (test.model, test.baseline)]
    where = "Over all models" if test.model == ALL else f"With {test.model}"
    ends = f"{points(test.difference.low)} to {points(test.difference.high)}"
    return (
        f"{where}, {result.reference} {verdict} {test.baseline}: {levels}"
        f"{points(test.difference.value)} points ({ends}; p {p_value(test.p_bootstrap)})"
        f"{'; speed: ' if speeds else ''}{', '.join(speeds)}."
    )


def _speed(speed: Speed) -> str:
    if speed.ratio is None:
        return f"{speed.name}: no ratio on some seeds"
    known = [one for one in speed.by_seed if one is not None]
    spread = f" ({min(known):.2f} to {max(known):.2f} over seeds)" if len(known) > 1 else ""
    return f"{speed.name} {speed.ratio:.2f}x{spread}"


def _settings(result: ReproductionResult, runs: Sequence[SystemRun]) -> tuple[Table, Table]:
    """Return two tables, without seeds: settings that differ between the systems of a model, and shared settings."""
    different, shared = [], []
    for model in result.models:
        first = {run.system: flat(run.history.settings) for run in reversed(runs) if run.model == model}
        differing = names_that_differ(list(first.values()))
        for name in dict.fromkeys(name for settings in first.values() for name in settings if name != "seed"):
            if name in differing:
                values = format_values((first.get(system, {}) for system in result.systems), name)
                different.append((model, name, *values))
            else:
                known = (settings for settings in first.values() if name in settings)
                shared.append((model, name, *format_values([next(known)], name)))
    return (
        number_table("", ("model", "setting", *result.systems), (), different),
        number_table("", ("model", "setting", "value"), (), shared),
    )


def _runs(runs: Sequence[SystemRun]) -> Table:
    rows = []
    for run in runs:
        last = run.history.evaluated[-1]
        rows.append((run.model, run.system, str(run.seed), share(last.accuracy), last.policy.digest[:16], run.report))
    return number_table("", ("model", "system"), ("seed", "accuracy", "last policy", "report"), rows)
