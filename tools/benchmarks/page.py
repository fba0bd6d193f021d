"""What benchmarks found, as tables for the terminal."""

import statistics

from rich.table import Table

from tools.benchmarks.measured import Measured, Ratio


def table_of(found: Measured) -> Table:
    """A row per way and per ratio; medians, and the range of all repeats."""
    table = Table(title=f"{found.name}: {found.what}", title_justify="left")
    for heading in ("", found.unit, "range", "asked for"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, values in found.ways.items():
        table.add_row(name, number(statistics.median(values)), spread(values), "")
    table.add_section()
    for one in found.ratios:
        table.add_row(f"{one.of} by {one.beside}", f"{one.value:.2f}", spread(one.values), _bar(one))
    return table


def spread(values: list[float]) -> str:
    """The range."""
    return f"{number(min(values))} to {number(max(values))}"


def number(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _bar(one: Ratio) -> str:
    return f"{one.asked}: {'holds' if one.holds else 'short'}" if one.bar is not None else ""
