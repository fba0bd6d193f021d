"""Figures of a comparison, as SVG with the data that they draw. A figure without data is left out."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tasks.experiments.result import Cause, LaboratoryResult, ReproductionResult, Times
from tasks.experiments.runs import Floats, SystemRun, pairs_of
from tasks.experiments.speedup import comparable, training_time
from tasks.formats import MINUS, duration, label
from tasks.report import drawing
from tasks.report.drawing import Chart, Look, Panel, Series
from tasks.report.history import History
from tasks.report.ledger import elapsed, merge, training_clock
from tasks.report.look import BLUE, GREEN, INK, MUTED, ORANGE
from tasks.store.records import Manifest

Row = Mapping[str, Any]
Looks = dict[str, Look]
"""The look of each system."""
_COLORS, _STYLES, _MARKERS = ("blue", "orange", "green", "ink", "muted"), ("-", "--", ":"), "osD^v"
_OF_THE_PAPER = ("a", "b")
"""Parts of the laboratory that are figures of the paper."""
_POINTS = 128
"""Most points of a system's line, stages together."""
_OVER_UPDATES = {
    "reward": (
        "Training reward",
        "mean reward",
        "Mean reward of an update's responses, smoothed, mean over seeds. Dotted lines end the stages of {reference}: "
        "where responses are sampled once a stage, reward rises from stage to stage.",
    ),
    "veto_fraction": (
        "Vetoed tokens",
        "vetoed share of response tokens",
        "Tokens that the veto leaves out of the loss, smoothed, mean over seeds. In a stage they grow with staleness.",
    ),
}
"""Title, heading and caption of a figure, by the column of metrics that it draws."""
_FILLS = {
    "generate": (BLUE, 1.0),
    "optimize": (ORANGE, 1.0),
    "verify": (GREEN, 1.0),
    "switch": (INK, 1.0),
    "load": (INK, 0.45),
    "evaluate": (MUTED, 0.9),
    "rest": (MUTED, 0.4),
}
"""Color and opacity of the rows of a ledger."""
LANES = ("generate", "verify", "optimize", "switch", "evaluate")
"""Lanes of an execution line, named like phases; a phase without one is drawn as switch, logp as optimize."""
Span = tuple[str, float, float, float]
"""Lane, start, end, and the share of the time in between in which it was at work."""


class Sketch(NamedTuple):
    """A figure before it is SVG."""

    figure: Figure | Chart
    data: Sequence[Row]
    """Rows of the data that is drawn."""
    title: str
    caption: str


@dataclass(frozen=True)
class CaptionedFigure:
    """A figure of the page, with its title and caption."""

    svg: str
    data: pa.Table
    """Data that is drawn, which is also written as CSV."""
    title: str
    caption: str
    model: str
    """Empty where it belongs to no model."""


def make_figures(
    result: ReproductionResult, runs: Sequence[SystemRun], laboratory: Sequence[LaboratoryResult]
) -> dict[str, CaptionedFigure]:
    """Draw all figures, by names that are fit for files, in the order of the page.

    Args:
        result: the tables.
        runs: the runs that they are made from.
        laboratory: parts a and b of the laboratory, as far as they are there.
    """
    reference = result.reference
    # The reference is blue, and a system looks the same in all figures.
    ordered = [reference, *(system for system in result.systems if system != reference)]
    colors = len(_COLORS)
    looks = {
        system: Look(
            text=system,
            color=_COLORS[place % colors],
            style=_STYLES[place // colors % len(_STYLES)],
            marker=_MARKERS[place % len(_MARKERS)],
        )
        for place, system in enumerate(ordered)
    }
    drawn: dict[str, CaptionedFigure] = {}
    with drawing.style():
        for model in result.models:
            own = [run for run in runs if run.model == model]
            sketches = {
                "accuracy": accuracy(own, looks),
                "reward": over_updates("reward", own, looks, reference),
                "vetoed": over_updates("veto_fraction", own, looks, reference),
                "ledger": ledgers([one for one in result.times if one.model == model], looks),
            }
            for baseline in ordered[1:]:
                causes = [one for one in result.causes if (one.model, one.baseline) == (model, baseline)]
                sketches[f"causes-{_plain(baseline)}"] = waterfall(causes, own, reference, baseline)
                sketches[f"execution-{_plain(baseline)}"] = timeline(own, reference, baseline)
            named = {f"{name}-{_plain(model)}": sketch for name, sketch in sketches.items() if sketch}
            drawn |= {name: _finished(name, sketch, model) for name, sketch in named.items()}
        for part in laboratory:
            if part.part in _OF_THE_PAPER:
                name = f"laboratory-{part.part}"
                drawn[name] = _finished(name, arms(part))
    return drawn


def _finished(name: str, sketch: Sketch, model: str = "") -> CaptionedFigure:
    figure = sketch.figure.draw() if isinstance(sketch.figure, Chart) else sketch.figure
    svg = drawing.to_svg(figure, name, f"{sketch.title}. {sketch.caption}")
    rows = [{**({"model": model} if model else {}), **row} for row in sketch.data]
    return CaptionedFigure(svg, pa.Table.from_pylist(rows), sketch.title, sketch.caption, model)


def _plain(name: str) -> str:
    """Return a name that is fit for a file and for an id."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def accuracy(runs: Sequence[SystemRun], looks: Looks) -> Sketch | None:
    """Draw accuracy over wall-clock: a line per system and a thin one per seed."""
    curves = {system: [_curve(run) for run in runs if run.system == system] for system in looks}
    rows = [row for own in curves.values() for curve in own for row in curve]
    longest = max((row["seconds"] for row in rows), default=0.0)
    if not longest:
        return None
    series = []
    for system, own in curves.items():
        lines = [[[row[name] for row in curve] for name in ("seconds", "accuracy")] for curve in own]
        series += [Series("", system, *line, look=looks[system].thin()) for line in lines if len(own) > 1]
        if own:
            # Where seeds were evaluated at different numbers of updates, the mean ends with the first of them.
            means = [np.mean(list(zip(*columns, strict=False)), axis=1) for columns in zip(*lines, strict=True)]
            series.append(Series("", system, *means, look=looks[system]))
    unit, size = drawing.time_unit(longest)
    panel = Panel(f"accuracy, {runs[0].history.headline}", "percent")
    return Sketch(
        Chart(series, {"": panel}, f"training time, {unit}", unit=size, whole=False),
        rows,
        "Accuracy over wall-clock",
        "Every evaluated policy, at the end of a stage or of as many updates. Thin lines are seeds, strong lines "
        "their mean. Time is that of generation, verification and updates; evaluation is left out.",
    )


def _curve(run: SystemRun) -> list[Row]:
    return [
        {
            "system": run.system,
            "seed": run.seed,
            "updates": policy.updates,
            "seconds": seconds,
            "accuracy": policy.accuracy.value,
            "low": policy.accuracy.low,
            "high": policy.accuracy.high,
        }
        for policy, seconds in zip(run.history.evaluated, training_clock(run.history), strict=True)
    ]


def over_updates(name: str, runs: Sequence[SystemRun], looks: Looks, reference: str) -> Sketch | None:
    """Draw a column of metrics over updates, a line per system; the share of the veto where there is one."""
    title, heading, caption = _OVER_UPDATES[name]
    series = []
    for system, look in looks.items():
        histories = [run.history for run in runs if run.system == system]
        own = [one for one in histories if one.known(name) and (name == "reward" or one.vetoes)]
        smooth = look.model_copy(update={"marker": "", "points": _POINTS})
        series += [Series("", system, *line, look=smooth) for line in _means(own, name)] if own else []
    if not series:
        return None
    staged = next((run.history.boundaries for run in runs if run.system == reference), [])
    if len(systems := {one.name for one in series}) == 1:  # which has no legend
        heading = f"{heading}, {systems.pop()}"
    panel = Panel(heading, "zero" if name == "reward" else "percent")
    chart = Chart(series, {"": panel}, "update", ends=[update + 0.5 for update in staged])
    points = [(one.name, *point) for one in series for point in zip(one.x.tolist(), one.y.tolist(), strict=True)]
    rows = [{"system": system, "update": update, name: value} for system, update, value in points]
    return Sketch(chart, rows, title, caption.format(reference=reference))


def _means(histories: Sequence[History], name: str) -> list[Floats]:
    """Return the updates and the means of a column over runs, [2, updates], stage by stage."""
    count = min(len(history.column(name)) for history in histories)
    update, stage = (histories[0].column(one)[:count] for one in ("update", "stage"))
    values = np.array([history.column(name)[:count] for history in histories])
    known = ~np.isnan(values).all(axis=0)
    means = np.array([update[known], np.nanmean(values[:, known], axis=0)])
    return [means[:, stage[known] == number] for number in np.unique(stage[known])]


def arms(result: LaboratoryResult) -> Sketch:
    """Draw the accuracy of every arm of the laboratory at the end, with its interval, and the best along the way."""
    figure, (axes,) = drawing.panels(1, 0.34 * len(result.arms) + 0.3)
    names = ("name", "accuracy", "low", "high", "best", "vetoed", "clipped", "p")
    rows = [arm.model_dump(include=set(names)) for arm in result.arms]
    for place, arm in enumerate(result.arms):
        color = BLUE if arm.name == result.reference else INK
        axes.plot([arm.low, arm.high], [place, place], color=color, linewidth=1.6)
        axes.plot([arm.accuracy], [place], "o", color=color, markersize=5, label="at the end, 95 %")
        axes.plot([arm.best], [place], "D", color=ORANGE, markersize=4, mfc="none", label="best on the way")
        if arm.stopped:
            axes.annotate("stopped", (arm.high, place), (5, 0), textcoords="offset points", va="center", fontsize=9)
    axes.axvline(result.base, color=MUTED, linewidth=0.9, linestyle=(0, (3, 3)), label="base policy")
    drawing.named_rows(axes, [arm.name for arm in result.arms])
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.set_xlabel("accuracy")
    drawing.legend(figure, [axes])
    return Sketch(
        figure,
        rows,
        result.title,
        f"{result.asks} {result.seeds} seeds, {result.updates} updates; a best far above the end is a collapse. "
        f"The blue arm is the one that the others are tested against.",
    )


def timeline(runs: Sequence[SystemRun], reference: str, baseline: str) -> Sketch | None:
    """Draw what both systems did when, on the first seed that both have, above one another on one axis."""
    pairs = comparable(pairs_of(runs, runs[0].model, reference, baseline)) if runs else []
    if not pairs:
        return None
    ours, theirs = pairs[0]
    lines = [(run.system, list(_spans(run.history))) for run in (theirs, ours)]
    longest = max(end for _, spans in lines for _, _, end, _ in spans)
    unit, size = drawing.time_unit(longest)
    figure, grid = drawing.panels(2, 1.45)
    for axes, (system, spans) in zip(grid, lines, strict=True):
        for lane, start, end, share in spans:
            color = to_rgba(_FILLS[lane][0], 0.12 + 0.88 * min(1.0, share))
            axes.barh(LANES.index(lane), (end - start) / size, 0.8, start / size, color=color, linewidth=0)
        axes.set_xlim(0, longest / size)
        drawing.named_rows(axes, LANES)
        axes.set_title(f"{system}, seed {ours.seed}")
    grid[-1].set_xlabel(f"time since the first stage began, {unit}")
    names = ("system", "lane", "start", "end", "share")
    return Sketch(
        figure,
        [dict(zip(names, (system, *span), strict=True)) for system, spans in lines for span in spans],
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
        yield from _of(step, elapsed(busy, step.timings.started), elapsed(busy, step.timings.finished))


def _of(manifest: Manifest, start: float, end: float) -> Iterator[Span]:
    """Yield the phases of a step between two moments: one after the other, or side by side where they take turns."""
    phases: dict[str, float] = {}
    for phase, seconds in manifest.timings.phases.items():
        lane = phase if phase in LANES else "optimize" if phase == "logp" else "switch"
        if manifest.kind == "evaluation" and phase != "load":
            lane = "evaluate"
        if seconds > 0:
            phases[lane] = phases.get(lane, 0.0) + seconds
    scale = min(1.0, (end - start) / sum(phases.values())) if phases else 0.0
    turns = "generate" in phases and "optimize" in phases
    for lane, seconds in phases.items():
        if turns:
            yield lane, start, end, scale * seconds / (end - start)
        else:
            yield lane, start, start + scale * seconds, 1.0
            start += scale * seconds


def ledgers(times: Sequence[Times], looks: Looks) -> Sketch | None:
    """Draw a stacked bar per system: what its seconds were spent on."""
    own = {one.system: one.ledger for one in times}
    systems = [system for system in looks if system in own]
    if not systems:
        return None
    rows = [row for row in _FILLS if any(own[system].get(row) for system in systems)]
    longest = max(sum(own[system].get(row, 0.0) for row in rows) for system in systems)
    unit, size = drawing.time_unit(longest)
    figure, (axes,) = drawing.panels(1, 0.5 * len(systems) + 0.35)
    for place, system in enumerate(systems):
        seconds = [own[system].get(row, 0.0) for row in rows]
        for row, spent, end in zip(rows, seconds, accumulate(seconds), strict=True):
            color, alpha = _FILLS[row]
            bar = {"color": color, "alpha": alpha, "linewidth": 0, "label": label(row)}
            axes.barh(place, spent / size, left=(end - spent) / size, height=0.62, **bar)
        _note(axes, sum(seconds) / size, place, duration(sum(seconds)))
    axes.set_xlim(0, 1.2 * longest / size)
    axes.set_xlabel(f"process time, {unit}")
    drawing.named_rows(axes, systems)
    drawing.legend(figure, [axes], 4)
    return Sketch(
        figure,
        [{"system": system, "row": row, "seconds": own[system].get(row, 0.0)} for system in systems for row in rows],
        "Where the time went",
        "Process-seconds of all steps by what they were spent on, mean over seeds, without making the base policy.",
    )


def waterfall(causes: Sequence[Cause], runs: Sequence[SystemRun], reference: str, baseline: str) -> Sketch | None:
    """Draw the way from the training time of the baseline to that of the reference, cause by cause."""
    if not causes:
        return None
    pairs = comparable(pairs_of(runs, causes[0].model, reference, baseline))
    whole = mean(sum(training_time(theirs).values()) for _, theirs in pairs)
    left = list(accumulate((-cause.seconds for cause in causes), initial=whole))
    figure, (axes,) = drawing.panels(1, 0.36 * (len(causes) + 2) + 0.2)
    axes.barh(0, whole, color=MUTED, height=0.6, alpha=0.8)
    _note(axes, whole, 0, duration(whole))
    for place, (cause, before, after) in enumerate(zip(causes, left, left[1:], strict=False), 1):
        color = GREEN if cause.seconds >= 0 else ORANGE
        axes.barh(place, abs(cause.seconds), left=min(before, after), height=0.6, color=color)
        axes.plot([before, before], [place - 1, place], color=MUTED, linewidth=0.7, zorder=1)
        _note(axes, max(before, after), place, _signed(-cause.seconds))
    axes.plot([left[-1], left[-1]], [len(causes), len(causes) + 1], color=MUTED, linewidth=0.7, zorder=1)
    axes.barh(len(causes) + 1, left[-1], color=BLUE, height=0.6)
    _note(axes, left[-1], len(causes) + 1, duration(left[-1]))
    drawing.named_rows(axes, [baseline, *(cause.name for cause in causes), reference])
    axes.set_xlim(0, 1.28 * max(left))
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    bars = [(baseline, whole, "training time")]
    bars += [(cause.name, cause.seconds, cause.how) for cause in causes]
    bars += [(reference, left[-1], "training time")]
    return Sketch(
        figure,
        [
            {"name": name, "seconds": seconds, "left": after, "how": how}
            for (name, seconds, how), after in zip(bars, [*left, left[-1]], strict=True)
        ],
        f"From {baseline} to {reference}",
        "Training time of the baseline, what each cause takes away (green) or adds (orange), and what is left: the "
        "training time of the reference. Mean over seeds; the parts add up to the whole.",
    )


def _note(axes: Any, x: float, y: float, text: str) -> None:
    axes.annotate(text, (x, y), (5, 0), textcoords="offset points", va="center", fontsize=9)


def _signed(seconds: float) -> str:
    written = duration(abs(seconds))
    return written if written == "0.0 s" else f"{'+' if seconds > 0 else MINUS}{written}"
