"""Accuracy over updates, arm by arm."""

import io
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from tasks.report import drawing
from tasks.report.look import BLUE

_COLUMNS = 4
_PANEL_INCHES = (2.6, 1.9)


@dataclass(frozen=True)
class Curve:
    """An arm. Legend of shapes: S seeds, E evaluations."""

    name: str
    update_E: npt.NDArray[np.int64]
    accuracy_SE: npt.NDArray[np.float64]


def draw_curves(curves: list[Curve], title: str) -> str:
    """A panel per arm: every seed as a thin line, their mean as a thick one. Standalone SVG."""
    columns = min(_COLUMNS, len(curves))
    rows = -(-len(curves) // columns)
    with drawing.style():
        figure = Figure(figsize=(_PANEL_INCHES[0] * columns, _PANEL_INCHES[1] * rows + 0.3))
        FigureCanvasSVG(figure)
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flatten()
        for axes, curve in zip(grid, curves, strict=False):
            for accuracy_E in curve.accuracy_SE:
                axes.plot(curve.update_E, 100 * accuracy_E, color=BLUE, alpha=0.35, linewidth=1)
            axes.plot(curve.update_E, 100 * curve.accuracy_SE.mean(0), color=BLUE)
            axes.set_title(curve.name)
            axes.set_ylim(0, 100)
        for axes in grid[len(curves) :]:
            axes.set_visible(False)
        for axes in grid[::columns]:
            axes.set_ylabel("avg@k, %")
        for axes in grid[max(0, len(curves) - columns) : len(curves)]:
            axes.set_xlabel("update")
            axes.tick_params(labelbottom=True)
        buffer = io.StringIO()
        with rc_context({"svg.hashsalt": title}):
            figure.savefig(buffer, format="svg", facecolor="white", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()
