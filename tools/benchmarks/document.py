"""The CPU section of docs/performance.md: tables and findings of all baselines, and a figure of their ratios."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from rich.table import Table

from tasks.report import drawing
from tasks.report.theme import BLUE, MUTED, ORANGE
from tools.benchmarks.measurement import BASELINES, Measurement, Ratio
from tools.docs.sections import render_markdown, replace_section

MARK = "cpu"
FIGURE = "performance/ratios.svg"
_NAMES = {"grpo": "GRPO"}
_MOST_PARTS_OF_A_LINE = 4
"""A fact with more parts is a table."""
_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 100)
_WIDTH = 8.5
"""Width of the figure, inches."""
_LEAST_RANGE = 0.002
"""Smallest length of a line, as a share of its position; a shorter line would be invisible."""


def write_page(page: Path, folder: Path = BASELINES) -> None:
    """Write all baselines to the section of a page, and the figure next to the page.

    Args:
        page: a page with the marks of ``tools.docs.sections.replace_section``.
        folder: the folder of the baselines.

    Raises:
        DataError: the page has no such marks.
    """
    baselines = [one for path in sorted(folder.glob("*.json")) if (one := Measurement.read(path.stem, folder))]
    parts = [_machine(baselines)]
    if any(ratio.bar for one in baselines for ratio in one.ratios):
        figure = page.parent / FIGURE
        figure.parent.mkdir(parents=True, exist_ok=True)
        figure.write_text(ratios_figure(baselines) + "\n", encoding="utf-8")
        parts.append(f"![Every ratio with a required value, divided by this value]({FIGURE})")
    replace_section(page, MARK, "\n\n".join([*parts, *map(section, baselines)]) + "\n")


def section(measurement: Measurement, command: str = "", level: int = 2) -> str:
    """Return a measurement as Markdown.

    Args:
        measurement: the measurement.
        command: the command that made it; by default ``python -m tools.benchmarks`` with its name.
        level: the level of its heading.
    """
    ways = Table("", f"median, {measurement.unit}", "range")
    for name, values in measurement.ways.items():
        ways.add_row(name, number(statistics.median(values)), range_of(values))
    ratios = Table("", "ratio", "range", "required", "result")
    for one in measurement.ratios:
        result = {None: "", True: "met", False: "**not met**"}[one.holds]
        ratios.add_row(f"{one.of} / {one.beside}", number(one.value), range_of(one.values), one.requirement, result)
    repeats = max(map(len, measurement.ways.values()))
    how_often = "Measured once" if repeats == 1 else f"Measured {repeats} times"
    command = command or f"python -m tools.benchmarks {measurement.name}"
    tables = {name: value for name, value in measurement.facts.items() if _is_long(value)}
    facts = [f"{name}: {_fact(value)}" for name, value in measurement.facts.items() if name not in tables]
    parts = [
        f"{'#' * level} {_NAMES.get(measurement.name, measurement.name.capitalize())}",
        f"{measurement.what} {how_often} (`{command}`).",
        render_markdown(ways),
        render_markdown(ratios) if measurement.ratios else "",
        f"{'; '.join(facts)}." if facts else "",
        *(render_markdown(_fact_table(name, value)) for name, value in tables.items()),
        f"Findings: {measurement.finding}" if measurement.finding else "",
    ]
    return "\n\n".join(filter(None, parts))


def ratios_figure(measurements: Sequence[Measurement]) -> str:
    """Return an SVG with the median and the range of every ratio with a requirement, divided by the required value."""
    rows = [(found.name, one, one.bar) for found in measurements for one in found.ratios if one.bar][::-1]
    with drawing.style():
        figure, (axes,) = drawing.panels(1, 0.24 * len(rows) + 0.4)
        figure.set_figwidth(_WIDTH)
        axes.axvline(1, color=MUTED, linewidth=1)
        for place, (_, one, bar) in enumerate(rows):
            shares = [value / bar for value in one.values]
            low, high = min(shares), max(*shares, min(shares) * (1 + _LEAST_RANGE))
            color = BLUE if one.holds else ORANGE
            axes.plot([low, high], [place, place], color=color, linewidth=5, alpha=0.4, solid_capstyle="butt")
            axes.plot([one.value / bar], [place], "<" if one.at_most else ">", color=color, markersize=6)
        axes.set_yticks(range(len(rows)), [f"{name}: {_short_name(one)}" for name, one, _ in rows], fontsize=7)
        axes.set_xscale("log")
        axes.margins(x=0.08)
        axes.tick_params(axis="x", labelsize=7)
        axes.xaxis.set_major_locator(FixedLocator(_TICKS))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.grid(visible=False)
        axes.set_xlabel("ratio / required value; > at least, < at most", fontsize=7)
        return drawing.to_svg(figure, "ratios", "Ratios divided by their required values")


def number(value: float) -> str:
    """Return a number with three significant digits, or with all digits of its whole part."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def range_of(values: Sequence[float]) -> str:
    """Return the range of values, such as ``3 to 4``."""
    return f"{number(min(values))} to {number(max(values))}"


def _short_name(ratio: Ratio) -> str:
    text = ratio.of if ratio.absolute else f"{ratio.of} / {ratio.beside}"
    return text if len(text) <= 48 else f"{text[:47]}…"


def _machine(baselines: Sequence[Measurement]) -> str:
    """Return a paragraph about the machine, with all values of a fact in which the baselines differ."""
    if not baselines:
        return "Nothing was measured yet: `make bench`."
    values: dict[str, dict[str, None]] = {}
    for baseline in baselines:
        for name, value in baseline.machine.items():
            values.setdefault(name, {})[str(value)] = None
    days = sorted(values.pop("when", {}))
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    facts = ", ".join(f"{name} {' and '.join(sorted(each))}" for name, each in values.items())
    return (
        f"Measured {when}: {facts}. `python -m tools.benchmarks --page docs/performance.md` writes this part from "
        "tools/benchmarks/baselines."
    )


def _is_long(value: Any) -> bool:
    """Return whether a fact has so many parts that it is a table."""
    if not isinstance(value, Mapping):
        return False
    return len(value) > _MOST_PARTS_OF_A_LINE or any(_is_long(one) for one in value.values())


def _fact_table(name: str, value: Mapping[str, Any]) -> Table:
    """Return a table of a fact with parts. If the parts have parts, it has a column for each of the former."""
    if not all(isinstance(one, Mapping) for one in value.values()):
        value = {"": value}
    table = Table(name, *map(str, value))
    for part in dict.fromkeys(part for column in value.values() for part in column):
        table.add_row(str(part), *("" if part not in column else _fact(column[part]) for column in value.values()))
    return table


def _fact(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_fact(one)}" for name, one in value.items() if one or one == 0)
    if isinstance(value, list | tuple):
        return ", ".join(map(_fact, value))
    return number(value) if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
