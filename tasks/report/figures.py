"""The figures of a run, each as SVG and as a table of what it shows. A figure without data is left out.

figures.yaml has the words beside each figure and, of figures of metrics, what they show.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Literal

import numpy as np
from matplotlib.figure import Figure as Drawing
from pydantic import BaseModel, ConfigDict

from tasks.evaluate.statistics import Interval
from tasks.formats import label
from tasks.report import drawing
from tasks.report.drawing import Chart, Look, Panel, Picture, Scale, Series
from tasks.report.history import Column, History
from tasks.report.ledger import make_ledger, seconds_before, stage_clock, steps_of
from tasks.report.look import BLUE, GREEN, INK, MUTED, ORANGE
from tasks.settings.base import read_packaged_yaml
from tasks.train.outcome import EDGES

PANELS = 8
"""Most stages that a figure has a panel or a row for."""
_COLORS = {"generate": BLUE, "verify": GREEN, "optimize": ORANGE, "alternate": ORANGE, "evaluate": INK}
"""The colors of tasks in the timeline; those that prepare share one."""


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Curve(Look):
    """A column of the metrics, and how it is drawn."""

    column: str
    low: str = ""
    high: str = ""
    evaluated: bool = False
    """If True, it is a number of the evaluated policies, over their updates."""
    of_veto: bool = False
    """If True, it is drawn only where the objective has a veto."""

    def has_numbers(self, history: History) -> bool:
        """Return whether a run has numbers for it."""
        if self.evaluated:
            return any(getattr(one, self.column) is not None for one in history.evaluated)
        counted = self.column in EDGES and np.nansum(history.histograms[self.column]) > 0
        return (counted or history.has_numbers(self.column)) and (history.vetoes or not self.of_veto)

    def series(self, history: History, panel: str, x: str, rows: Column) -> Series:
        """Return its numbers in some updates over another column; counts over their bins, as shares of the tokens."""
        if self.column in EDGES:
            edges, counts = EDGES[self.column], history.histograms[self.column][rows]
            shares = np.nansum(counts, axis=0) / np.nansum(history.column("tokens")[rows])
            known = shares if shares.any() else np.full(len(shares), np.nan)
            return Series(panel, self.column, (edges[:-1] + edges[1:]) / 2, known, look=self)
        columns = [history.column(name)[rows] if name else None for name in (x, self.column, self.low, self.high)]
        return Series(panel, self.column, *columns, look=self)

    def of_policies(self, history: History, panel: str) -> Series:
        """Return its numbers for the evaluated policies."""
        known = [(one.updates, getattr(one, self.column)) for one in history.evaluated]
        return Series(panel, "held-out", *_columns(known), look=self)


class MetricsPanel(_Settings):
    """The contents of a panel. Over staleness and bins it stands for the panels of all stages."""

    title: str
    name: str | None = None
    """Name of the panel in the table, where this is not its title."""
    scale: Scale = "plain"
    limits: Literal["", "negative", "positive"] = ""
    """Sign of the advantage of the ratios that are shown: the limits of the objective for it are drawn."""
    curves: tuple[Curve, ...]


class Figure(_Settings):
    """A figure as figures.yaml describes it."""

    title: str
    caption: str
    over: Literal["updates", "staleness", "bins"] | None = None
    panels: tuple[MetricsPanel, ...] = ()
    x_label: str = ""

    def chart(self, history: History) -> Chart | None:
        """Return its metrics over the updates, or over something else with a panel per stage; None without data."""
        curves = [one for panel in self.panels for one in panel.curves]
        measured = [one for one in curves if one.has_numbers(history) and not one.evaluated]
        if not measured or (self.over == "staleness" and not history.has_numbers("staleness")):
            return None
        stages = {f"stage {one.number}": history.updates["stage"] == one.number for one in history.stages}
        if self.over != "updates":
            (panel,) = self.panels
            limits = _limits(history, panel.limits)
            names = [f"stage {number}" for number in shown_stages(history)]
            found = [one.series(history, name, "staleness", stages[name]) for name in names for one in measured]
            drawn = [one for one in found if not np.isnan(one.y).all()]
            return Chart(
                drawn,
                {one.panel: Panel(one.panel, panel.scale, limits) for one in drawn},
                self.x_label or "staleness (updates)",
                heading=panel.title,
                same_scale=panel.scale != "plain",  # plain numbers differ too much between stages to share an axis
            )
        panels: dict[str, Panel] = {}
        series: list[Series] = []
        for panel in self.panels:
            name = panel.title if panel.name is None else panel.name
            for one in panel.curves:
                if one.has_numbers(history):
                    panels[name] = Panel(panel.title, panel.scale, _limits(history, panel.limits))
                    each = [one.series(history, name, "update", rows) for rows in stages.values()]
                    series += [one.of_policies(history, name)] if one.evaluated else each
        return Chart(series, panels, "update", ends=[end + 0.5 for end in history.boundaries])


@cache
def all_figures() -> dict[str, Figure]:
    """Read figures.yaml: every figure by its name, in the order of the page."""
    return {name: Figure.model_validate(one) for name, one in read_packaged_yaml(__file__, "figures.yaml").items()}


def make_figures(history: History) -> dict[str, Picture]:
    """Draw the figures of a run, in the order of the page."""
    made: dict[str, Picture] = {}
    with drawing.style():
        for name, figure in all_figures().items():
            if found := _MAKERS[name](history) if name in _MAKERS else figure.chart(history):
                drawn, series = (found.draw(), found.series) if isinstance(found, Chart) else found
                svg = drawing.to_svg(drawn, name.replace("_", "-"), f"{figure.title}. {figure.caption}")
                made[name] = Picture(svg, series)
    return made


def small_curves(update: Column, columns: Mapping[str, Column], name: str) -> str:
    """Return an ``<svg>`` with a small panel per column over the updates; empty where no number is known."""
    known = {title: column for title, column in columns.items() if not np.isnan(column).all()}
    if not known:
        return ""
    look = Look(points=120)
    series = [Series(title, title, update, column, look=look) for title, column in known.items()]
    with drawing.style():
        figure = Chart(series, {title: Panel(title) for title in known}, "update", heading="").draw()
        return drawing.to_svg(figure, name, f"Over the updates: {', '.join(known)}")


def shown_stages(history: History) -> list[int]:
    """Return all stages when they are few; else the first, the last and evenly spaced ones."""
    return [history.stages[place].number for place in _evenly_spaced(len(history.stages))]


def _evenly_spaced(count: int) -> list[int]:
    return [round(place) for place in np.linspace(0, count - 1, PANELS)] if count > PANELS else list(range(count))


def _limits(history: History, sign: str) -> list[float]:
    """Return where the objective clips a ratio of this sign, and where the veto triggers."""
    veto, gate = (history.objective.get(part, {}) for part in ("veto", "gate"))
    limits: list[float | None] = []
    if sign and gate.get("kind") in ("one_side", "two_side") and gate.get("bounds") == "static":
        limits.append(gate.get("high" if sign == "positive" else "low"))
    vetoes = sign and veto.get("scope", "off") != "off" and veto.get("statistic") == "token_ratio"
    if vetoes and (sign == "negative" or veto.get("advantage_sign") == "all"):
        limits += [veto["kappa"], *([1 / veto["kappa"]] if veto.get("direction") == "both" else [])]
    return [limit for limit in limits if limit]


def _columns(points: Sequence[tuple[float, Interval | float | None]]) -> list[list[float]]:
    """Return x, y, and the ends of the intervals of y, of the points whose y is known."""
    known = [(x, (y.value, y.low, y.high) if isinstance(y, Interval) else (y,) * 3) for x, y in points if y is not None]
    return [[x for x, _ in known], *([y[place] for _, y in known] for place in range(3))]


def _accuracies(panel: str, named: Mapping[str, Sequence[tuple[float, Interval | None]]]) -> list[Series]:
    """Return a series of each sort of accuracy, from points by its name."""
    looks = (("blue", "-"), ("orange", "--"), ("green", ":"))
    found = [
        Series(panel, name, *_columns(points), look=Look(text=name, color=color, style=style))
        for (name, points), (color, style) in zip(named.items(), looks, strict=False)
    ]
    return [one for one in found if len(one.x)]


def accuracy_over_time(history: History) -> Chart | None:
    """Draw accuracy over the wall-clock of training; None before the first stage is evaluated."""
    if len(history.evaluated) < 2:
        return None
    clock = stage_clock(history)
    series = _accuracies("", {history.headline: [(clock[one.stage], one.accuracy) for one in history.evaluated]})
    name, unit = drawing.time_unit(clock[-1])
    panels, label_x = {"": Panel(history.headline, "percent")}, f"training wall-clock ({name})"
    return Chart(series, panels, label_x, ends=clock[1:-1], unit=unit, whole=False)


def accuracy(history: History) -> Chart:
    """Draw sampled and greedy accuracy, and the share of responses that show working, of every policy."""
    names = {"accuracy": f"{history.headline}, sampled", "greedy": "greedy", "working": "shows working"}
    named = {name: [(one.stage, getattr(one, field)) for one in history.evaluated] for field, name in names.items()}
    panels = {"": Panel("share of responses", "percent")}
    return Chart(_accuracies("", named), panels, "finished stages (0 is the base policy)")


def benchmarks(history: History) -> Chart | None:
    """Draw a panel per benchmark; None where there is only one."""
    if len(history.benchmarks) < 2:
        return None
    series = []
    for name in history.benchmarks:
        found = [(policy.stage, one) for policy in history.evaluated for one in policy.evaluations]
        found = [(stage, one) for stage, one in found if one.benchmark == name]
        named: dict[str, list[tuple[float, Interval | None]]] = {
            "avg@k": [(stage, one.accuracy) for stage, one in found],
            "pass@k": [(stage, one.pass_at.get(one.samples_per_problem)) for stage, one in found],
            "maj@k": [(stage, one.majority) for stage, one in found],
        }
        series += _accuracies(name, named)
    panels = {name: Panel(label(name), "percent") for name in history.benchmarks}
    return Chart(series, panels, "finished stages", heading="share of problems")


def timeline(history: History) -> tuple[Drawing, list[Series]] | None:
    """Draw when each step was at work, a row per stage, without the time between processes."""
    worked = make_ledger(history).worked
    series = []
    for stage, tasks in steps_of(history).items():
        for task, made in tasks.items():
            starts, ends = (
                np.array([seconds_before(worked, getattr(one.timings, end)) for one in made])
                for end in ("started", "finished")
            )
            series.append(Series(stage, task, starts, ends - starts))
    if not series:
        return None
    stages = list(dict.fromkeys(one.panel for one in series))
    rows = [stages[place] for place in _evenly_spaced(len(stages))]
    figure, (axes,) = drawing.panels(1, 0.3 * len(rows) + 0.4)
    unit, scale = drawing.time_unit(seconds_before(worked, worked[-1][1]))
    for one in series:
        if one.panel in rows:
            bars = np.stack([one.x / scale, np.maximum(one.y / scale, 0.002)], axis=1)
            color = _COLORS.get(one.name, MUTED)
            label = one.name if one.name in _COLORS else "prepare"
            axes.broken_barh(bars, (rows.index(one.panel) - 0.35, 0.7), facecolors=color, linewidth=0, label=label)
    drawing.named_rows(axes, rows)
    axes.set_xlim(0, None)
    axes.set_xlabel(f"wall-clock ({unit})")
    drawing.legend(figure, [axes])
    return figure, series


_MAKERS: Mapping[str, Callable[[History], Chart | tuple[Drawing, list[Series]] | None]] = {
    "accuracy_over_time": accuracy_over_time,
    "accuracy": accuracy,
    "benchmarks": benchmarks,
    "timeline": timeline,
}
