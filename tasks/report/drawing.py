"""Figures of series in panels, as SVG in the colors of the page. The same data gives the same bytes."""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from pydantic import BaseModel, ConfigDict

from tasks.evaluate.statistics import Values
from tasks.report.theme import GRID, INK, MUTED, PALETTE

Scale = Literal["plain", "zero", "percent", "log"]
"""Scale of a y-axis: matplotlib's choice, from zero (or below negative data), percent from zero, or logarithmic."""
COLUMNS = ("panel", "series", "x", "y", "low", "high")
"""Columns of the table of a figure; docs/metrics.md explains them."""
_WIDTH, _HEIGHT, _STACK_HEIGHT = 4.9, 2.55, 3.5
"""Inches: width of a figure, height of a single panel, and total height of stacked panels. A figure is narrow, so that
its text stays readable when a phone shrinks it."""
_MARKED, _MEANS = 12, 8
"""Largest number of points with markers, and number of points of a line of means through noisy points."""
_BOUNDS = (1e-6, 1e6)
"""Limits of a logarithmic axis; a value outside is drawn at the limit."""
_STEPS = [1, 2, 2.5, 5, 10]
_STYLE = Path(__file__).with_name("figures.mplstyle")
_COLORS = {
    **dict.fromkeys(("text.color", "axes.titlecolor"), INK),
    **dict.fromkeys(("axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), MUTED),
    "grid.color": GRID,
}


class Look(BaseModel):
    """Style of a series: color, line, markers and band."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str = ""
    """The entry in the legend; empty for no entry."""
    color: str = "blue"
    style: str = "-"
    """Line style in matplotlib's notation, or a letter for markers without a line."""
    marker: str = "o"
    """Marker of every point of a short line; empty for no marker."""
    width: float = 1.5
    opacity: float = 1.0
    points: int = 360
    """Largest number of points of all series with this look in a panel; longer series are averaged over neighbors."""
    noisy: bool = False
    """If True, points are faint dots, and the line connects means over neighboring points."""
    steps: bool = False
    """If True, the line is the outline of a histogram."""
    filled: bool = False
    """If True, the series is a filled histogram."""

    def thin(self) -> "Look":
        """Return the look of single lines whose mean has this look."""
        return self.model_copy(update={"text": "", "width": 0.8, "opacity": 0.35, "marker": ""})


PLAIN = Look()


@dataclass
class Series:
    """Points with one look in one panel. The columns have equal lengths; NaN means that there is nothing to draw."""

    panel: str
    """Name of the panel; empty in a figure of one panel."""
    name: str
    x: Any
    """x, y, low and high are given as sequences of numbers and become arrays."""
    y: Any
    low: Any = None
    """Lower end of a band around y. Without a band, low and high are NaN."""
    high: Any = None
    look: Look = field(default=PLAIN, kw_only=True)

    def __post_init__(self) -> None:
        for name in COLUMNS[2:]:
            values = getattr(self, name)
            setattr(self, name, np.full(len(self.x), math.nan) if values is None else np.asarray(values, np.float64))


@dataclass(frozen=True)
class Panel:
    """The axes of a panel."""

    title: str
    scale: Scale = "plain"
    limits: Sequence[float] = ()
    """Values of y with a dotted line."""


@dataclass(frozen=True)
class Chart:
    """Panels of lines that share their x-axis."""

    series: Sequence[Series]
    panels: Mapping[str, Panel]
    """Panels by name; every series has the name of its panel."""
    x_label: str
    heading: str | None = None
    """Heading of small panels in two columns; None for large panels in one column."""
    same_scale: bool = False
    """If True, small panels share their y-axis."""
    boundaries: Sequence[float] = ()
    """Values of x with a dashed line, such as the ends of stages."""
    whole_ticks: bool = True
    """If True, the ticks of the x-axis are whole numbers."""
    unit: float = 1.0
    """The x-axis shows x divided by this."""

    def draw(self) -> Figure:
        """Draw the panels and the legend."""
        titles = [panel.title for panel in self.panels.values()]
        columns = 1 if self.heading is None else 2
        rows = -(-len(titles) // columns)
        if columns == 1:
            height = _STACK_HEIGHT / rows if rows > 1 else _HEIGHT
        else:
            height = {1: 2.1, 2: 1.5}.get(rows, 1.15) + 0.3 / rows
        figure, grid = panels(len(titles), height, columns, same_scale=self.same_scale)
        for index, (axes, title) in enumerate(zip(grid, titles, strict=True)):
            axes.set_title(title, **({"fontsize": 9.5, "color": MUTED} if columns == 2 else {}))
            if index >= len(titles) - columns:
                axes.tick_params(labelbottom=True)
                axes.set_xlabel(self.x_label)
        if self.heading:
            figure.suptitle(self.heading, x=0.01, ha="left", fontsize=10.5)
        for axes, (name, panel) in zip(grid, self.panels.items(), strict=True):
            self._draw_panel(axes, panel, [one for one in self.series if one.panel == name])
        for axes, panel in zip(grid, self.panels.values(), strict=True):  # Panels may share an axis: plot all before.
            scale_axis(axes, panel.scale)
        if self.whole_ticks:
            _whole_ticks(grid[0])
        legend(figure, grid)
        return figure

    def _draw_panel(self, axes: Any, panel: Panel, series: Sequence[Series]) -> None:
        for one in series:
            alike = sum(other.look == one.look for other in series)
            _plot(axes, one, self.unit, max(8, one.look.points // alike), panel.scale == "log")
        for limit in panel.limits:
            axes.axhline(limit, color=INK, linestyle=":", linewidth=1.2, label="clip or veto limit")
        for boundary in self.boundaries:
            axes.axvline(boundary / self.unit, color=MUTED, linewidth=0.8, linestyle=(0, (3, 3)), zorder=1)


def _plot(axes: Any, one: Series, unit: float, points: int, log: bool) -> None:
    look, color = one.look, PALETTE[one.look.color][0]
    label = look.text or None
    y = np.clip(np.where(one.y > 0, one.y, np.nan), *_BOUNDS) if log else one.y
    if look.steps or look.filled:
        half = (one.x[1] - one.x[0]) / 2
        edges = np.append(one.x - half, one.x[-1] + half)
        shape: dict[str, Any] = {"baseline": 0, "fill": True} if look.filled else {"baseline": None, "lw": look.width}
        axes.stairs(y, edges, color=color, label=label, **shape)
        return
    x, middle, low, high = thin_out(one.x / unit, y, one.low, one.high, points=points)
    if look.noisy:
        axes.plot(x, middle, ".", color=color, alpha=0.45, markersize=4.5, markeredgewidth=0)
        x, middle, low, high = thin_out(one.x / unit, y, one.low, one.high, points=_MEANS)
    if look.style.isalpha():
        axes.plot(x, middle, look.style, color=color, markersize=4.5, label=label)
    else:
        few = len(x) == 1 or (len(x) <= _MARKED < points and not look.noisy)
        shape = {"marker": look.marker, "markersize": 3.5} if few else {}
        axes.plot(x, middle, look.style, color=color, label=label, lw=look.width, alpha=look.opacity, **shape)
        # A band of one point is a line.
        axes.fill_between(x, low, high, color=color, alpha=0.18, linewidth=4 * (len(x) == 1))


def thin_out(x: Values, y: Values, *others: Values, points: int) -> tuple[Values, ...]:
    """Return the means of columns over neighboring values of x, so that at most ``points`` points remain.

    The rows can be in any order. Rows whose y is NaN are left out.
    """
    known = ~np.isnan(y)
    values, group = np.unique(x[known], return_inverse=True)
    group //= max(1, -(-len(values) // points))
    count = np.bincount(group)
    return tuple(np.bincount(group, column[known]) / count for column in (x, y, *others))


Drawn = Chart | tuple[Figure, Sequence[Series]]
"""A chart, or a finished figure with its series."""


@dataclass(frozen=True)
class Picture:
    """A figure as SVG, with its series. A line can have fewer points than its series."""

    svg: str
    series: Sequence[Series]
    title: str
    caption: str
    model: str = ""
    """Model that the picture is about, on a page about several models."""

    def csv(self) -> str:
        """Return the table of the figure: a row per point, in the order of drawing, with an empty cell for NaN."""
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(COLUMNS)
        for one in self.series:
            for numbers in zip(*(column.tolist() for column in (one.x, one.y, one.low, one.high)), strict=True):
                table.writerow([one.panel, one.name, *("" if math.isnan(value) else value for value in numbers)])
        return text.getvalue()


def draw_picture(drawn: Drawn, name: str, title: str, caption: str, model: str = "") -> Picture:
    """Return a picture; ``name`` is the basis of its ids."""
    figure, series = (drawn.draw(), drawn.series) if isinstance(drawn, Chart) else drawn
    return Picture(to_svg(figure, name, f"{title}. {caption}"), series, title, caption, model)


def write_pictures(folder: Path, pictures: Mapping[str, Picture]) -> None:
    """Write every picture by its name into ``figures/`` of a folder, as SVG and as a table of its numbers."""
    (folder / "figures").mkdir(exist_ok=True)
    for name, picture in pictures.items():
        (folder / f"figures/{name}.svg").write_text(picture.svg, encoding="utf-8")
        (folder / f"figures/{name}.csv").write_text(picture.csv(), encoding="utf-8")


def style() -> Any:
    """Return the matplotlib context for making and saving figures."""
    return rc_context(_COLORS, _STYLE)


def panels(count: int, height: float, columns: int = 1, *, same_scale: bool = False) -> tuple[Figure, list[Any]]:
    """Return a figure of ``count`` panels that share their x-axis, each ``height`` inches high."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(_WIDTH, height * rows + 0.55))
    FigureCanvasSVG(figure)
    grid = figure.subplots(rows, columns, sharex=True, sharey=same_scale, squeeze=False).flatten()
    for axes in grid[count:]:
        axes.set_visible(False)
    return figure, list(grid[:count])


def legend(figure: Figure, grid: Sequence[Any]) -> None:
    """Add a legend for all panels below the figure, if it has more than one entry."""
    entries = {text: entry for axes in grid for entry, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    if len(entries) > 1:
        figure.legend(handles=list(entries.values()), loc="outside lower left", ncols=3)


def named_rows(axes: Any, names: Sequence[str]) -> None:
    """Label the rows of a panel of horizontal bars, from top to bottom."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False)


def scale_axis(axes: Any, scale: Scale) -> None:
    """Scale the y-axis; call this after drawing, because the limits follow from the drawn data."""
    if scale == "log":
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        powers = LogLocator(subs=(1, 3) if high < 60 * low else (1,), numticks=5)
        axes.yaxis.set_major_locator(powers if high > 10 * low else MaxNLocator(4, steps=[1, 2, 5, 10]))
        axes.yaxis.set_minor_locator(NullLocator())
        _plain_numbers(axes.yaxis)
    elif scale == "percent":
        axes.yaxis.set_major_locator(MaxNLocator(4, steps=_STEPS))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
        _from_zero(axes, 0.01)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(4 if scale == "plain" else 3, steps=_STEPS))
        _plain_numbers(axes.yaxis)
    if scale == "zero":
        _from_zero(axes)


def _from_zero(axes: Any, least: float = 0.0) -> None:
    """Set the y-axis from zero, or below negative data, to 12 % above the data, but at least to ``least``."""
    limits = [one.dataLim for one in axes.get_shared_y_axes().get_siblings(axes)]
    low = 1.12 * min(0.0, *(one.y0 for one in limits))
    high = max(least, *(1.12 * one.y1 for one in limits))
    axes.set_ylim(low, high if high > low else 1.0)


def _plain_numbers(axis: Any) -> None:
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.6g}"))


def _whole_ticks(axes: Any) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    low, high = axes.get_xlim()
    if high - low < 1:
        axes.set_xlim((low + high) / 2 - 0.5, (low + high) / 2 + 0.5)


def time_unit(seconds: float) -> tuple[str, float]:
    """Return the unit for an axis of this length in seconds, and the seconds of one unit."""
    for unit, size in (("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 3 * size:
            return unit, size
    return "seconds", 1.0


def to_svg(figure: Figure, name: str, description: str) -> str:
    """Return the figure as an ``<svg>`` element whose colors are CSS variables with a fallback.

    Args:
        figure: a figure that was made within ``style()``.
        name: basis of the ids in the element, different for every figure of a page.
        description: text for screen readers.
    """
    if layout := figure.get_layout_engine():
        layout.execute(figure)
    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": name, "figure.constrained_layout.use": False}):
        figure.set_layout_engine()  # A layout engine would make savefig draw the whole figure twice.
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r' (height|width)="[^"]*pt"', "", svg, count=2)
    # Two decimals of a point are enough for a screen, and make the file smaller.
    svg = re.sub(r' d="[^"]*"', lambda match: re.sub(r"(\.\d\d)\d+", r"\1", match[0]), svg)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
    svg = re.sub(r' id="([^"]+)"', lambda match: match[0] if match[1] in used else "", svg)
    for color, (light, _) in PALETTE.items():
        svg = svg.replace(light, f"var(--{color}, {light})")
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(description)}"', 1).strip()
