"""One look for every figure: matplotlib draws, the page's colors fill in, and the same data gives the same bytes."""

import io
import re
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from tasks.report.palette import GRID, INK, MUTED, PALETTE, variable

TALL = 3.5
"""Inches of all panels of a tall figure together."""
WIDTH = 4.9
"""Inches; narrow, so that text stays readable when a phone shrinks the figure."""

_STYLE = {
    "svg.fonttype": "none",
    "font.family": ["DejaVu Sans"],
    "font.size": 10.5,
    "text.color": INK,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 10,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "legend.handlelength": 1.6,
    "legend.columnspacing": 1.4,
    "legend.handletextpad": 0.5,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "figure.constrained_layout.use": True,
}


def style() -> Any:
    """The context in which figures are made and saved."""
    return rc_context(_STYLE)


def panels(count: int, height: float) -> tuple[Figure, list[Any]]:
    """``count`` panels above one another that share their x-axis, each ``height`` inches high."""
    figure = Figure(figsize=(WIDTH, height * count + 0.55))
    FigureCanvasSVG(figure)
    grid = figure.subplots(count, 1, sharex=True, squeeze=False)
    return figure, [axes for row in grid for axes in row]


def small_multiples(
    titles: Sequence[str], what: str, x_label: str, *, same_scale: bool = True
) -> tuple[Figure, list[Any]]:
    """A small panel per title, two beside each other, all with the same x-axis.

    Args:
        titles: of the panels.
        what: stands above them: what the y-axis shows.
        x_label: of the x-axis, below the last row.
        same_scale: they have the same y-axis too.
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
    figure.suptitle(what, x=0.01, ha="left", fontsize=10.5)
    return figure, list(grid[: len(titles)])


def line(color: str, text: str, **look: Any) -> Line2D:
    """A handle of a legend."""
    return Line2D([], [], color=color, label=text, **look)


def legend(figure: Figure, handles: Sequence[Any], columns: int) -> None:
    """A legend below the panels."""
    figure.legend(handles=handles, loc="outside lower left", ncols=columns)


def percent_axis(axes: Any) -> None:
    """The y-axis in percent, from zero."""
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    from_zero(axes, 0.01)


def from_zero(axes: Any, least: float = 0.0) -> None:
    """The y-axis from zero to a little above what is drawn, at least to ``least``; call it after drawing.

    Panels that share it are looked at together.
    """
    highest = max(one.dataLim.y1 for one in axes.get_shared_y_axes().get_siblings(axes))
    axes.set_ylim(0, max(1.12 * highest if np.isfinite(highest) else 0.0, least) or 1.0)


def log_axis(axes: Any) -> None:
    """A logarithmic y-axis whose ticks are plain numbers, also when it spans much less than a decade."""
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
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.6g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def whole_ticks(axes: Any) -> None:
    """An x-axis whose ticks are whole numbers."""
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    low, high = axes.get_xlim()
    if high - low < 1:
        axes.set_xlim((low + high) / 2 - 0.5, (low + high) / 2 + 0.5)


def time_unit(seconds: float) -> tuple[str, float]:
    """The unit in which an axis up to so many seconds is written, and how many seconds it has."""
    for unit, size in (("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 3 * size:
            return unit, size
    return "seconds", 1.0


def to_svg(figure: Figure, name: str, description: str) -> str:
    """The figure as an ``<svg>`` element; a color of the palette becomes a CSS variable with itself as fallback.

    Args:
        figure: made within ``style()``.
        name: prefixes the ids inside, so that several figures fit into one page.
        description: what a screen reader says.
    """
    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    # A hundredth of a point is less than anyone sees.
    svg = re.sub(r' d="[^"]*"', lambda match: re.sub(r"(\.\d\d)\d+", r"\1", match[0]), svg)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
    svg = re.sub(r' id="([^"]+)"', lambda match: f' id="{name}-{match[1]}"' if match[1] in used else "", svg)
    svg = re.sub(r'(href="#|url\(#)([^")]+)', rf"\1{name}-\2", svg)
    for color, (light, _) in PALETTE.items():
        svg = svg.replace(light, variable(color))
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(description)}" ', 1).strip()
