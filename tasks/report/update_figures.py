"""Figures of the metrics of every update: over the run, over staleness with a panel per stage, and as histograms.

figures.yaml says which metrics a figure shows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, NullLocator
from pydantic import BaseModel, ConfigDict

from tasks.report import drawing
from tasks.report.drawing import Picture, Series
from tasks.report.formats import percent
from tasks.report.history import History
from tasks.report.look import BLUE, INK, MUTED, ORANGE, PALETTE
from tasks.report.updates import Column, rolling, segments, thinned
from tasks.train.histogram import ADVANTAGE_EDGES, LOG_RATIO_EDGES

PANELS = 8
"""Of more stages than this, some are shown."""
_POINTS, _LONGEST, _ALL_POINTS = 360, 400, 3000
"""Points of a line over the run, of one over staleness, and of all of the latter in a figure."""
_RATIOS = (1e-6, 1e6)
"""A ratio beyond these is drawn at the edge."""
_LABELLED_STAGES, _MARKED = 8, 12
"""Most stages that are named above a panel, and most points that have a marker each."""
_SIGNS = {"negative": ORANGE, "positive": BLUE}


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Curve(_Settings):
    """A column of the metrics, and how it is drawn."""

    column: str
    text: str = ""
    """The entry of the legend; none where it is empty."""
    color: str = "blue"
    style: str = "-"
    width: float = 1.5
    shaded_from: str = ""
    """Another column; the area between the two is shaded, and is the entry of the legend."""
    of_veto: bool = False
    """Whether it is drawn only where the objective has a veto."""
    largest: bool = False
    """Whether a point that stands for several updates is their largest value; otherwise it is a mean or a median."""

    def handle(self, color: str = "") -> Any:
        """Return the entry of the legend, in this color or in that of the curve."""
        color = color or PALETTE[self.color][0]
        if self.shaded_from:
            return Patch(facecolor=color, alpha=0.35, label=self.text)
        return drawing.line(color, self.text, linestyle=self.style, linewidth=self.width)


class Panel(_Settings):
    """What a panel shows. Over staleness it stands for the panels of all stages."""

    title: str
    name: str | None = None
    """Name of the panel in the table, where this is not its title."""
    scale: Literal["plain", "zero", "percent", "log"] = "plain"
    curves: tuple[Curve, ...] = ()
    largest: str = ""
    """A column of largest values, drawn as one more curve."""
    limits: Literal["", "negative", "positive"] = ""
    """Sign of the advantage of the ratios that are shown: limits of the objective for it are drawn."""
    scatter: str = ""
    """A column whose updates are dots, with their running mean."""
    evaluated: str = ""
    """A number of the evaluated policies, drawn over their updates."""
    stages: bool = False
    """Whether the stages are named above the panel."""

    def known(self, history: History) -> list[Curve]:
        """Return the curves that a run has numbers of."""
        largest = Curve(column=self.largest, text="largest", color="muted", width=1.0, largest=True)
        curves = [*self.curves, largest] if self.largest else self.curves
        return [one for one in curves if history.known(one.column) and (history.vetoes or not one.of_veto)]


Handles = dict[str, Any]
"""Entries of a legend by their text."""


def over_updates(history: History, panels: Sequence[Panel]) -> Picture | None:
    """Draw panels above one another over the updates of the run; None where no update has a number of theirs."""
    measured = [one for one in panels if one.known(history) or (one.scatter and history.known(one.scatter))]
    shown = [one for one in panels if one in measured or len(_evaluated(history, one).x)]
    if not measured:
        return None
    figure, grid = drawing.panels(len(shown), drawing.TALL / len(shown) if len(shown) > 1 else 2.55)
    series: list[Series] = []
    handles: Handles = {}
    for axes, panel in zip(grid, shown, strict=True):
        series += _over_updates(axes, history, panel, handles)
        _finish(axes, history, panel, handles)
        drawing.boundaries(axes, [boundary + 0.5 for boundary in history.boundaries])
        axes.set_title(panel.title + "\n" * (panel.stages and len(history.stages) > 1))
        for stage in history.stages if panel.stages and 1 < len(history.stages) <= _LABELLED_STAGES else ():
            place = ((stage.first_update + stage.last_update) / 2, 1.0)
            look: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 9, "color": MUTED}
            axes.annotate(f"stage {stage.number}", place, xycoords=axes.get_xaxis_transform(), **look)
    drawing.whole_ticks(grid[0])
    grid[-1].set_xlabel("update")
    if handles:
        drawing.legend(figure, list(handles.values()), 3)
    return Picture(figure, series)


def _over_updates(axes: Any, history: History, panel: Panel, handles: Handles) -> list[Series]:
    """Draw the curves, the dots and the evaluated policies of a panel; add entries of the legend, and return series."""
    name = panel.title if panel.name is None else panel.name
    points, parts = max(8, _POINTS // len(history.stages)), list(segments(history.updates["stage"]))
    curves = panel.known(history)
    series = {one.column: _column(history, name, one.column, "update") for one in curves}
    for part in parts:
        _plot(axes, series, curves, part, points, np.mean, marked=1)
    handles |= {one.text: one.handle(MUTED) for one in curves if one.text}
    shown = list(series.values())
    if panel.scatter:
        shown += _scatter(axes, _column(history, name, panel.scatter, "update"), parts, points, handles)
    reached = _evaluated(history, panel)
    if len(reached.x):
        size, style = 5 if len(reached.x) <= drawing.MARKED_STAGES else 2.5, "D" if panel.scatter else "D-"
        axes.plot(reached.x, reached.y, style, color=ORANGE, markersize=size, linewidth=1.2)
        shown.append(reached)
    if len(reached.x) and panel.scatter:
        handles["held-out"] = drawing.line(ORANGE, "held-out", marker="D", linestyle="", markersize=size)
    return shown


def _evaluated(history: History, panel: Panel) -> Series:
    known = [(one.updates, getattr(one, panel.evaluated)) for one in history.evaluated if panel.evaluated]
    known = [(updates, value) for updates, value in known if value is not None]
    name = "held-out" if panel.scatter else panel.evaluated
    return Series.of(panel.title, name, [updates for updates, _ in known], [value for _, value in known])


def _scatter(axes: Any, each: Series, parts: Sequence[slice], points: int, handles: Handles) -> list[Series]:
    """Draw every update as a dot, and the running mean of a stage as a line."""
    window, together = max(1, len(each.y) // 32), -(-parts[0].stop // points)
    smooth = np.concatenate([rolling(each.y[part], window) for part in parts])
    mean = Series.of(each.panel, f"running mean over {window}", each.x, smooth)
    look: dict[str, Any] = {"alpha": 0.45, "markersize": 4.5} if window > 1 else {"markersize": 8}
    for part in parts:
        axes.plot(*_thinned(each, part, points, np.mean), ".", color=BLUE, markeredgewidth=0, **look)
        axes.plot(*_thinned(mean, part, points, np.mean), color=BLUE)
    text = f"mean of {together} updates" if together > 1 else "an update"
    handles[text] = drawing.line(BLUE, text, marker=".", linestyle="", alpha=0.5)
    if window > 1:
        handles[mean.name] = drawing.line(BLUE, mean.name)
    return [each, mean] if window > 1 else [each]


def shown_stages(history: History) -> list[int]:
    """Return all stages when they are few; else the first, the last and evenly spaced ones."""
    numbers = [stage.number for stage in history.stages]
    if len(numbers) <= PANELS:
        return numbers
    return [numbers[round(place)] for place in np.linspace(0, len(numbers) - 1, PANELS)]


def over_staleness(history: History, panel: Panel) -> Picture | None:
    """Draw the curves of a panel over staleness, in a small panel per stage; None without data."""
    curves = panel.known(history)
    if not curves or not history.known("staleness"):
        return None
    # Plain numbers differ too much between stages to share an axis.
    stages, same_scale = shown_stages(history), panel.scale != "plain"
    titles = [f"stage {number}" for number in stages]
    figure, grid = drawing.small_multiples(titles, panel.title, "staleness (updates)", same_scale=same_scale)
    points = min(_LONGEST, _ALL_POINTS // (len(curves) * len(stages)))
    shown: list[Series] = []
    handles: Handles = {one.text: one.handle() for one in curves if one.text}
    for axes, title, number in zip(grid, titles, stages, strict=True):
        rows = history.updates["stage"] == number
        series = {one.column: _column(history, title, one.column, "staleness", rows) for one in curves}
        _plot(axes, series, curves, slice(None), points, np.median, _MARKED)
        shown += series.values()
    for axes in grid:
        _finish(axes, history, panel, handles)
    drawing.whole_ticks(grid[0])
    drawing.legend(figure, list(handles.values()), 4)
    return Picture(figure, shown)


def _column(history: History, panel: str, name: str, x: str, rows: Column | slice = slice(None)) -> Series:
    return Series.of(panel, name, history.column(x)[rows], history.column(name)[rows])


def _plot(
    axes: Any,
    series: Mapping[str, Series],
    curves: Iterable[Curve],
    part: slice,
    points: int,
    reduce: Callable[[Column], Any],
    marked: int,
) -> None:
    """Draw curves through at most so many points of a part of their series; few of them are marked."""
    for one in curves:
        x, y = _thinned(series[one.column], part, points, np.max if one.largest else reduce)
        look: dict[str, Any] = {"color": PALETTE[one.color][0]}
        marker = "o" if len(x) <= marked else ""
        axes.plot(x, y, one.style, linewidth=one.width, marker=marker, markersize=3.5, **look)
        if one.shaded_from in series:
            beyond, other = _thinned(series[one.shaded_from], part, points, reduce)
            axes.fill_between(x, np.interp(x, beyond, other) if len(other) else y, y, alpha=0.18, linewidth=0, **look)


def _thinned(series: Series, part: slice, points: int, reduce: Callable[[Column], Any]) -> tuple[Column, Column]:
    values = np.clip(series.y, *_RATIOS) if series.name.startswith("ratio_") else series.y
    return thinned(series.x[part], values[part], points, reduce)


def _finish(axes: Any, history: History, panel: Panel, handles: Handles) -> None:
    """Draw the limits of a panel, and scale its y-axis."""
    for limit in _limits(history, panel.limits) if panel.limits else ():
        axes.axhline(limit, color=INK, linestyle=":", linewidth=1.2)
        handles["limit"] = drawing.line(INK, "clip or veto limit", linestyle=":", linewidth=1.2)
    drawing.scale_axis(axes, panel.scale)


def _limits(history: History, sign: str) -> list[float]:
    """Return where the objective clips a ratio of this sign, and where the veto triggers."""
    veto, gate = (history.objective.get(part, {}) for part in ("veto", "gate"))
    static = gate.get("kind") in ("one_side", "two_side") and gate.get("bounds") == "static"
    limits = [gate.get("high" if sign == "positive" else "low")] if static else []
    vetoes = veto.get("scope", "off") != "off" and veto.get("statistic") == "token_ratio"
    if vetoes and (sign == "negative" or veto.get("advantage_sign") == "all"):
        limits.append(veto.get("kappa"))
        if veto.get("direction") == "both":
            limits.append(1 / veto["kappa"])
    return [limit for limit in limits if limit]


def small_curves(update: Column, columns: Mapping[str, Column], name: str) -> str:
    """Return an ``<svg>`` with a small panel per column over the updates; empty where no number is known.

    Args:
        update: the updates, ascending.
        columns: numbers by the title of their panel, NaN where there is none.
        name: prefix of the ids inside.
    """
    lines = {title: thinned(update, column, _POINTS // 3, np.mean) for title, column in columns.items()}
    lines = {title: line for title, line in lines.items() if len(line[0])}
    if not lines:
        return ""
    with drawing.style():
        figure, grid = drawing.small_multiples(list(lines), "", "update", same_scale=False)
        for axes, (x, y) in zip(grid, lines.values(), strict=True):
            axes.plot(x, y, color=BLUE, linewidth=1.3, marker="o" if len(x) == 1 else "", markersize=4)
            drawing.scale_axis(axes, "plain")
        drawing.whole_ticks(grid[0])
        return drawing.to_svg(figure, name, f"Over the updates: {', '.join(lines)}")


def histogram_counts(history: History, one: str, other: str) -> dict[int, tuple[Column, Column]]:
    """Return two histograms of tokens, each summed over the updates of a stage, for the stages that are shown.

    A stage is left out when its updates did not count, or counted no tokens.
    """
    found = {}
    for number in shown_stages(history):
        rows = history.updates["stage"] == number
        pair = history.histograms[one][rows], history.histograms[other][rows]
        if not any(np.isnan(counts).all() for counts in pair) and np.nansum(pair) > 0:
            found[number] = (np.nansum(pair[0], axis=0), np.nansum(pair[1], axis=0))
    return found


def advantages(history: History) -> Picture | None:
    """Draw histograms of the tokens' advantages before and after the veto."""
    drawn = histogram_counts(history, "advantage_histogram", "advantage_histogram_kept")
    if not drawn:
        return None
    titles = [f"stage {number}" for number in drawn]
    if history.vetoes:
        shares = [1 - kept.sum() / counts.sum() for counts, kept in drawn.values()]
        titles = [f"{title}, {percent(share)} vetoed" for title, share in zip(titles, shares, strict=True)]
    figure, grid = drawing.small_multiples(titles, "share of the stage's tokens", "advantage")
    middles, shown = (ADVANTAGE_EDGES[:-1] + ADVANTAGE_EDGES[1:]) / 2, []
    for axes, (number, (counts, kept)) in zip(grid, drawn.items(), strict=True):
        for name, tokens, color in (("all", counts, ORANGE), ("kept", kept, BLUE)):
            shown.append(Series.of(f"stage {number}", name, middles, tokens / counts.sum()))
            axes.stairs(shown[-1].y, ADVANTAGE_EDGES, fill=True, color=color)
    drawing.percent_axis(grid[0])
    grid[0].xaxis.set_major_locator(FixedLocator([-4, -2, 0, 2, 4]))
    if history.vetoes:
        drawing.legend(figure, [Patch(facecolor=BLUE, label="kept"), Patch(facecolor=ORANGE, label="vetoed")], 2)
    return Picture(figure, shown)


def ratio_histograms(history: History) -> Picture | None:
    """Draw histograms of the tokens' ratios for each sign of the advantage."""
    drawn = histogram_counts(history, *(f"ratio_histogram_{sign}" for sign in _SIGNS))
    if not drawn:
        return None
    titles = [f"stage {number}" for number in drawn]
    figure, grid = drawing.small_multiples(titles, "share of the tokens with one sign of A", "ratio")
    middles, shown = np.exp((LOG_RATIO_EDGES[:-1] + LOG_RATIO_EDGES[1:]) / 2), []
    for axes, title, both in zip(grid, titles, drawn.values(), strict=True):
        for (name, color), counts in zip(_SIGNS.items(), both, strict=True):
            shown.append(Series.of(title, name, middles, counts / max(1.0, counts.sum())))
            axes.stairs(shown[-1].y, np.exp(LOG_RATIO_EDGES), baseline=None, color=color, linewidth=1.3)
    smallest = min(float(one.y[one.y > 0].min()) for one in shown if one.y.any())
    for axes in grid:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator([0.1, 0.3, 1, 3, 10]))
        drawing.plain_numbers(axes.xaxis)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_ylim(smallest / 2, 2)
    drawing.log_axis(grid[0])
    drawing.legend(figure, [drawing.line(ORANGE, "A < 0"), drawing.line(BLUE, "A > 0")], 2)
    return Picture(figure, shown)
