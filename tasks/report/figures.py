"""The figures of a run, each as SVG and as a table of what it shows. A figure without data is left out.

figures.yaml has the words beside each figure and, of figures of metrics, what they show.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import yaml
from matplotlib.figure import Figure as Drawing
from pydantic import BaseModel, ConfigDict

from tasks.artifacts.records import Manifest
from tasks.report import drawing, steps
from tasks.report.drawing import Chart, Look, Panel, Picture, Scale, Series
from tasks.report.formats import label, percent
from tasks.report.history import Column, History
from tasks.report.ledger import make_ledger, stage_clock
from tasks.report.look import BLUE, GREEN, MUTED, ORANGE
from tasks.statistics import Interval
from tasks.train.histogram import ADVANTAGE_EDGES, LOG_RATIO_EDGES

PANELS = 8
"""Of more stages than this, some are shown."""
_TIMELINE = {
    "prepare": MUTED,
    "generate": BLUE,
    "verify": GREEN,
    "optimize": ORANGE,
    "alternate": ORANGE,
    "evaluate": MUTED,
}
"""Rows of the timeline in their order, and their colors."""
_ROW_OF_KIND = {"rollouts": "generate", "verdicts": "verify", "evaluation": "evaluate", "average": "evaluate"}


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Curve(Look):
    """A column of the metrics, and how it is drawn."""

    column: str
    low: str = ""
    """Columns of the ends of a band around it."""
    high: str = ""
    evaluated: bool = False
    """Whether it is a number of the evaluated policies, over their updates."""
    of_veto: bool = False
    """Whether it is drawn only where the objective has a veto."""

    def known(self, history: History) -> bool:
        """Return whether a run has numbers for it."""
        if self.evaluated:
            return any(getattr(one, self.column) is not None for one in history.evaluated)
        return history.known(self.column) and (history.vetoes or not self.of_veto)

    def series(self, history: History, panel: str, x: str, rows: Column) -> Series:
        """Return its numbers in some updates, over another column."""
        columns = [history.column(name)[rows] if name else None for name in (x, self.column, self.low, self.high)]
        return Series(panel, self.column, *columns, look=self)

    def of_policies(self, history: History, panel: str) -> Series:
        """Return its numbers for the evaluated policies."""
        known = [(one.updates, getattr(one, self.column)) for one in history.evaluated]
        return Series(panel, "held-out", *_columns(known), look=self)


class MetricsPanel(_Settings):
    """The contents of a panel. Over staleness it stands for the panels of all stages."""

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
    over: Literal["updates", "staleness"] | None = None
    panels: tuple[MetricsPanel, ...] = ()

    def chart(self, history: History) -> Chart | None:
        """Return its metrics over the updates, or over staleness with a panel per stage; None without data."""
        measured = [one for panel in self.panels for one in panel.curves if one.known(history) and not one.evaluated]
        if not measured or (self.over == "staleness" and not history.known("staleness")):
            return None
        stages = {one.number: history.updates["stage"] == one.number for one in history.stages}
        if self.over == "staleness":
            (panel,) = self.panels
            names = {f"stage {number}": stages[number] for number in shown_stages(history)}
            limits = _limits(history, panel.limits)
            return Chart(
                [one.series(history, name, "staleness", rows) for name, rows in names.items() for one in measured],
                {name: Panel(name, panel.scale, limits) for name in names},
                "staleness (updates)",
                heading=panel.title,
                same_scale=panel.scale != "plain",  # plain numbers differ too much between stages to share an axis
            )
        panels, series = {}, []
        for panel in self.panels:
            name = panel.title if panel.name is None else panel.name
            for one in panel.curves:
                if one.known(history):
                    panels[name] = Panel(panel.title, panel.scale, _limits(history, panel.limits))
                    each = [one.series(history, name, "update", rows) for rows in stages.values()]
                    series += [one.of_policies(history, name)] if one.evaluated else each
        return Chart(series, panels, "update", ends=[end + 0.5 for end in history.boundaries])


@cache
def all_figures() -> dict[str, Figure]:
    """Read figures.yaml: every figure by its name, in the order of the page."""
    text = Path(__file__).with_name("figures.yaml").read_text(encoding="utf-8")
    return {name: Figure.model_validate(figure) for name, figure in yaml.safe_load(text).items()}


def make_figures(history: History) -> dict[str, Picture]:
    """Draw the figures of a run, in the order of the page."""
    made: dict[str, Picture | None] = {}
    for name, figure in all_figures().items():
        with drawing.style():
            found = _MAKERS[name](history) if name in _MAKERS else figure.chart(history)
            if isinstance(found, Picture) or found is None:
                made[name] = found
                continue
            drawn, series = (found.draw(), found.series) if isinstance(found, Chart) else found
            svg = drawing.to_svg(drawn, name.replace("_", "-"), f"{figure.title}. {figure.caption}")
            made[name] = Picture(svg, series)
    return {name: picture for name, picture in made.items() if picture}


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
    numbers = [stage.number for stage in history.stages]
    if len(numbers) <= PANELS:
        return numbers
    return [numbers[round(place)] for place in np.linspace(0, len(numbers) - 1, PANELS)]


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


def advantages(history: History) -> Chart | None:
    """Draw histograms of the tokens' advantages before and after the veto."""
    drawn = histogram_counts(history, "advantage_histogram", "advantage_histogram_kept")
    middles = (ADVANTAGE_EDGES[:-1] + ADVANTAGE_EDGES[1:]) / 2
    looks = {"all": Look(text="vetoed", color="orange", filled=True), "kept": Look(text="kept", filled=True)}
    series, panels = [], {}
    for name, both in drawn.items():
        vetoed = f", {percent(1 - both[1].sum() / both[0].sum())} vetoed" if history.vetoes else ""
        panels[name] = Panel(name + vetoed, "percent")
        shown = [(one, counts) for one, counts in zip(looks, both, strict=True) if history.vetoes or one == "kept"]
        series += [Series(name, one, middles, counts / both[0].sum(), look=looks[one]) for one, counts in shown]
    heading = "share of the stage's tokens"
    return Chart(series, panels, "advantage", heading=heading, same_scale=True) if series else None


def ratio_histograms(history: History) -> Chart | None:
    """Draw histograms of the tokens' log-ratios for each sign of the advantage."""
    drawn = histogram_counts(history, "ratio_histogram_negative", "ratio_histogram_positive")
    middles = (LOG_RATIO_EDGES[:-1] + LOG_RATIO_EDGES[1:]) / 2
    looks = {"negative": Look(text="A < 0", color="orange", steps=True), "positive": Look(text="A > 0", steps=True)}
    series = [
        Series(name, sign, middles, counts / max(1.0, counts.sum()), look=look)
        for name, both in drawn.items()
        for (sign, look), counts in zip(looks.items(), both, strict=True)
    ]
    panels = {name: Panel(name, "log") for name in drawn}
    heading = "share of the tokens with one sign of A"
    return Chart(series, panels, "log-ratio (nats)", heading=heading, same_scale=True) if series else None


def histogram_counts(history: History, *columns: str) -> dict[str, list[Column]]:
    """Return histograms of tokens, each summed over the updates of a stage, for the stages that are shown.

    A stage is left out when its updates did not count, or counted no tokens.
    """
    found = {}
    for number in shown_stages(history):
        rows = history.updates["stage"] == number
        counts = [np.nansum(history.histograms[name][rows], axis=0) for name in columns]
        if counts[0].sum() + counts[-1].sum() > 0:
            found[f"stage {number}"] = counts
    return found


def timeline(history: History) -> tuple[Drawing, list[Series]] | None:
    """Draw when each step was at work, without the time between processes; None before the first stage."""
    if not history.stages:
        return None
    ledger = make_ledger(history)
    # An alternating step makes rollouts and verdicts while it makes its policy.
    alternating = [stage for stage in history.stages if stage.policy.task == "alternate"]
    inside = {one.ref for stage in alternating for one in (*stage.rollouts, *stage.verdicts)}
    rows: dict[str, list[tuple[float, float]]] = {row: [] for row in _TIMELINE}
    for manifest in sorted(history.manifests.values(), key=lambda one: (one.timings.started, one.digest)):
        if manifest.ref not in inside:
            start, end = ledger.elapsed(manifest.timings.started), ledger.elapsed(manifest.timings.finished)
            rows[_row(manifest)].append((start, end - start))
    shown = [Series("", row, *np.array(bars).T) for row, bars in rows.items() if bars]
    figure, (axes,) = drawing.panels(1, 0.36 * len(shown) + 0.3)
    unit, scale = drawing.time_unit(ledger.elapsed(ledger.worked[-1][1]))
    for place, one in enumerate(shown[::-1]):
        bars = np.stack([one.x / scale, np.maximum(one.y / scale, 0.002)], axis=1)
        axes.broken_barh(bars, (place - 0.3, 0.6), facecolors=_TIMELINE[one.name], linewidth=0)
    drawing.boundaries(axes, [ledger.elapsed(one.policy.timings.finished) / scale for one in history.stages[:-1]])
    axes.set_yticks(range(len(shown)), [one.name for one in shown[::-1]])
    axes.set_xlim(0, None)
    axes.grid(visible=False)
    axes.set_xlabel(f"wall-clock ({unit})")
    return figure, shown


def _row(manifest: Manifest) -> str:
    if manifest.kind == "policy" and manifest.parents.get("policy"):
        return "alternate" if manifest.task == "alternate" else "optimize"
    return _ROW_OF_KIND.get(manifest.kind, "prepare")


_MAKERS: Mapping[str, Callable[[History], Chart | Picture | tuple[Drawing, list[Series]] | None]] = {
    "accuracy_over_time": accuracy_over_time,
    "accuracy": accuracy,
    "benchmarks": benchmarks,
    "advantages": advantages,
    "ratio_histograms": ratio_histograms,
    "steps": steps.draw_run,
    "timeline": timeline,
}
"""Figures that are not panels of metrics."""
