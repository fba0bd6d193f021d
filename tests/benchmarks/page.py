"""What benchmarks found, as tables for the terminal and for docs/performance.md."""

import statistics

from rich.table import Table

from tests.benchmarks.measured import Measured, Ratio


def table_of(found: Measured) -> Table:
    """A row per way and per ratio; medians, and the range of all repeats."""
    table = Table(title=f"{found.name}: {found.what}", title_justify="left")
    for heading in ("", found.unit, "range", "asked for"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, values in found.ways.items():
        table.add_row(name, _number(statistics.median(values)), _range(values), "")
    table.add_section()
    for one in found.ratios:
        table.add_row(f"{one.of} by {one.beside}", f"{one.value:.2f}", _range(one.values), _bar(one))
    return table


def _bar(one: Ratio) -> str:
    if one.bar is None:
        return ""
    return f"{'at most' if one.at_most else 'at least'} {one.bar:g}: {'holds' if one.holds else 'short'}"


def _range(values: list[float]) -> str:
    return f"{_number(min(values))} to {_number(max(values))}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
