"""docs/performance.md: what was kept of every benchmark, as tables, findings and a figure of all ratios."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from rich.table import Table

from tasks.cli.pages import replace_between_marks
from tasks.report import drawing
from tasks.report.look import BLUE, MUTED, ORANGE
from tasks.report.tables import render_markdown
from tools.benchmarks.measured import BASELINES, Measured, Ratio

MARK = "cpu"
FIGURE = "performance/ratios.svg"
_NAMES = {"grpo": "GRPO"}
_OF_A_RUN = ("when",)
"""Facts that may differ between benchmarks of one machine."""
_MOST_PARTS = 4
"""The most parts of a fact that is told in a line."""
_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 100)
_WIDTH = 8.5
"""Width of the figure, inches."""
_LEAST_RANGE = 0.002
"""Shares of the bar; a shorter line would not be seen."""


def write_page(page: Path, folder: Path = BASELINES) -> None:
    """Renews the part of a page that is about this machine, and the figure beside the page.

    Args:
        page: has the marks of ``tasks.cli.pages.replace_between_marks``.
        folder: with a JSON file for every benchmark.

    Raises:
        DataError: the page has no such marks.
    """
    kept = [one for path in sorted(folder.glob("*.json")) if (one := Measured.read(path.stem, folder))]
    parts = [_machine(kept)]
    if any(one.bar for found in kept for one in found.ratios):
        figure = page.parent / FIGURE
        figure.parent.mkdir(parents=True, exist_ok=True)
        figure.write_text(ratios(kept) + "\n", encoding="utf-8")
        parts.append(f"![Every ratio with a required value, divided by this value]({FIGURE})")
    replace_between_marks(page, MARK, "\n\n".join([*parts, *map(section, kept)]) + "\n")


def section(found: Measured, command: str = "", level: int = 2) -> str:
    """A benchmark as Markdown.

    Args:
        found: what it found.
        command: that measures it; without one, that of all benchmarks with its name.
        level: of its heading.
    """
    ways, beside = _table("", f"median, {found.unit}", "range"), _table("", "ratio", "range", "required", "result")
    for name, values in found.ways.items():
        ways.add_row(name, number(statistics.median(values)), spread(values))
    for one in found.ratios:
        verdict = {None: "", True: "met", False: "**not met**"}[one.holds]
        beside.add_row(f"{one.of} / {one.beside}", number(one.value), spread(one.values), one.asked, verdict)
    repeats = max(map(len, found.ways.values()))
    often = "Measured once" if repeats == 1 else f"Measured {repeats} times, in turn"
    lines = [f"{found.what} {often} (`{command or f'python -m tools.benchmarks {found.name}'}`)."]
    tables = [render_markdown(ways), *([render_markdown(beside)] if found.ratios else [])]
    tabled = {name: value for name, value in found.facts.items() if _is_long(value)}
    facts = [f"{name}: {_fact(value)}" for name, value in found.facts.items() if name not in tabled]
    lines += [*tables, *([f"{'; '.join(facts)}."] if facts else [])]
    lines += [render_markdown(_fact_table(name, value)) for name, value in tabled.items()]
    lines += [f"Findings: {found.finding}"] if found.finding else []
    return "\n\n".join([f"{'#' * level} {_NAMES.get(found.name, found.name.capitalize())}", *lines])


def ratios(kept: Sequence[Measured]) -> str:
    """An SVG: the median and the range of every ratio with a bar, divided by the bar, so that all share one."""
    shown = [(found.name, one, one.bar) for found in kept for one in found.ratios if one.bar]
    with drawing.style():
        figure, (axes,) = drawing.panels(1, 0.24 * len(shown) + 0.4)
        figure.set_figwidth(_WIDTH)
        axes.axvline(1, color=MUTED, linewidth=1)
        for place, (_, one, bar) in enumerate(shown[::-1]):
            shares = [value / bar for value in one.values]
            middle, color = one.value / bar, BLUE if one.holds else ORANGE
            low, high = min(shares), max(*shares, min(shares) * (1 + _LEAST_RANGE))
            axes.plot([low, high], [place, place], color=color, linewidth=5, alpha=0.4, solid_capstyle="butt")
            axes.plot([middle], [place], "<" if one.at_most else ">", color=color, markersize=6)
        names = [f"{name}: {_short(one)}" for name, one, _ in shown[::-1]]
        axes.set_yticks(range(len(shown)), names, fontsize=7)
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
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def spread(values: Sequence[float]) -> str:
    """The range."""
    return f"{number(min(values))} to {number(max(values))}"


def _short(one: Ratio) -> str:
    text = one.of if one.absolute else f"{one.of} / {one.beside}"
    return text if len(text) <= 48 else f"{text[:47]}…"


def _machine(kept: Sequence[Measured]) -> str:
    """Machine and versions, once; where benchmarks differ in them, each of their values."""
    if not kept:
        return "Nothing is measured yet: run `make bench`."
    values: dict[str, dict[str, None]] = {}
    for found in kept:
        for name, value in found.machine.items():
            values.setdefault(name, {})[str(value)] = None
    told = [f"{name} {' and '.join(sorted(each))}" for name, each in values.items() if name not in _OF_A_RUN]
    days = sorted(values.get("when", {}))
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return (
        f"Measured {when}: {', '.join(told)}. `python -m tools.benchmarks --page docs/performance.md` writes this part "
        "from tools/benchmarks/baselines. A ratio is the median over the pairs of repeats."
    )


def _is_long(value: Any) -> bool:
    """Return True if a fact has so many parts that it is a table."""
    if not isinstance(value, Mapping):
        return False
    return len(value) > _MOST_PARTS or any(_is_long(one) for one in value.values())


def _fact_table(name: str, value: Mapping[str, Any]) -> Table:
    """A row per part; of parts that have parts themselves, a column each."""
    if not all(isinstance(one, Mapping) for one in value.values()):
        value = {"": value}
    table = _table(name, *map(str, value))
    for part in dict.fromkeys(part for column in value.values() for part in column):
        table.add_row(str(part), *("" if part not in column else _fact(column[part]) for column in value.values()))
    return table


def _fact(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_fact(one)}" for name, one in value.items() if one or one == 0)
    if isinstance(value, list | tuple):
        return ", ".join(map(_fact, value))
    return number(value) if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _table(*headings: str) -> Table:
    table = Table()
    for heading in headings:
        table.add_column(heading)
    return table
