"""The tables of a comparison and of the laboratory, for the terminal and for a page of documentation."""

from collections.abc import Callable, Sequence
from textwrap import fill

from rich import box
from rich.table import Table

from tasks.experiments.result import MEAN, Cause, LaboratoryResult, PairedTest, ReproductionResult, Speed
from tasks.report.formats import MISSING, duration, label, percent, percent_range
from tasks.report.tables import render, render_markdown

_COLUMNS = 132
_HOW_TO_READ = (
    "Intervals are of 95 %, by bootstrap over problems and a t distribution over seeds; tests are paired by seed and "
    "problem, their p-values adjusted by Holm for their number. Wilcoxon is over runs, models x seeds, from six of "
    "them on. d_z is the mean paired difference of runs in its standard deviations, r their rank-biserial correlation. "
    "Equal: two one-sided tests put the difference within the margin of {margin} points, p below 0.05."
)


def terminal(result: ReproductionResult) -> str:
    """Return all tables, as the workflow ends with them."""
    parts = [_missing(result)] if result.missing else []
    for title, table in tables(result).items():
        parts += [title, render(table, _COLUMNS)]
    parts.append(fill(how_to_read(result), 100))
    if result.folder:
        parts += ["", f"report  {result.folder}/report.html"]
    return "\n".join(parts)


def markdown(result: ReproductionResult) -> str:
    """Return all tables for a page."""
    parts = [_missing(result)] if result.missing else []
    for title, table in tables(result).items():
        parts += [f"**{title}**", render_markdown(table)]
    return "\n\n".join([*parts, how_to_read(result)]) + "\n"


def how_to_read(result: ReproductionResult) -> str:
    """Explain the columns of the tables."""
    return _HOW_TO_READ.format(margin=f"{100 * result.margin:g}")


def tables(result: ReproductionResult) -> dict[str, Table]:
    """Return all tables by their titles."""
    found = {f"Accuracy after the last update, {_seeds(result)}": _accuracies(result)}
    if result.tests:
        found[f"{result.reference} against each baseline"] = _tests(result.tests)
    found["Seconds of training, mean over seeds"] = _times(result)
    if result.speeds:
        found[f"How much faster {result.reference} is"] = _speeds(result.speeds)
    if result.causes:
        found[f"Seconds that {result.reference} saves, by cause"] = _causes(result.causes)
    return found


def _seeds(result: ReproductionResult) -> str:
    numbers = sorted({len(cell.by_seed) for cell in result.cells})
    return f"{' to '.join(str(number) for number in numbers[:: max(1, len(numbers) - 1)])} seeds"


def _missing(result: ReproductionResult) -> str:
    return f"Not finished; {len(result.missing)} runs are missing: {'; '.join(result.missing)}."


def _table(*headings: str, left: int = 1) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place < left else "right", no_wrap=True)
    return table


def _accuracies(result: ReproductionResult) -> Table:
    table = _table("model", "benchmark", "base", *result.systems, left=2)
    cells = {(cell.model, cell.benchmark, cell.system): cell for cell in result.cells}
    for model, benchmark in dict.fromkeys((cell.model, cell.benchmark) for cell in result.cells):
        row = [cells.get((model, benchmark, system)) for system in result.systems]
        base = next(cell.base for cell in row if cell)
        shown = [f"{percent(one.accuracy)} ({percent_range(one.low, one.high)})" if one else MISSING for one in row]
        table.add_row(model, _benchmark(benchmark), percent(base), *shown)
    return table


def _benchmark(name: str) -> str:
    return "mean of all" if name == MEAN else name


def _tests(tests: Sequence[PairedTest]) -> Table:
    headings = ("difference (95 %)", "p bootstrap", "p Wilcoxon", "d_z", "r", "p equal", "equal")
    table = _table("against", "model", "benchmark", *headings, left=3)
    for test in tests:
        table.add_row(
            test.baseline,
            test.model,
            _benchmark(test.benchmark),
            f"{_points(test.difference)} ({_points(test.low)} to {_points(test.high)})",
            p_value(test.p_bootstrap),
            p_value(test.p_wilcoxon),
            _or_missing(test.cohen_dz, lambda value: f"{value:.2f}"),
            _or_missing(test.rank_biserial, lambda value: f"{value:.2f}"),
            p_value(test.p_equivalence),
            "yes" if test.equivalent else "not shown",
        )
    return table


def p_value(p: float | None) -> str:
    """``0.012``, ``< 0.001``."""
    return _or_missing(p, lambda value: "< 0.001" if value < 0.001 else f"{value:.3f}")


def _points(difference: float) -> str:
    return _signed(100 * difference)


def _or_missing(value: float | None, write: Callable[[float], str]) -> str:
    return MISSING if value is None else write(value)


def _times(result: ReproductionResult) -> Table:
    rows = dict.fromkeys(row for one in result.times for row in one.ledger)
    table = _table("model", "system", "updates", "wall-clock", *(label(row) for row in rows), left=2)
    for one in result.times:
        seconds = [_or_missing(one.ledger.get(row), duration) for row in rows]
        table.add_row(one.model, one.system, str(one.updates), duration(one.wall_clock), *seconds)
    return table


def _speeds(speeds: Sequence[Speed]) -> Table:
    table = _table("against", "model", "", "times as fast", "by seed", left=3)
    for one in speeds:
        by_seed = " ".join(_or_missing(ratio, lambda value: f"{value:.2f}") for ratio in one.by_seed)
        ratio = "not on every seed" if one.ratio is None else f"{one.ratio:.2f}"
        table.add_row(one.baseline, one.model, one.name, ratio, by_seed)
    return table


def _causes(causes: Sequence[Cause]) -> Table:
    columns = list(dict.fromkeys(_about(cause) for cause in causes))
    table = _table("", *(f"{model}, against {baseline}" for model, baseline in columns))
    seconds = {(cause.model, cause.baseline, cause.name): cause.seconds for cause in causes}
    for name in dict.fromkeys(cause.name for cause in causes):
        table.add_row(name, *(_or_missing(seconds.get((*column, name)), _seconds_saved) for column in columns))
    table.add_row(
        "in all", *(_seconds_saved(sum(one.seconds for one in causes if _about(one) == pair)) for pair in columns)
    )
    return table


def _about(cause: Cause) -> tuple[str, str]:
    return cause.model, cause.baseline


def _seconds_saved(seconds: float) -> str:
    return f"{_signed(seconds)} s"


def _signed(value: float) -> str:
    """Write a value with its sign and one digit; a zero is always ``+0.0``."""
    return f"{round(value, 1) + 0.0:+.1f}"


def laboratory_terminal(result: LaboratoryResult) -> str:
    """Return the table of a part of the laboratory, as its workflow ends with it."""
    table = render(_arms(result), _COLUMNS)
    lines = [f"{result.part}. {result.title}", result.asks, "", table, "", fill(_laboratory_legend(result), 100)]
    return "\n".join([*lines, "", f"figure  {result.folder}/curves.svg"] if result.folder else lines)


def laboratory_markdown(result: LaboratoryResult) -> str:
    """Return the table of a part of the laboratory for a page."""
    return f"{render_markdown(_arms(result))}\n\n{_laboratory_legend(result)}"


def _laboratory_legend(result: LaboratoryResult) -> str:
    return (
        f"{result.seeds} seeds, {result.updates} updates, {result.problems} held-out problems; the base policy has "
        f"{percent(result.base)}. Differences are to {result.reference!r}, paired by seed and problem; intervals by "
        "bootstrap over problems and a t distribution over seeds, p by the same, adjusted by Holm."
    )


def _arms(result: LaboratoryResult) -> Table:
    headings = ("at the end (95 %)", "seeds", "best", "vetoed", "clipped", "difference (95 %)", "p")
    table = _table("arm", *headings)
    for arm in result.arms:
        known = None not in (arm.difference, arm.difference_low, arm.difference_high)
        low, high = arm.difference_low or 0.0, arm.difference_high or 0.0
        table.add_row(
            arm.name + (" (stopped)" if arm.stopped else ""),
            f"{percent(arm.accuracy)} ({percent_range(arm.low, arm.high)})",
            " ".join(f"{100 * one:.0f}" for one in arm.by_seed),
            percent(arm.best),
            percent(arm.vetoed),
            percent(arm.clipped),
            f"{100 * (arm.difference or 0.0):+.1f} ({100 * low:+.1f} to {100 * high:+.1f})" if known else "",
            "" if arm.p is None else p_value(arm.p),
        )
    return table
