"""Figures of what staleness does to the updates, a panel per stage; and the advantages of every stage."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from tasks.report import drawing
from tasks.report.formats import percent
from tasks.report.history import History
from tasks.report.palette import BLUE, GREEN, MUTED, ORANGE
from tasks.report.series import Picture, Series
from tasks.report.training_figures import draw_limits
from tasks.report.updates import Column, thinned
from tasks.train.histogram import ADVANTAGE_EDGES, LOG_RATIO_EDGES

PANELS = 8
"""More stages than this are represented by some of them."""
_STALENESS = "staleness (updates)"
_POINTS, _LONGEST = 3000, 400
"""Points of all lines of a figure, so that it stays light, and of one."""
_RATIOS = (1e-6, 1e6)
"""Ratios beyond are drawn here."""
_SHADE: dict[str, Any] = {"alpha": 0.18, "linewidth": 0}
_MARKED = 12
"""A line of fewer points has a marker at each."""


@dataclass(frozen=True)
class _Look:
    """A column of the metrics, and how it is drawn."""

    column: str
    text: str
    color: str
    style: str = "-"
    width: float = 1.5
    reduce: Callable[[Column], Any] = np.median
    """What becomes of updates that share a point."""
    shaded_from: str = ""
    """Another column; what lies between the two is shaded."""


def shown_stages(history: History) -> list[int]:
    """All stages when they are few; else the first, the last and evenly spaced ones."""
    numbers = [stage.number for stage in history.stages]
    if len(numbers) <= PANELS:
        return numbers
    return [numbers[round(place)] for place in np.linspace(0, len(numbers) - 1, PANELS)]


def clip_veto(history: History) -> Picture | None:
    """Shares of tokens that clipping and the veto touch."""
    series = [_Look("clip_fraction", "clipped", BLUE)]
    if history.vetoes:
        series += [
            _Look("veto_fraction", "vetoed", GREEN, "--"),
            _Look("veto_fraction_negative", "vetoed, of tokens with A < 0", ORANGE),
        ]
    return _lines(history, "share of response tokens", series, _percents)


def triggers(history: History) -> Picture | None:
    """How many responses with negative advantage have a trigger, and where in the response it falls."""
    series = [
        _Look("trigger_share_negative", "share of them with a trigger", ORANGE),
        _Look("trigger_position", "share of the response before it", BLUE, "--"),
    ]
    return _lines(history, "responses with A < 0", series, _percents) if history.vetoes else None


def ess(history: History) -> Picture | None:
    """Effective sample size."""
    return _lines(history, "effective share of the tokens", [_Look("ess", "ESS", BLUE)], _percents)


def kl(history: History) -> Picture | None:
    """Two estimates of the divergence from the behavior policy."""
    series = [_Look("kl_k1", "k1", BLUE, "--"), _Look("kl_k3", "k3", ORANGE)]
    return _lines(history, "nats per token", series, _plain_numbers, same_scale=False)


def ratios(history: History, sign: str) -> Picture | None:
    """Quantiles of the importance ratio of tokens with one sign of the advantage."""
    color = ORANGE if sign == "negative" else BLUE
    series = [
        _Look(f"ratio_p01_{sign}", "p01", color, width=0.8),
        _Look(f"ratio_p99_{sign}", "p99", color, width=0.8, shaded_from=f"ratio_p01_{sign}"),
        _Look(f"ratio_p50_{sign}", "p50", color),
        _Look(f"ratio_max_{sign}", "largest", MUTED, width=1.0, reduce=np.max),
    ]

    def finish(grid: list[Any]) -> None:
        limits = [draw_limits(axes, history, sign) for axes in grid]
        handles.extend(limits[0])
        drawing.log_axis(grid[0])

    handles = [
        Patch(facecolor=color, alpha=0.35, label="p01 to p99"),
        drawing.line(color, "p50"),
        drawing.line(MUTED, "largest", linewidth=1.0),
    ]
    what = f"ratio of tokens with A {'<' if sign == 'negative' else '>'} 0"
    return _lines(history, what, series, finish, handles)


def _lines(
    history: History,
    what: str,
    series: Sequence[_Look],
    finish: Callable[[list[Any]], None],
    handles: Sequence[Any] | None = None,
    same_scale: bool = True,
) -> Picture | None:
    """A line per series in the panel of every stage; None without data.

    Args:
        history: the run.
        what: the y-axis shows.
        series: of which those are drawn that the run knows.
        finish: sees to the axes afterwards.
        handles: of the legend; by default the series.
        same_scale: the panels have one y-axis.
    """
    series = [one for one in series if history.known(one.column)]
    if not series or not history.known("staleness"):
        return None
    stages = shown_stages(history)
    titles = [f"stage {number}" for number in stages]
    figure, grid = drawing.small_multiples(titles, what, _STALENESS, same_scale=same_scale)
    points = min(_LONGEST, _POINTS // (len(series) * len(stages)))
    numbers: list[Series] = []
    for axes, title, number in zip(grid, titles, stages, strict=True):
        own = {one.column: _of_stage(history, one.column, number, title) for one in series}
        numbers += own.values()
        for one in series:
            x, y = _points(own[one.column], one, points)
            marker = "o" if len(x) <= _MARKED else ""
            axes.plot(x, y, one.style, color=one.color, linewidth=one.width, marker=marker, markersize=3.5)
            if one.shaded_from in own:
                beyond, other = _points(own[one.shaded_from], one, points)
                axes.fill_between(x, np.interp(x, beyond, other) if len(other) else y, y, color=one.color, **_SHADE)
    finish(grid)
    drawing.whole_ticks(grid[0])
    shown = [drawing.line(one.color, one.text, linestyle=one.style, linewidth=one.width) for one in series]
    drawing.legend(figure, handles or shown, 4)
    return Picture(figure, numbers)


def _of_stage(history: History, column: str, stage: int, panel: str) -> Series:
    """A column over staleness within a stage."""
    rows = history.updates["stage"] == stage
    return Series.of(panel, column, history.updates["staleness"][rows], history.column(column)[rows])


def _points(series: Series, look: _Look, points: int) -> tuple[Column, Column]:
    """What is drawn of a series."""
    values = np.clip(series.y, *_RATIOS) if series.name.startswith("ratio_") else series.y
    return thinned(series.x, values, points, look.reduce)


def _percents(grid: list[Any]) -> None:
    drawing.percent_axis(grid[0])


def _plain_numbers(grid: list[Any]) -> None:
    for axes in grid:
        axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.6g}"))


def advantage_counts(history: History, stage: int) -> tuple[Column, Column] | None:
    """Tokens of a stage's updates by advantage, in bins of ADVANTAGE_EDGES: all, and those that are not vetoed.

    None when its updates did not count them.
    """
    return _counts(history, stage, "advantage_histogram", "advantage_histogram_kept")


def _counts(history: History, stage: int, one: str, other: str) -> tuple[Column, Column] | None:
    """Two histograms of tokens, each summed over a stage's updates; None when its updates did not count them."""
    rows = history.updates["stage"] == stage
    counts, others = history.histograms[one][rows], history.histograms[other][rows]
    if np.isnan(counts).all() or np.isnan(others).all():
        return None
    return np.nansum(counts, axis=0), np.nansum(others, axis=0)


def advantages(history: History) -> Picture | None:
    """Histograms of the tokens' advantages before and after the veto."""
    if not history.stages:
        return None
    counted = {number: advantage_counts(history, number) for number in shown_stages(history)}
    drawn = {number: counts for number, counts in counted.items() if counts is not None and counts[0].sum() > 0}
    if not drawn:
        return None
    titles = [f"stage {number}" for number in drawn]
    if history.vetoes:
        shares = [1 - kept.sum() / counts.sum() for counts, kept in drawn.values()]
        titles = [f"{title}, {percent(share)} vetoed" for title, share in zip(titles, shares, strict=True)]
    figure, grid = drawing.small_multiples(titles, "share of the stage's tokens", "advantage")
    middles, numbers = (ADVANTAGE_EDGES[:-1] + ADVANTAGE_EDGES[1:]) / 2, []
    for axes, (number, (counts, kept)) in zip(grid, drawn.items(), strict=True):
        for name, tokens, color in (("all", counts, ORANGE), ("kept", kept, BLUE)):
            share = Series.of(f"stage {number}", name, middles, tokens / counts.sum())
            axes.stairs(share.y, ADVANTAGE_EDGES, fill=True, color=color)
            numbers.append(share)
    drawing.percent_axis(grid[0])
    grid[0].xaxis.set_major_locator(FixedLocator([-4, -2, 0, 2, 4]))
    if history.vetoes:
        drawing.legend(figure, [Patch(facecolor=BLUE, label="kept"), Patch(facecolor=ORANGE, label="vetoed")], 2)
    return Picture(figure, numbers)


def ratio_histograms(history: History) -> Picture | None:
    """Histograms of the tokens' ratios, apart for negative and positive advantage."""
    counted = {
        number: _counts(history, number, "ratio_histogram_negative", "ratio_histogram_positive")
        for number in shown_stages(history)
    }
    drawn = {number: counts for number, counts in counted.items() if counts is not None and np.sum(counts) > 0}
    if not drawn:
        return None
    titles = [f"stage {number}" for number in drawn]
    figure, grid = drawing.small_multiples(titles, "share of the tokens with one sign of A", "ratio")
    middles, numbers = np.exp((LOG_RATIO_EDGES[:-1] + LOG_RATIO_EDGES[1:]) / 2), []
    for axes, (number, both) in zip(grid, drawn.items(), strict=True):
        for name, counts, color in zip(("negative", "positive"), both, (ORANGE, BLUE), strict=True):
            share = Series.of(f"stage {number}", name, middles, counts / max(1.0, counts.sum()))
            axes.stairs(share.y, np.exp(LOG_RATIO_EDGES), baseline=None, color=color, linewidth=1.3)
            numbers.append(share)
    smallest = min(float(one.y[one.y > 0].min()) for one in numbers if one.y.any())
    for axes in grid:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator([0.1, 0.3, 1, 3, 10]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_ylim(smallest / 2, 2)
    drawing.log_axis(grid[0])
    drawing.legend(figure, [drawing.line(ORANGE, "A < 0"), drawing.line(BLUE, "A > 0")], 2)
    return Picture(figure, numbers)
