"""The parts that the figures of a comparison share: a figure with its data, and the look of a system in all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tasks.experiments.result import ReproductionResult
from tasks.report import drawing
from tasks.report.history import History
from tasks.report.look import BLUE, GREEN, INK, MUTED, ORANGE

Row = Mapping[str, Any]
_COLORS, _STYLES, _MARKERS = (BLUE, ORANGE, GREEN, INK, MUTED), ("-", (0, (4, 1.5)), (0, (1.2, 1.2))), "osD^v"
MARKED_STAGES = 16
"""More boundaries than those between so many stages would hide the data."""


@dataclass(frozen=True)
class Sketch:
    """A figure before it is SVG."""

    figure: Figure
    data: Sequence[Row]
    """What is drawn, row by row."""
    title: str
    caption: str


@dataclass(frozen=True)
class Look:
    """How a system is drawn; the reference is blue."""

    color: str
    style: Any
    marker: str


def looks(result: ReproductionResult) -> dict[str, Look]:
    """Return the look of every system, the same in all figures."""
    ordered = [result.reference, *(system for system in result.systems if system != result.reference)]
    colors = len(_COLORS)
    return {
        system: Look(_COLORS[place % colors], _STYLES[place // colors % len(_STYLES)], _MARKERS[place % len(_MARKERS)])
        for place, system in enumerate(ordered)
    }


def handles(systems: Sequence[str], looks_of: Mapping[str, Look]) -> list[Any]:
    """Return the handles of a legend: a line per system."""
    return [
        drawing.line(
            looks_of[name].color, name, linestyle=looks_of[name].style, marker=looks_of[name].marker, markersize=4
        )
        for name in systems
    ]


def time_axis(axes: Any, longest: float, what: str) -> None:
    """Label an x-axis of seconds in the unit that fits."""
    name, seconds = drawing.time_unit(longest)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / seconds:g}"))
    axes.xaxis.set_major_locator(_Multiples(seconds))
    axes.set_xlabel(f"{what}, {name}")


class _Multiples(MaxNLocator):
    """Ticks that are round numbers of a unit."""

    def __init__(self, unit: float) -> None:
        super().__init__(6, steps=[1, 2, 2.5, 5, 10])
        self._unit = unit

    def tick_values(self, vmin: float, vmax: float) -> Any:
        """The ticks between two ends."""
        return np.asarray(super().tick_values(vmin / self._unit, vmax / self._unit)) * self._unit


def mark_stages(axes: Any, history: History | None) -> None:
    """Draw dotted lines between the stages of a run, over an axis of updates."""
    if history is not None and len(history.stages) <= MARKED_STAGES:
        for boundary in history.boundaries:
            axes.axvline(boundary + 0.5, color=MUTED, linewidth=0.8, linestyle=(0, (3, 3)), zorder=1)
