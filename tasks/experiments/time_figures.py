"""Figures of where time goes: execution lines of two systems, their ledgers, and the causes of a speed-up."""

from collections.abc import Iterator, Sequence
from statistics import mean
from typing import Any

from matplotlib.colors import to_rgba
from matplotlib.patches import Patch

from tasks.artifacts.records import Manifest
from tasks.experiments.causes import pairs_of, training_time
from tasks.experiments.looks import Look, Row, Sketch, time_axis
from tasks.experiments.result import ReproductionResult, Times
from tasks.experiments.runs import SystemRun
from tasks.report import drawing
from tasks.report.formats import MINUS, duration, label
from tasks.report.history import History
from tasks.report.ledger import merge
from tasks.report.look import BLUE, GREEN, INK, MUTED, ORANGE

LANES = {
    "generate": ("generate",),
    "verify": ("verify",),
    "optimize": ("logp", "optimize"),
    "switch": ("load", "switch", "save"),
    "evaluate": ("evaluate",),
}
"""Lanes of an execution line, and the phases in each."""
_COLORS = {"generate": BLUE, "verify": GREEN, "optimize": ORANGE, "switch": INK, "evaluate": MUTED}
_FILLS = {
    "generate": (BLUE, 1.0),
    "optimize": (ORANGE, 1.0),
    "verify": (GREEN, 1.0),
    "switch": (INK, 1.0),
    "load": (INK, 0.45),
    "evaluate": (MUTED, 0.9),
    "rest": (MUTED, 0.4),
}
Span = tuple[str, float, float, float]
"""Lane, start, end, and the share of the time in between in which it was at work."""


def timeline(model: str, runs: Sequence[SystemRun], reference: str, baseline: str) -> Sketch | None:
    """Draw what both systems did when, on the first seed that both have, above one another on one axis."""
    pairs = pairs_of(runs, model, reference, baseline)
    if not pairs:
        return None
    shown = [(baseline, pairs[0].baseline.history), (reference, pairs[0].reference.history)]
    lines = [(system, list(_spans(history))) for system, history in shown]
    longest = max(end for _, spans in lines for _, _, end, _ in spans)
    figure, grid = drawing.panels(2, 1.45)
    rows: list[Row] = []
    for axes, (system, spans) in zip(grid, lines, strict=True):
        for place, lane in enumerate(LANES):
            own = [(start, end, share) for name, start, end, share in spans if name == lane]
            colors = [to_rgba(_COLORS[lane], 0.12 + 0.88 * min(1.0, share)) for _, _, share in own]
            bars = [(start, end - start) for start, end, _ in own]
            axes.broken_barh(bars, (place - 0.4, 0.8), facecolors=colors, linewidth=0)
            rows += [
                {"system": system, "lane": lane, "start": start, "end": end, "share": share}
                for start, end, share in own
            ]
        axes.set_yticks(range(len(LANES)), list(LANES))
        axes.set_ylim(len(LANES) - 0.5, -0.5)
        axes.set_xlim(0, longest)
        axes.grid(visible=False)
        axes.set_title(f"{system}, seed {pairs[0].reference.seed}")
    time_axis(grid[-1], longest, "time since the first stage began")
    return Sketch(
        figure,
        rows,
        f"Execution of {reference} and {baseline}",
        "What was at work when; the paler, the smaller the share of that time. Where generation and updates take turns "
        "inside a task, their sums over a stage are spread over it evenly.",
    )


def _spans(history: History) -> Iterator[Span]:
    """Yield when each lane was at work, in seconds since the first stage began; stops of a run are left out."""
    steps = [made for stage in history.stages for made in (*stage.rollouts, *stage.verdicts, stage.policy)]
    trained = [policy for policy in history.evaluated if policy.updates]
    steps += [history.manifests[one.evaluation] for policy in trained for one in policy.evaluations]
    busy = merge((one.timings.started, one.timings.finished) for one in steps)
    for step in steps:
        start, end = (
            sum(min(last, moment) - first for first, last in busy if first < moment)
            for moment in (step.timings.started, step.timings.finished)
        )
        yield from _of(step, start, end)


def _of(manifest: Manifest, start: float, end: float) -> Iterator[Span]:
    """Yield the phases of a step between two moments: one after the other, or side by side where they take turns."""
    phases = _phases(manifest)
    scale = min(1.0, (end - start) / sum(phases.values())) if phases else 0.0
    turns = "generate" in phases and "optimize" in phases
    for lane, seconds in phases.items():
        if turns:
            yield lane, start, end, scale * seconds / (end - start)
        else:
            yield lane, start, start + scale * seconds, 1.0
            start += scale * seconds


def _phases(manifest: Manifest) -> dict[str, float]:
    """Return seconds by lane, in the order in which a step has them."""
    found: dict[str, float] = {}
    for phase, seconds in manifest.timings.phases.items():
        lane = next((lane for lane, phases in LANES.items() if phase in phases), "switch")
        if manifest.kind == "evaluation" and phase != "load":
            lane = "evaluate"
        found[lane] = found.get(lane, 0.0) + seconds
    return {lane: seconds for lane, seconds in found.items() if seconds > 0}


def ledgers(model: str, times: Sequence[Times], looks: dict[str, Look]) -> Sketch | None:
    """Draw a stacked bar per system: what its seconds were spent on."""
    own = {one.system: one.ledger for one in times if one.model == model}
    systems = [system for system in looks if system in own]
    if not systems:
        return None
    rows_of = [row for row in _FILLS if any(own[system].get(row) for system in systems)]
    figure, (axes,) = drawing.panels(1, 0.5 * len(systems) + 0.35)
    data: list[Row] = []
    for place, system in enumerate(systems):
        start = 0.0
        for row in rows_of:
            seconds = own[system].get(row, 0.0)
            color, alpha = _FILLS[row]
            axes.barh(place, seconds, left=start, height=0.62, color=color, alpha=alpha, linewidth=0)
            start += seconds
            data.append({"system": system, "row": row, "seconds": seconds})
        axes.annotate(duration(start), (start, place), (5, 0), textcoords="offset points", va="center", fontsize=9.5)
    longest = max(sum(own[system].get(row, 0.0) for row in rows_of) for system in systems)
    axes.set_yticks(range(len(systems)), systems)
    axes.set_ylim(len(systems) - 0.5, -0.5)
    axes.set_xlim(0, 1.2 * longest)
    axes.grid(visible=False)
    time_axis(axes, longest, "process time")
    drawing.legend(
        figure, [Patch(facecolor=_FILLS[row][0], alpha=_FILLS[row][1], label=label(row)) for row in rows_of], 4
    )
    return Sketch(
        figure,
        data,
        "Where the time went",
        "Process-seconds of all steps by what they were spent on, mean over seeds, without making the base policy.",
    )


def waterfall(result: ReproductionResult, model: str, runs: Sequence[SystemRun], baseline: str) -> Sketch | None:
    """Draw the way from the training time of the baseline to that of the reference, cause by cause."""
    causes = [one for one in result.causes if (one.model, one.baseline) == (model, baseline)]
    pairs = pairs_of(runs, model, result.reference, baseline)
    if not causes or not pairs:
        return None
    whole = mean(sum(training_time(pair.baseline).values()) for pair in pairs)
    names = [baseline, *(cause.name for cause in causes), result.reference]
    figure, (axes,) = drawing.panels(1, 0.36 * len(names) + 0.2)
    data: list[Row] = [{"name": baseline, "seconds": whole, "left": whole, "how": "training time"}]
    axes.barh(0, whole, color=MUTED, height=0.6, alpha=0.8)
    left, largest = whole, whole
    for place, cause in enumerate(causes, 1):
        low, high = sorted((left, left - cause.seconds))
        axes.barh(place, high - low, left=low, height=0.6, color=GREEN if cause.seconds >= 0 else ORANGE)
        axes.plot([left, left], [place - 1, place], color=MUTED, linewidth=0.7, zorder=1)
        left -= cause.seconds
        largest = max(largest, high)
        data.append({"name": cause.name, "seconds": cause.seconds, "left": left, "how": cause.how})
        _note(axes, high, place, _signed(-cause.seconds))
    axes.plot([left, left], [len(causes), len(causes) + 1], color=MUTED, linewidth=0.7, zorder=1)
    axes.barh(len(causes) + 1, left, color=BLUE, height=0.6)
    data.append({"name": result.reference, "seconds": left, "left": left, "how": "training time"})
    _note(axes, whole, 0, duration(whole))
    _note(axes, left, len(causes) + 1, duration(left))
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0, 1.28 * largest)
    axes.set_xticks([])
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
    return Sketch(
        figure,
        data,
        f"From {baseline} to {result.reference}",
        "Training time of the baseline, what each cause takes away (green) or adds (orange), and what is left: the "
        "training time of the reference. Mean over seeds; the parts add up to the whole.",
    )


def _note(axes: Any, x: float, y: float, text: str) -> None:
    axes.annotate(text, (x, y), (5, 0), textcoords="offset points", va="center", fontsize=9)


def _signed(seconds: float) -> str:
    written = duration(abs(seconds))
    return written if written == "0.0 s" else f"{'+' if seconds > 0 else MINUS}{written}"
