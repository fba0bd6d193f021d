"""The figures of a run, each as SVG and as a table of its numbers. A figure without data is left out.

figures.yaml has the title and the caption of every figure, and the panels and curves of the figures of metrics.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from tasks.evaluate.statistics import Interval, Values
from tasks.formats import label
from tasks.report import drawing
from tasks.report.drawing import Chart, Drawn, Look, Panel, Picture, Scale, Series, draw_picture
from tasks.report.history import History, Stage
from tasks.report.ledger import make_ledger, seconds_before, stage_clock, steps_of, union_seconds
from tasks.report.theme import BLUE, GREEN, INK, MUTED, ORANGE
from tasks.settings.base import read_packaged_yaml
from tasks.train.results import EDGES

_COLORS = {"generate": BLUE, "verify": GREEN, "optimize": ORANGE, "alternate": ORANGE, "evaluate": INK}
"""Colors of the tasks in the timeline; tasks before the first stage share another color."""
_BOUNDS = {
    "negative": {"one_side": ["low"], "two_side": ["low", "high"], "ring": ["low", "high", "outer_high"]},
    "positive": {"one_side": ["high"], "two_side": ["low", "high"], "ring": ["outer_low", "low", "high"]},
}
"""Bounds of a gate by the sign of the advantage and the kind of the gate."""


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Curve(Look):
    """A column of the metrics with its look."""

    column: str
    low: str = ""
    """Column with the lower end of a band around the curve; empty for no band."""
    high: str = ""
    """Column with the upper end of the band."""
    evaluated: bool = False
    """If True, the column is a field of the evaluated policies, drawn over their updates."""
    of_veto: bool = False
    """If True, the curve is drawn only for stages whose objective has a veto."""

    def has_numbers(self, history: History) -> bool:
        """Return whether a run has numbers for the curve."""
        if self.evaluated:
            return True
        counted = self.column in history.histograms and bool(history.histograms[self.column].any())
        return (counted or history.has_numbers(self.column)) and bool(history.veto or not self.of_veto)

    def series(self, history: History, panel: str, x: str, stage: Stage) -> Series:
        """Return the column over the column ``x`` in a stage; of a histogram, shares of the tokens over the bins."""
        rows = history.updates["stage"] == stage.number
        if self.column in EDGES:
            edges, counts = EDGES[self.column], history.histograms[self.column][rows]
            shares = counts.sum(axis=0) / history.column("tokens")[rows].sum()
            shares = shares if shares.any() else np.full(len(shares), np.nan)
            return Series(panel, self.column, (edges[:-1] + edges[1:]) / 2, shares, look=self)
        columns = [history.column(name)[rows] if name else None for name in (x, self.column, self.low, self.high)]
        return Series(panel, self.column, *columns, look=self)

    def of_policies(self, history: History, panel: str) -> Series:
        """Return the field of the evaluated policies over their updates."""
        points = [(one.updates, getattr(one, self.column)) for one in history.evaluated]
        return Series(panel, "held-out", *_columns(points), look=self)


class MetricsPanel(_Settings):
    """The curves and axes of a panel. Over staleness and bins, every stage has such a panel."""

    title: str
    name: str | None = None
    """Name of the panel in the table; None means its title."""
    scale: Scale = "plain"
    limits: Literal["", "negative", "positive"] = ""
    """Sign of the advantage for which the limits of the objective are drawn; empty for no limits."""
    curves: tuple[Curve, ...]


class Figure(_Settings):
    """A figure of figures.yaml."""

    title: str
    caption: str
    over: Literal["updates", "staleness", "bins"] | None = None
    """x-axis of a figure of metrics; None for the figures that functions of this module draw."""
    panels: tuple[MetricsPanel, ...] = ()
    x_label: str = ""

    def chart(self, history: History) -> Chart | None:
        """Return the chart of the metrics; None without data. Over staleness and bins it has a panel per stage."""
        curves = [one for panel in self.panels for one in panel.curves]
        measured = [one for one in curves if one.has_numbers(history) and not one.evaluated]
        if not measured:
            return None
        if self.over != "updates":
            (panel,) = self.panels
            staged = [
                one.series(history, f"stage {stage.number}", "staleness", stage)
                for stage in history.stages
                for one in measured
                if stage.veto or not one.of_veto
            ]
            series = [one for one in staged if not np.isnan(one.y).all()]
            limits = {f"stage {stage.number}": _limits([stage], panel.limits) for stage in history.stages}
            return Chart(
                series,
                {one.panel: Panel(one.panel, panel.scale, limits[one.panel]) for one in series},
                self.x_label or "staleness (updates)",
                heading=panel.title,
                same_scale=panel.scale != "plain",  # Plain numbers differ too much between stages to share an axis.
                whole_ticks=self.over == "staleness",
            )
        panels: dict[str, Panel] = {}
        series = []
        for panel in self.panels:
            name = panel.title if panel.name is None else panel.name
            for one in panel.curves:
                if one.has_numbers(history):
                    panels[name] = Panel(panel.title, panel.scale, _limits(history.stages, panel.limits))
                    each = [one.series(history, name, "update", stage) for stage in history.stages]
                    series += [one.of_policies(history, name)] if one.evaluated else each
        return Chart(series, panels, "update", boundaries=[end + 0.5 for end in history.boundaries])


@cache
def all_figures() -> dict[str, Figure]:
    """Return the figures of figures.yaml by name, in the order of the page."""
    return {name: Figure.model_validate(one) for name, one in read_packaged_yaml(__file__, "figures.yaml").items()}


def make_figures(history: History) -> dict[str, Picture]:
    """Draw the figures of a run, in the order of the page."""
    pictures: dict[str, Picture] = {}
    with drawing.style():
        for name, figure in all_figures().items():
            if drawn := _MAKERS[name](history) if name in _MAKERS else figure.chart(history):
                pictures[name] = draw_picture(drawn, name.replace("_", "-"), figure.title, figure.caption)
    return pictures


def small_curves(update: Values, columns: Mapping[str, Values], name: str) -> str:
    """Return an ``<svg>`` with a small panel per column over the updates; empty if no column has a number."""
    known = {title: column for title, column in columns.items() if not np.isnan(column).all()}
    if not known:
        return ""
    look = Look(points=120)
    series = [Series(title, title, update, column, look=look) for title, column in known.items()]
    with drawing.style():
        figure = Chart(series, {title: Panel(title) for title in known}, "update", heading="").draw()
        return drawing.to_svg(figure, name, f"Over the updates: {', '.join(known)}")


def _limits(stages: Sequence[Stage], sign: str) -> list[float]:
    """Return the limits that all stages have for ratios of tokens whose advantage has this sign."""
    each = [_limits_of(stage, sign) for stage in stages] if sign else [[]]
    return [limit for limit in each[0] if all(limit in limits for limits in each)]


def _limits_of(stage: Stage, sign: str) -> list[float]:
    """Return the fixed bounds of the gate and of the veto of a stage.

    The ratio is that of a token to the behavior policy; gates that compare another ratio have no bounds for it.
    """
    limits: list[float | None] = []
    objective, veto = stage.policy.settings["objective"], stage.veto
    gate, ratio = objective.get("gate", {}), objective.get("ratio", {})
    if ratio.get("reference") != "proximal" and not ratio.get("level", "").startswith("sequence"):
        names = _BOUNDS[sign].get(gate.get("kind"), ()) if gate.get("bounds", "static") == "static" else ()
        limits += [gate.get(name) for name in (*names, *(["dual_clip"] if sign == "negative" else []))]
    if veto.get("statistic") == "token_ratio" and (sign == "negative" or veto["advantage_sign"] == "all"):
        limits += [veto["kappa"], *([1 / veto["kappa"]] if veto.get("direction") == "both" else [])]
    return [limit for limit in dict.fromkeys(limits) if limit]


def _columns(points: Sequence[tuple[float, Interval | float | None]]) -> list[list[float]]:
    """Return x, y, and the ends of the intervals of y, without the points whose y is None."""
    rows = [(x, (y.value, y.low, y.high) if isinstance(y, Interval) else (y,) * 3) for x, y in points if y is not None]
    return [[x for x, _ in rows], *([y[index] for _, y in rows] for index in range(3))]


def _accuracies(panel: str, named: Mapping[str, Sequence[tuple[float, Interval | None]]]) -> list[Series]:
    """Return a series per name of an accuracy, without those that have no points."""
    looks = (("blue", "-"), ("orange", "--"), ("green", ":"))
    series = [
        Series(panel, name, *_columns(points), look=Look(text=name, color=color, style=style))
        for (name, points), (color, style) in zip(named.items(), looks, strict=False)
    ]
    return [one for one in series if len(one.x)]


def accuracy_over_time(history: History) -> Chart | None:
    """Return a chart of accuracy over the wall-clock of training; None before the first stage is evaluated."""
    if len(history.evaluated) < 2:
        return None
    clock, headline = stage_clock(history), history.evaluated[-1].headline
    series = _accuracies("", {headline: [(clock[one.stage], one.accuracy) for one in history.evaluated]})
    name, unit = drawing.time_unit(clock[-1])
    panels, label_x = {"": Panel(headline, "percent")}, f"training wall-clock ({name})"
    return Chart(series, panels, label_x, boundaries=clock[1:-1], unit=unit, whole_ticks=False)


def accuracy(history: History) -> Chart:
    """Return a chart of sampled accuracy, greedy accuracy, and the share of responses that show their working."""
    names = {"accuracy": f"{history.evaluated[-1].headline}, sampled", "greedy": "greedy", "working": "shows working"}
    named = {name: [(one.stage, getattr(one, field)) for one in history.evaluated] for field, name in names.items()}
    panels = {"": Panel("share of responses", "percent")}
    return Chart(_accuracies("", named), panels, "finished stages (0 is the base policy)")


def benchmarks(history: History) -> Chart | None:
    """Return a chart with a panel per benchmark; None for a single benchmark."""
    if len(history.benchmarks) < 2:
        return None
    series = []
    for index, name in enumerate(history.benchmarks):
        pairs = [(policy.stage, policy.evaluations[index]) for policy in history.evaluated]
        named: dict[str, list[tuple[float, Interval | None]]] = {
            "avg@k": [(stage, one.accuracy) for stage, one in pairs],
            "pass@k": [(stage, one.pass_at_k) for stage, one in pairs],
            "maj@k": [(stage, one.majority) for stage, one in pairs],
        }
        series += _accuracies(name, named)
    panels = {name: Panel(label(name), "percent") for name in history.benchmarks}
    return Chart(series, panels, "finished stages", heading="share of problems")


def timeline(history: History) -> Drawn | None:
    """Draw when each step worked, with a row per stage and without the time between processes."""
    worked = make_ledger(history).worked
    series = []
    for stage, tasks in steps_of(history).items():
        for task, manifests in tasks.items():
            starts, ends = (
                np.array([seconds_before(worked, getattr(one.timings, end)) for one in manifests])
                for end in ("started", "finished")
            )
            series.append(Series(stage, task, starts, ends - starts))
    if not series:
        return None
    rows = list(dict.fromkeys(one.panel for one in series))
    figure, (axes,) = drawing.panels(1, 0.3 * len(rows) + 0.4)
    unit, scale = drawing.time_unit(union_seconds(worked))
    for one in series:
        bars = np.stack([one.x / scale, np.maximum(one.y / scale, 0.002)], axis=1)
        color = _COLORS.get(one.name, MUTED)
        entry = one.name if one.name in _COLORS else "prepare"
        axes.broken_barh(bars, (rows.index(one.panel) - 0.35, 0.7), facecolors=color, linewidth=0, label=entry)
    drawing.named_rows(axes, rows)
    axes.set_xlim(0, None)
    axes.set_xlabel(f"wall-clock ({unit})")
    drawing.legend(figure, [axes])
    return figure, series


_MAKERS: Mapping[str, Callable[[History], Drawn | None]] = {
    "accuracy_over_time": accuracy_over_time,
    "accuracy": accuracy,
    "benchmarks": benchmarks,
    "timeline": timeline,
}
