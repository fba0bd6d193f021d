"""One look for every figure: matplotlib draws, the page's colors fill in, and the same data gives the same bytes."""

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from tasks.report.look import GRID, INK, MUTED, PALETTE, variable
from tasks.report.updates import Column

COLUMNS = ("panel", "series", "x", "y", "low", "high")
"""Columns of the table beside every figure; docs/metrics.md explains them."""
TALL = 3.5
"""Height of all panels of a tall figure together, in inches."""
WIDTH = 4.9
"""Width in inches. It is narrow, so that text stays readable when a phone shrinks the figure."""
MARKED_STAGES = 16
"""With more stages than this, the boundaries between them are not drawn: they would hide the data."""

_STYLE = Path(__file__).with_name("figures.mplstyle")
_COLORS = {
    **dict.fromkeys(("text.color", "axes.titlecolor"), INK),
    **dict.fromkeys(("axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), MUTED),
    "grid.color": GRID,
}
Values = Sequence[float] | Column


@dataclass(frozen=True)
class Series:
    """Numbers with one look in one panel. Columns have one length, and NaN where there is nothing to show."""

    panel: str
    """Empty in a figure of one panel."""
    name: str
    x: Column
    y: Column
    low: Column
    """Lower end of an interval around y."""
    high: Column

    @classmethod
    def of(
        cls, panel: str, name: str, x: Values, y: Values, low: Values | None = None, high: Values | None = None
    ) -> Self:
        """Make a series from plain numbers. Without an interval, ``low`` and ``high`` are NaN."""
        nothing = np.full(len(x), math.nan)
        columns = (nothing if one is None else np.asarray(one, dtype=np.float64) for one in (x, y, low, high))
        return cls(panel, name, *columns)


@dataclass(frozen=True)
class Picture:
    """A figure, and the series that it shows. A long line is drawn through fewer points than its series has."""

    drawn: Figure | str
    """A figure of matplotlib, or SVG."""
    series: Sequence[Series]

    def svg(self, name: str, description: str) -> str:
        """Return the figure as an ``<svg>`` element; see ``to_svg``."""
        return self.drawn if isinstance(self.drawn, str) else to_svg(self.drawn, name, description)

    def csv(self) -> str:
        """Return a table with a row per point, in the order of drawing. A cell without a number is empty."""
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(COLUMNS)
        for one in self.series:
            for numbers in zip(*(column.tolist() for column in (one.x, one.y, one.low, one.high)), strict=True):
                table.writerow([one.panel, one.name, *map(_written, numbers)])
        return text.getvalue()


def _written(value: float) -> str:
    """Return a number with all of its digits; a whole number has no decimal point."""
    if math.isnan(value):
        return ""
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def style() -> Any:
    """Return the context in which figures are made and saved."""
    return rc_context(_COLORS, _STYLE)


def panels(count: int, height: float) -> tuple[Figure, list[Any]]:
    """Return a figure of ``count`` panels above one another that share their x-axis, each ``height`` inches high."""
    figure = Figure(figsize=(WIDTH, height * count + 0.55))
    FigureCanvasSVG(figure)
    return figure, list(figure.subplots(count, 1, sharex=True, squeeze=False).flatten())


def small_multiples(
    titles: Sequence[str], what: str, x_label: str, *, same_scale: bool = True
) -> tuple[Figure, list[Any]]:
    """Return a figure with a small panel per title, two beside each other, which share their x-axis.

    Args:
        titles: the titles of the panels.
        what: what the y-axis shows; it stands above all panels, unless it is empty.
        x_label: label of the x-axis, below the last row.
        same_scale: whether the panels share their y-axis too.
    """
    columns = min(2, len(titles))
    rows = -(-len(titles) // columns)
    height = {1: 2.1, 2: 1.5}.get(rows, 1.15)
    figure = Figure(figsize=(WIDTH, height * rows + 0.85))
    FigureCanvasSVG(figure)
    grid = figure.subplots(rows, columns, sharex=True, sharey=same_scale, squeeze=False).flatten()
    for axes, title in zip(grid, titles, strict=False):
        axes.set_title(title, fontsize=9.5, color=MUTED)
    for axes in grid[len(titles) :]:
        axes.set_visible(False)
    for axes in grid[len(titles) - columns : len(titles)]:
        axes.tick_params(labelbottom=True)
    for axes in grid[columns * (rows - 1) : len(titles)]:
        axes.set_xlabel(x_label)
    if what:
        figure.suptitle(what, x=0.01, ha="left", fontsize=10.5)
    return figure, list(grid[: len(titles)])


def line(color: str, text: str, **look: Any) -> Line2D:
    """Return an entry of a legend."""
    return Line2D([], [], color=color, label=text, **look)


def legend(figure: Figure, handles: Sequence[Any], columns: int) -> None:
    """Add a legend below the panels."""
    figure.legend(handles=handles, loc="outside lower left", ncols=columns)


def boundaries(axes: Any, places: Sequence[float]) -> None:
    """Draw a dashed vertical line at every place, unless there are too many."""
    for place in places if len(places) < MARKED_STAGES else ():
        axes.axvline(place, color=MUTED, linewidth=0.8, linestyle=(0, (3, 3)), zorder=1)


def scale_axis(axes: Any, scale: Literal["plain", "zero", "percent", "log"]) -> None:
    """Scale the y-axis: as it comes, from zero, in percent from zero, or logarithmic. Call it after drawing."""
    if scale == "log":
        log_axis(axes)
    elif scale == "percent":
        percent_axis(axes)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(4 if scale == "plain" else 3, steps=[1, 2, 2.5, 5, 10]))
        plain_numbers(axes.yaxis)
    if scale == "zero":
        from_zero(axes)


def percent_axis(axes: Any) -> None:
    """Write the y-axis in percent, from zero."""
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    from_zero(axes, 0.01)


def from_zero(axes: Any, least: float = 0.0) -> None:
    """Let the y-axis run from zero to a little above the data of all panels that share it. Call it after drawing.

    Args:
        axes: the panel.
        least: the axis reaches at least this value.
    """
    highest = max(one.dataLim.y1 for one in axes.get_shared_y_axes().get_siblings(axes))
    axes.set_ylim(0, max(1.12 * highest if np.isfinite(highest) else 0.0, least) or 1.0)


def log_axis(axes: Any) -> None:
    """Make the y-axis logarithmic, with plain numbers as ticks also where it spans much less than a decade."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    decades = [10.0**power for power in range(-7, 8)]
    inside = sum(low <= tick <= high for tick in decades)
    if inside > 4:
        ticks = decades[1::2]
    elif inside > 2:
        ticks = decades
    elif high / low > 5:
        ticks = [first * tick for tick in decades for first in (1, 3)]
    else:
        ticks = list(MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(low, high))
    axes.yaxis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    plain_numbers(axes.yaxis)
    axes.yaxis.set_minor_locator(NullLocator())


def plain_numbers(axis: Any) -> None:
    """Write the ticks of an axis without exponents."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.6g}"))


def whole_ticks(axes: Any) -> None:
    """Let the ticks of the x-axis be whole numbers."""
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    low, high = axes.get_xlim()
    if high - low < 1:
        axes.set_xlim((low + high) / 2 - 0.5, (low + high) / 2 + 0.5)


def time_unit(seconds: float) -> tuple[str, float]:
    """Return the unit for an axis that reaches so many seconds, and the seconds of one unit."""
    for unit, size in (("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 3 * size:
            return unit, size
    return "seconds", 1.0


def to_svg(figure: Figure, name: str, description: str) -> str:
    """Return the figure as an ``<svg>`` element whose colors are CSS variables, with the color itself as fallback.

    Args:
        figure: made within ``style()``.
        name: prefix of the ids inside, so that several figures fit into one page.
        description: what a screen reader says.
    """
    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    for size in ("height", "width"):
        svg = re.sub(rf'(<svg[^>]*?) {size}="[^"]*"', r"\1", svg, count=1)
    # A hundredth of a point is less than anyone sees.
    svg = re.sub(r' d="[^"]*"', lambda match: re.sub(r"(\.\d\d)\d+", r"\1", match[0]), svg)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
    svg = re.sub(r' id="([^"]+)"', lambda match: f' id="{name}-{match[1]}"' if match[1] in used else "", svg)
    svg = re.sub(r'(href="#|url\(#)([^")]+)', rf"\1{name}-\2", svg)
    for color, (light, _) in PALETTE.items():
        svg = svg.replace(light, variable(color))
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(description)}" ', 1).strip()
