"""Figures over time: what accuracy took, when each step was at work, and where the seconds went."""

from typing import Any

from matplotlib.ticker import MaxNLocator

from tasks.artifacts.records import Manifest
from tasks.report import drawing
from tasks.report.clock import stage_clock
from tasks.report.formats import duration, label, percent
from tasks.report.history import History
from tasks.report.ledger import Ledger
from tasks.report.palette import BLUE, GREEN, MUTED, ORANGE
from tasks.report.series import Picture, Series

_MARKED_STAGES = 16
"""More boundaries than those of so many stages would hide the data."""
_ROW_OF_KIND = {"rollouts": "generate", "verdicts": "verify", "evaluation": "evaluate", "average": "evaluate"}
_COLORS = {"generate": BLUE, "verify": GREEN, "optimize": ORANGE, "alternate": ORANGE, "evaluate": MUTED}
_ORDER = ("prepare", "generate", "verify", "optimize", "alternate", "evaluate")


def _boundaries(axes: Any, ends: list[float]) -> None:
    """A dashed line where a stage ends and another one begins."""
    for end in ends[:-1] if len(ends) <= _MARKED_STAGES else ():
        axes.axvline(end, color=MUTED, linewidth=0.8, linestyle=(0, (3, 3)), zorder=1)


def accuracy_over_time(history: History) -> Picture | None:
    """Accuracy over the training's wall-clock; None before the first stage is evaluated."""
    if len(history.evaluated) < 2:
        return None
    clock = stage_clock(history)
    found = history.evaluated
    shown = Series.of(
        "",
        history.headline,
        [clock[policy.stage] for policy in found],
        [policy.accuracy.value for policy in found],
        [policy.accuracy.low for policy in found],
        [policy.accuracy.high for policy in found],
    )
    figure, (axes,) = drawing.panels(1, 2.55)
    unit, scale = drawing.time_unit(clock[-1])
    x, few = shown.x / scale, len(found) <= _MARKED_STAGES
    axes.fill_between(x, shown.low, shown.high, color=BLUE, alpha=0.15, linewidth=0)
    axes.plot(x, shown.y, "o-" if few else "-", color=BLUE, markersize=4.5)
    _boundaries(axes, [end / scale for end in clock[1:]])
    drawing.percent_axis(axes)
    axes.set_xlim(-0.02 * x[-1], None)
    axes.set_title(history.headline)
    axes.set_xlabel(f"training wall-clock ({unit})")
    return Picture(figure, [shown])


def timeline(history: History, ledger: Ledger) -> Picture | None:
    """When each step was at work, without the time between processes; None before the first stage."""
    if not history.stages:
        return None
    rows: dict[str, list[tuple[float, float]]] = {}
    # What a step that alternates makes beside its policy, it makes meanwhile.
    alternating = [stage for stage in history.stages if _alternates(stage.policy)]
    inside = {one.ref for stage in alternating for one in (*stage.rollouts, *stage.verdicts)}
    for manifest in sorted(history.manifests.values(), key=lambda one: (one.timings.started, one.digest)):
        if manifest.ref not in inside:
            start, end = ledger.elapsed(manifest.timings.started), ledger.elapsed(manifest.timings.finished)
            rows.setdefault(_row(manifest), []).append((start, end - start))
    shown = [
        Series.of("", row, [start for start, _ in rows[row]], [seconds for _, seconds in rows[row]])
        for row in _ORDER
        if row in rows
    ]
    figure, (axes,) = drawing.panels(1, 0.36 * len(shown) + 0.3)
    unit, scale = drawing.time_unit(ledger.elapsed(ledger.worked[-1][1]))
    for place, one in enumerate(shown[::-1]):
        bars = [(start, max(seconds, 0.002 * scale)) for start, seconds in zip(one.x, one.y, strict=True)]
        axes.broken_barh(
            [(start / scale, seconds / scale) for start, seconds in bars],
            (place - 0.3, 0.6),
            facecolors=_COLORS.get(one.name, MUTED),
            linewidth=0,
        )
    _boundaries(axes, [ledger.elapsed(stage.policy.timings.finished) / scale for stage in history.stages])
    axes.set_yticks(range(len(shown)), [label(one.name) for one in shown[::-1]])
    axes.set_ylim(-0.5, len(shown) - 0.5)
    axes.set_xlim(0, None)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.grid(visible=False)
    axes.set_xlabel(f"wall-clock ({unit})")
    return Picture(figure, shown)


def _alternates(policy: Manifest) -> bool:
    return policy.task == "alternate"


def _row(manifest: Manifest) -> str:
    if manifest.kind == "policy" and manifest.parents.get("policy"):
        return "alternate" if _alternates(manifest) else "optimize"
    return _ROW_OF_KIND.get(manifest.kind, "prepare")


def where_time_went(ledger: Ledger) -> Picture:
    """The rows of the ledger as bars."""
    rows = {row: seconds for row, seconds in ledger.seconds.items() if seconds > 0}
    shown = [Series.of("", row, [ledger.gpu_seconds.get(row, 0.0)], [seconds]) for row, seconds in rows.items()]
    figure, (axes,) = drawing.panels(1, 0.4 * len(rows))
    bars = {one.name: float(one.y[0]) for one in shown[::-1]}
    colors = [{"evaluate": GREEN, "warm_start": GREEN, "rest": MUTED}.get(name, BLUE) for name in bars]
    axes.barh(range(len(bars)), list(bars.values()), color=colors, height=0.58)
    axes.set_yticks(range(len(bars)), [label(name) for name in bars])
    for place, value in enumerate(bars.values()):
        share = percent(value / ledger.total, 0)
        text = f"{duration(value)}, {share}"
        axes.annotate(text, (value, place), (5, 0), textcoords="offset points", va="center", fontsize=9.5)
    axes.set_xlim(0, max(bars.values()) * 1.45)
    axes.set_xticks([])
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
    return Picture(figure, shown)
