"""Figures of a whole run: the accuracy of its policies, when each step was at work, and where the seconds went."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator, MultipleLocator

from tasks.artifacts.records import Manifest
from tasks.report import drawing
from tasks.report.drawing import Picture, Series
from tasks.report.evaluated import Estimate
from tasks.report.formats import duration, label, percent
from tasks.report.history import History
from tasks.report.ledger import make_ledger, stage_clock
from tasks.report.look import BLUE, GREEN, MUTED, ORANGE

_LABELLED = 9
"""More policies than this are numbered instead of named."""
_LOOKS = ((BLUE, "o-"), (ORANGE, "s-"), (GREEN, "^:"))
_ROW_OF_KIND = {"rollouts": "generate", "verdicts": "verify", "evaluation": "evaluate", "average": "evaluate"}
_COLORS = {
    "prepare": MUTED,
    "generate": BLUE,
    "verify": GREEN,
    "optimize": ORANGE,
    "alternate": ORANGE,
    "evaluate": MUTED,
}
"""Rows of the timeline in their order."""


def _over_stages(panel: str, name: str, history: History, estimates: Sequence[Estimate | None]) -> Series:
    """Return what is known of every evaluated policy, over finished stages."""
    known = [(policy.stage, one) for policy, one in zip(history.evaluated, estimates, strict=True) if one is not None]
    columns = [[getattr(one, field) for _, one in known] for field in ("value", "low", "high")]
    return Series.of(panel, name, [stage for stage, _ in known], *columns)


def _handles(series: Sequence[Series]) -> list[Any]:
    return [
        drawing.line(color, one.name, marker=look[0], linestyle=look[1:], markersize=4.5)
        for one, (color, look) in zip(series, _LOOKS, strict=False)
        if len(one.x)
    ]


def accuracy_over_time(history: History) -> Picture | None:
    """Draw accuracy over the wall-clock of training; None before the first stage is evaluated."""
    if len(history.evaluated) < 2:
        return None
    clock = stage_clock(history)
    at_stages = _over_stages("", history.headline, history, [one.accuracy for one in history.evaluated])
    seconds = [clock[policy.stage] for policy in history.evaluated]
    shown = Series.of("", at_stages.name, seconds, at_stages.y, at_stages.low, at_stages.high)
    figure, (axes,) = drawing.panels(1, 2.55)
    unit, scale = drawing.time_unit(clock[-1])
    x, few = shown.x / scale, len(shown.x) <= drawing.MARKED_STAGES
    axes.fill_between(x, shown.low, shown.high, color=BLUE, alpha=0.15, linewidth=0)
    axes.plot(x, shown.y, "o-" if few else "-", color=BLUE, markersize=4.5)
    drawing.boundaries(axes, [end / scale for end in clock[1:-1]])
    drawing.percent_axis(axes)
    axes.set_xlim(-0.02 * x[-1], None)
    axes.set_title(history.headline)
    axes.set_xlabel(f"training wall-clock ({unit})")
    return Picture(figure, [shown])


def accuracy(history: History) -> Picture:
    """Draw sampled and greedy accuracy, and the share of responses that show working, of every policy."""
    figure, (axes,) = drawing.panels(1, 2.55)
    stages, few = [policy.stage for policy in history.evaluated], len(history.evaluated) <= _LABELLED
    shift = 0.09 if few else 0.0
    shown = [
        _over_stages("", f"{history.headline}, sampled", history, [one.accuracy for one in history.evaluated]),
        _over_stages("", "greedy", history, [one.greedy for one in history.evaluated]),
        _over_stages("", "shows working", history, [one.working for one in history.evaluated]),
    ]
    for one, (color, look), aside in zip(shown, _LOOKS, (0.0, shift, -shift), strict=True):
        interval = np.maximum(0.0, [one.y - one.low, one.high - one.y])
        sizes: dict[str, Any] = {"markersize": 4.5 if few else 2, "elinewidth": 1.4 if few else 0.7, "capsize": 0}
        axes.errorbar(one.x + aside, one.y, interval, fmt=look, color=color, **sizes)
    drawing.percent_axis(axes)
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_locator(MultipleLocator(0.25))
    axes.set_title("share of responses")
    if few:
        axes.set_xticks(stages, [policy.label for policy in history.evaluated])
    else:
        axes.xaxis.set_major_locator(MaxNLocator(9, integer=True))
        axes.set_xlabel("finished stages (0 is the base policy)")
    axes.set_xlim(min(stages) - 0.35, max(stages) + 0.35)
    drawing.legend(figure, _handles(shown), 3)
    return Picture(figure, [one for one in shown if len(one.x)])


def benchmarks(history: History) -> Picture | None:
    """Draw a panel per benchmark; None where there is only one."""
    names = history.benchmarks
    if len(names) < 2:
        return None
    titles = [label(name) for name in names]
    figure, grid = drawing.small_multiples(titles, "share of problems", "finished stages", same_scale=False)
    shown: list[Series] = []
    for name, axes in zip(names, grid, strict=True):
        found = [next(one for one in policy.evaluations if one.benchmark == name) for policy in history.evaluated]
        series = [
            _over_stages(name, "avg@k", history, [one.accuracy for one in found]),
            _over_stages(name, "pass@k", history, [one.pass_at.get(one.samples_per_problem) for one in found]),
            _over_stages(name, "maj@k", history, [one.majority for one in found]),
        ]
        for one, (color, look) in zip(series, _LOOKS, strict=True):
            axes.plot(one.x, one.y, look, color=color, markersize=3)
        axes.fill_between(series[0].x, series[0].low, series[0].high, color=BLUE, alpha=0.15, linewidth=0)
        drawing.percent_axis(axes)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        shown += series
    drawing.legend(figure, _handles(shown[:3]), 3)
    return Picture(figure, shown)


def timeline(history: History) -> Picture | None:
    """Draw when each step was at work, without the time between processes; None before the first stage."""
    if not history.stages:
        return None
    ledger = make_ledger(history)
    # An alternating step makes rollouts and verdicts while it makes its policy.
    alternating = [stage for stage in history.stages if stage.policy.task == "alternate"]
    inside = {one.ref for stage in alternating for one in (*stage.rollouts, *stage.verdicts)}
    rows: dict[str, list[tuple[float, float]]] = {row: [] for row in _COLORS}
    for manifest in sorted(history.manifests.values(), key=lambda one: (one.timings.started, one.digest)):
        if manifest.ref not in inside:
            start, end = ledger.elapsed(manifest.timings.started), ledger.elapsed(manifest.timings.finished)
            rows[_row(manifest)].append((start, end - start))
    shown = [Series.of("", row, *np.array(bars).T) for row, bars in rows.items() if bars]
    figure, (axes,) = drawing.panels(1, 0.36 * len(shown) + 0.3)
    unit, scale = drawing.time_unit(ledger.elapsed(ledger.worked[-1][1]))
    for place, one in enumerate(shown[::-1]):
        bars = np.stack([one.x / scale, np.maximum(one.y / scale, 0.002)], axis=1)
        axes.broken_barh(bars, (place - 0.3, 0.6), facecolors=_COLORS[one.name], linewidth=0)
    drawing.boundaries(axes, [ledger.elapsed(one.policy.timings.finished) / scale for one in history.stages[:-1]])
    axes.set_yticks(range(len(shown)), [label(one.name) for one in shown[::-1]])
    axes.set_ylim(-0.5, len(shown) - 0.5)
    axes.set_xlim(0, None)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.grid(visible=False)
    axes.set_xlabel(f"wall-clock ({unit})")
    return Picture(figure, shown)


def _row(manifest: Manifest) -> str:
    if manifest.kind == "policy" and manifest.parents.get("policy"):
        return "alternate" if manifest.task == "alternate" else "optimize"
    return _ROW_OF_KIND.get(manifest.kind, "prepare")


def where_time_went(history: History) -> Picture:
    """Draw the rows of the ledger as bars."""
    ledger = make_ledger(history)
    rows = {row: seconds for row, seconds in ledger.seconds.items() if seconds > 0}
    shown = [Series.of("", row, [ledger.gpu_seconds.get(row, 0.0)], [seconds]) for row, seconds in rows.items()]
    figure, (axes,) = drawing.panels(1, 0.4 * len(rows))
    bars = {one.name: float(one.y[0]) for one in shown[::-1]}
    colors = [{"evaluate": GREEN, "warm_start": GREEN, "rest": MUTED}.get(name, BLUE) for name in bars]
    axes.barh(range(len(bars)), list(bars.values()), color=colors, height=0.58)
    axes.set_yticks(range(len(bars)), [label(name) for name in bars])
    for place, value in enumerate(bars.values()):
        text = f"{duration(value)}, {percent(value / ledger.total, 0)}"
        axes.annotate(text, (value, place), (5, 0), textcoords="offset points", va="center", fontsize=9.5)
    axes.set_xlim(0, max(bars.values()) * 1.45)
    axes.set_xticks([])
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
    return Picture(figure, shown)
