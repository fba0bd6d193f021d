"""Figures of the metrics of every update: over the run, over staleness with a panel per stage, and as histograms."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from tasks.optimize.histogram import ADVANTAGE_EDGES, LOG_RATIO_EDGES
from tasks.report import drawing
from tasks.report.drawing import Picture, Series
from tasks.report.formats import percent
from tasks.report.history import History
from tasks.report.look import BLUE, GREEN, INK, MUTED, ORANGE
from tasks.report.updates import Column, rolling, segments, thinned

PANELS = 8
"""Of more stages than this, some are shown."""
_POINTS, _LONGEST, _ALL_POINTS = 360, 400, 3000
"""Points of a line over the run, of one over staleness, and of all of the latter in a figure."""
_RATIOS = (1e-6, 1e6)
"""A ratio beyond these is drawn at the edge."""
_LABELLED_STAGES, _MARKED = 8, 12
"""Most stages that are named above a panel, and most points that have a marker each."""
_SIGNS = {"negative": ORANGE, "positive": BLUE}


@dataclass(frozen=True)
class _Curve:
    """A column of the metrics, and how it is drawn."""

    column: str
    text: str
    color: str = BLUE
    style: str = "-"
    width: float = 1.5
    reduce: Callable[[Column], Any] | None = None
    """Reduces the values that share a point, where this is not what the figure does."""
    shaded_from: str = ""
    """Another column; the area between the two is shaded."""

    @property
    def handle(self) -> Any:
        """The entry of the legend."""
        return drawing.line(self.color, self.text, linestyle=self.style, linewidth=self.width)


def _quantiles(sign: str) -> list[_Curve]:
    color = _SIGNS[sign]
    return [
        _Curve(f"ratio_p01_{sign}", "p01", color, width=0.8),
        _Curve(f"ratio_p99_{sign}", "p99", color, width=0.8, shaded_from=f"ratio_p01_{sign}"),
        _Curve(f"ratio_p50_{sign}", "p50", color),
    ]


def _plot(
    axes: Any,
    history: History,
    panel: str,
    curves: Sequence[_Curve],
    x: str,
    rows: Column | slice,
    parts: Iterable[slice],
    points: int,
    reduce: Callable[[Column], Any],
    marked: int,
) -> list[Series]:
    """Draw curves into a panel, and return their series.

    Args:
        axes: the panel.
        history: the run.
        panel: name of the panel in the table.
        curves: what is drawn.
        x: the column of the x-axis.
        rows: the updates that belong to the panel.
        parts: slices of these; no line is drawn from one to the next.
        points: the most points of a line in one part.
        reduce: reduces the values that share a point.
        marked: a line of at most so many points has a marker at each.
    """
    shown = {
        one.column: Series.of(panel, one.column, history.column(x)[rows], history.column(one.column)[rows])
        for one in curves
    }
    for part in parts:
        for one in curves:
            across, up = _thinned(shown[one.column], part, points, one.reduce or reduce)
            marker = "o" if len(across) <= marked else ""
            axes.plot(across, up, one.style, color=one.color, linewidth=one.width, marker=marker, markersize=3.5)
            if one.shaded_from in shown:
                beyond, other = _thinned(shown[one.shaded_from], part, points, reduce)
                low = np.interp(across, beyond, other) if len(other) else up
                axes.fill_between(across, low, up, color=one.color, alpha=0.18, linewidth=0)
    return list(shown.values())


def _thinned(series: Series, part: slice, points: int, reduce: Callable[[Column], Any]) -> tuple[Column, Column]:
    values = np.clip(series.y, *_RATIOS) if series.name.startswith("ratio_") else series.y
    return thinned(series.x[part], values[part], points, reduce)


def _over_updates(axes: Any, history: History, panel: str, curves: Sequence[_Curve]) -> list[Series]:
    """Draw curves over the updates of the run, stage by stage."""
    points = max(8, _POINTS // len(history.stages))
    parts = segments(history.updates["stage"])
    return _plot(axes, history, panel, curves, "update", slice(None), parts, points, np.mean, marked=1)


def _mark_stages(axes: Any, history: History, *, named: bool = False) -> None:
    drawing.boundaries(axes, [boundary + 0.5 for boundary in history.boundaries])
    for stage in history.stages if named and len(history.stages) <= _LABELLED_STAGES else ():
        place = ((stage.first_update + stage.last_update) / 2, 1.0)
        look = {"ha": "center", "va": "bottom", "fontsize": 9, "color": MUTED}
        axes.annotate(f"stage {stage.number}", place, xycoords=axes.get_xaxis_transform(), **look)
    drawing.whole_ticks(axes)


def _scatter(axes: Any, history: History, name: str, panel: str = "") -> tuple[list[Any], list[Series]]:
    """Draw every update as a dot, and the running mean of a stage as a line; return legend entries and series."""
    stage, values = history.updates["stage"], history.column(name)
    window, points = max(1, len(values) // 32), max(8, _POINTS // len(history.stages))
    smooth = np.concatenate([rolling(values[part], window) for part in segments(stage)])
    each = Series.of(panel, name, history.updates["update"], values)
    mean = Series.of(panel, f"running mean over {window}", each.x, smooth)
    look: dict[str, Any] = {"color": BLUE, "markeredgewidth": 0}
    for part in segments(stage):
        axes.plot(*_thinned(mean, part, points, np.mean), color=BLUE)
        dots = _thinned(each, part, points, np.mean)
        axes.plot(*dots, ".", alpha=0.45 if window > 1 else 1.0, markersize=4.5 if window > 1 else 8, **look)
    together = -(-history.stages[0].last_update // points)
    text = f"mean of {together} updates" if together > 1 else "an update"
    handles = [drawing.line(BLUE, text, marker=".", linestyle="", alpha=0.5), drawing.line(BLUE, mean.name)]
    return (handles, [each, mean]) if window > 1 else (handles[:1], [each])


def reward(history: History) -> Picture | None:
    """Draw the mean reward of every update's responses."""
    if not history.known("reward"):
        return None
    figure, (axes,) = drawing.panels(1, 2.55)
    handles, shown = _scatter(axes, history, "reward")
    _mark_stages(axes, history, named=True)
    axes.set_title("mean reward\n" if history.boundaries else "mean reward")
    axes.set_xlabel("update")
    drawing.legend(figure, handles, 2)
    return Picture(figure, shown)


def ratios(history: History) -> Picture | None:
    """Draw quantiles of the importance ratio over the run, for each sign of the advantage."""
    signs = [sign for sign in _SIGNS if history.known(f"ratio_p50_{sign}")]
    if not signs:
        return None
    figure, grid = drawing.panels(len(signs), drawing.TALL / len(signs))
    handles: list[Any] = [Patch(facecolor=MUTED, alpha=0.35, label="p01 to p99"), drawing.line(MUTED, "p50")]
    shown, limits = [], []
    for axes, sign in zip(grid, signs, strict=True):
        shown += _over_updates(axes, history, f"{sign} advantage", _quantiles(sign))
        limits += _draw_limits(axes, history, sign)
        drawing.log_axis(axes)
        _mark_stages(axes, history)
        axes.set_title(f"ratio, {sign} advantage")
    grid[-1].set_xlabel("update")
    drawing.legend(figure, [*handles, *limits[:1]], 3)
    return Picture(figure, shown)


def _draw_limits(axes: Any, history: History, sign: str) -> list[Any]:
    """Draw dotted lines where the objective clips a ratio of this sign, and where the veto triggers.

    Returns:
        The legend's entry; nothing where there is no limit.
    """
    objective = history.objective
    veto = objective.get("veto", {})
    gate = objective.get("gate", {})
    static = gate.get("kind") in ("one_side", "two_side") and gate.get("bounds") == "static"
    limits = [gate.get("high" if sign == "positive" else "low")] if static else []
    vetoes = veto.get("scope", "off") != "off" and veto.get("statistic") == "token_ratio"
    if vetoes and (sign == "negative" or veto.get("advantage_sign") == "all"):
        limits.append(veto.get("kappa"))
        if veto.get("direction") == "both":
            limits.append(1 / veto["kappa"])
    limits = [limit for limit in limits if limit]
    for limit in limits:
        axes.axhline(limit, color=INK, linestyle=":", linewidth=1.2)
    return [drawing.line(INK, "clip or veto limit", linestyle=":", linewidth=1.2)] if limits else []


def stability(history: History) -> Picture | None:
    """Draw entropy, divergence and gradient norm above one another."""
    titles = {
        _Curve("entropy", "", GREEN, width=1.3): "entropy (nats per token)",
        _Curve("kl_k3", "", ORANGE, width=1.3): "KL from the behavior policy (nats per token, k3)",
        _Curve("grad_norm", "", BLUE, width=1.3): "gradient norm before clipping",
    }
    known = [curve for curve in titles if history.known(curve.column)]
    if not known:
        return None
    figure, grid = drawing.panels(len(known), 1.03 * drawing.TALL / len(known))
    shown = []
    for axes, curve in zip(grid, known, strict=True):
        shown += _over_updates(axes, history, titles[curve], [curve])
        axes.yaxis.set_major_locator(MaxNLocator(3))
        drawing.from_zero(axes)
        _mark_stages(axes, history)
        axes.set_title(titles[curve])
    grid[-1].set_xlabel("update")
    return Picture(figure, shown)


def length(history: History) -> Picture | None:
    """Draw the tokens of a response, and the share of responses that were cut off."""
    if not history.known("response_tokens"):
        return None
    top, bottom = "tokens of a response", "truncated, held-out problems"
    known = [(one.updates, one.response_tokens) for one in history.evaluated if one.response_tokens]
    cut = [(one.updates, one.truncated) for one in history.evaluated if one.truncated is not None]
    held_out = Series.of(top, "held-out", [updates for updates, _ in known], [tokens for _, tokens in known])
    truncated = Series.of(bottom, "truncated", [updates for updates, _ in cut], [share for _, share in cut])
    figure, grid = drawing.panels(2 if cut else 1, drawing.TALL / (2 if cut else 1))
    size = 5 if len(known) <= drawing.MARKED_STAGES else 2.5
    handles, shown = _scatter(grid[0], history, "response_tokens", top)
    grid[0].set_title(top)
    if known:
        grid[0].plot(held_out.x, held_out.y, "D", color=ORANGE, markersize=size)
        handles.append(drawing.line(ORANGE, held_out.name, marker="D", linestyle="", markersize=size))
    drawing.from_zero(grid[0])
    if cut:
        grid[1].plot(truncated.x, truncated.y, "D-", color=ORANGE, markersize=size, linewidth=1.2)
        drawing.percent_axis(grid[1])
        grid[1].set_title(bottom)
    for axes in grid:
        _mark_stages(axes, history)
    grid[-1].set_xlabel("update")
    drawing.legend(figure, handles, 3)
    return Picture(figure, [*shown, held_out, truncated])


def shown_stages(history: History) -> list[int]:
    """Return all stages when they are few; else the first, the last and evenly spaced ones."""
    numbers = [stage.number for stage in history.stages]
    if len(numbers) <= PANELS:
        return numbers
    return [numbers[round(place)] for place in np.linspace(0, len(numbers) - 1, PANELS)]


def clip_veto(history: History) -> Picture | None:
    """Draw the shares of tokens that clipping and the veto touch."""
    curves = [_Curve("clip_fraction", "clipped", BLUE)]
    if history.vetoes:
        curves.append(_Curve("veto_fraction", "vetoed", GREEN, "--"))
        curves.append(_Curve("veto_fraction_negative", "vetoed, of tokens with A < 0", ORANGE))
    return _over_staleness(history, "share of response tokens", curves, _percents)


def triggers(history: History) -> Picture | None:
    """Draw how many responses with negative advantage have a trigger, and where in the response it falls."""
    curves = [
        _Curve("trigger_share_negative", "share of them with a trigger", ORANGE),
        _Curve("trigger_position", "share of the response before it", BLUE, "--"),
    ]
    return _over_staleness(history, "responses with A < 0", curves, _percents) if history.vetoes else None


def ess(history: History) -> Picture | None:
    """Draw the effective sample size."""
    return _over_staleness(history, "effective share of the tokens", [_Curve("ess", "ESS")], _percents)


def kl(history: History) -> Picture | None:
    """Draw two estimates of the divergence from the behavior policy."""
    curves = [_Curve("kl_k1", "k1", BLUE, "--"), _Curve("kl_k3", "k3", ORANGE)]

    def finish(grid: list[Any]) -> None:
        for axes in grid:
            axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
            drawing.plain_numbers(axes.yaxis)

    return _over_staleness(history, "nats per token", curves, finish, same_scale=False)


def ratios_over_staleness(history: History, sign: str) -> Picture | None:
    """Draw quantiles of the importance ratio of tokens with one sign of the advantage."""
    curves = [*_quantiles(sign), _Curve(f"ratio_max_{sign}", "largest", MUTED, width=1.0, reduce=np.max)]
    handles = [Patch(facecolor=_SIGNS[sign], alpha=0.35, label="p01 to p99"), *(one.handle for one in curves[2:])]

    def finish(grid: list[Any]) -> None:
        limits = [_draw_limits(axes, history, sign) for axes in grid]
        handles.extend(limits[0])
        drawing.log_axis(grid[0])

    what = f"ratio of tokens with A {'<' if sign == 'negative' else '>'} 0"
    return _over_staleness(history, what, curves, finish, handles)


def _over_staleness(
    history: History,
    what: str,
    curves: Sequence[_Curve],
    finish: Callable[[list[Any]], None],
    handles: Sequence[Any] | None = None,
    same_scale: bool = True,
) -> Picture | None:
    """Draw curves over staleness in a panel per stage; None without data.

    Args:
        history: the run.
        what: what the y-axis shows.
        curves: those that the run knows are drawn.
        finish: sets up the axes afterwards.
        handles: entries of the legend; by default the curves.
        same_scale: whether the panels share their y-axis.
    """
    curves = [one for one in curves if history.known(one.column)]
    if not curves or not history.known("staleness"):
        return None
    stages = shown_stages(history)
    figure, grid = drawing.small_multiples(
        [f"stage {number}" for number in stages], what, "staleness (updates)", same_scale=same_scale
    )
    points = min(_LONGEST, _ALL_POINTS // (len(curves) * len(stages)))
    shown: list[Series] = []
    for axes, number in zip(grid, stages, strict=True):
        rows, all_of_it = history.updates["stage"] == number, [slice(None)]
        panel = f"stage {number}"
        shown += _plot(axes, history, panel, curves, "staleness", rows, all_of_it, points, np.median, _MARKED)
    finish(grid)
    drawing.whole_ticks(grid[0])
    drawing.legend(figure, handles or [one.handle for one in curves], 4)
    return Picture(figure, shown)


def _percents(grid: list[Any]) -> None:
    drawing.percent_axis(grid[0])


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
            share = Series.of(f"stage {number}", name, middles, tokens / counts.sum())
            axes.stairs(share.y, ADVANTAGE_EDGES, fill=True, color=color)
            shown.append(share)
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
    for axes, (number, both) in zip(grid, drawn.items(), strict=True):
        for (name, color), counts in zip(_SIGNS.items(), both, strict=True):
            share = Series.of(f"stage {number}", name, middles, counts / max(1.0, counts.sum()))
            axes.stairs(share.y, np.exp(LOG_RATIO_EDGES), baseline=None, color=color, linewidth=1.3)
            shown.append(share)
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
            axes.yaxis.set_major_locator(MaxNLocator(3))
            drawing.plain_numbers(axes.yaxis)
        drawing.whole_ticks(grid[0])
        return drawing.to_svg(figure, name, f"Over the updates: {', '.join(lines)}")
