"""Figures of a comparison, as SVG with the data that they draw. A figure without data is left out."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from tasks.experiments.causes import comparable, training_time
from tasks.experiments.result import Cause, LaboratoryResult, ReproductionResult, Times
from tasks.experiments.runs import Floats, SystemRun, pairs_of
from tasks.report import drawing
from tasks.report.formats import MINUS, duration, label
from tasks.report.history import History
from tasks.report.ledger import merge, training_clock
from tasks.report.look import BLUE, GREEN, INK, MUTED, ORANGE
from tasks.store.records import Manifest

Row = Mapping[str, Any]
Looks = dict[str, dict[str, Any]]
"""Keyword arguments of matplotlib for each system."""
_COLORS, _STYLES, _MARKERS = (BLUE, ORANGE, GREEN, INK, MUTED), ("-", (0, (4, 1.5)), (0, (1.2, 1.2))), "osD^v"
_OF_THE_PAPER = ("a", "b")
"""Parts of the laboratory that are figures of the paper."""
_POINTS = 240
"""Points of a line, stages together."""
_DOTS = (0, (3, 3))
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

    figure: Figure
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
    look: Looks = {
        system: {
            "color": _COLORS[place % colors],
            "linestyle": _STYLES[place // colors % len(_STYLES)],
            "marker": _MARKERS[place % len(_MARKERS)],
        }
        for place, system in enumerate(ordered)
    }
    drawn: dict[str, CaptionedFigure] = {}
    for model in result.models:
        own = [run for run in runs if run.model == model]
        makers: dict[str, Callable[[], Sketch | None]] = {
            "accuracy": partial(accuracy, own, look),
            "reward": partial(over_updates, "reward", own, look, reference),
            "vetoed": partial(over_updates, "veto_fraction", own, look, reference),
            "ledger": partial(ledgers, [one for one in result.times if one.model == model], look),
        }
        for baseline in ordered[1:]:
            causes = [one for one in result.causes if (one.model, one.baseline) == (model, baseline)]
            makers |= {
                f"causes-{_plain(baseline)}": partial(waterfall, causes, own, reference, baseline),
                f"execution-{_plain(baseline)}": partial(timeline, own, reference, baseline),
            }
        drawn |= _drawn({f"{name}-{_plain(model)}": maker for name, maker in makers.items()}, model)
    asked = [one for one in laboratory if one.part in _OF_THE_PAPER]
    return drawn | _drawn({f"laboratory-{one.part}": partial(arms, one) for one in asked})


def _drawn(makers: Mapping[str, Callable[[], Sketch | None]], model: str = "") -> dict[str, CaptionedFigure]:
    drawn = {}
    with drawing.style():
        for name, maker in makers.items():
            if sketch := maker():
                svg = drawing.to_svg(sketch.figure, name, f"{sketch.title}. {sketch.caption}")
                rows = [{**({"model": model} if model else {}), **row} for row in sketch.data]
                drawn[name] = CaptionedFigure(svg, pa.Table.from_pylist(rows), sketch.title, sketch.caption, model)
    return drawn


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
    unit, size = drawing.time_unit(longest)
    figure, (axes,) = drawing.panels(1, 2.9)
    for system, own in curves.items():
        seconds, values = ([[row[name] for row in curve] for curve in own] for name in ("seconds", "accuracy"))
        for x, y in zip(seconds, values, strict=True) if len(own) > 1 else ():
            axes.plot(np.array(x) / size, y, color=looks[system]["color"], linewidth=0.8, alpha=0.35, zorder=2)
        if own:
            # Where seeds were evaluated at different numbers of updates, the mean ends with the first of them.
            x, y = (np.mean(list(zip(*one, strict=False)), axis=1) for one in (seconds, values))
            axes.plot(x / size, y, **looks[system], markersize=4, zorder=3)
    drawing.percent_axis(axes)
    axes.set_xlabel(f"training time, {unit}")
    axes.set_title(f"accuracy, {runs[0].history.headline}")
    lines = [drawing.line(text=system, **looks[system], markersize=4) for system, own in curves.items() if own]
    drawing.legend(figure, lines, 3)
    return Sketch(
        figure,
        rows,
        "Accuracy over wall-clock",
        "A marker for every evaluated policy, at the end of a stage or of as many updates. Thin lines are seeds, "
        "strong lines their mean. Time is that of generation, verification and updates; evaluation is left out.",
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
    figure, (axes,) = drawing.panels(1, 2.55)
    rows: list[Row] = []
    drawn = []
    for system, look in looks.items():
        histories = [run.history for run in runs if run.system == system]
        own = [one for one in histories if one.known(name) and (name == "reward" or one.vetoes)]
        for update, values in _smooth(own, name) if own else ():
            axes.plot(update, values, **{**look, "marker": ""}, linewidth=1.4)
            points = zip(update.tolist(), values.tolist(), strict=True)
            rows += [{"system": system, "update": at, name: value} for at, value in points]
        drawn += [drawing.line(text=system, **{**look, "marker": ""})] if own else []
    if not rows:
        return None
    drawing.scale_axis(axes, "zero" if name == "reward" else "percent")
    staged = next((run.history.boundaries for run in runs if run.system == reference), [])
    drawing.boundaries(axes, [update + 0.5 for update in staged])
    drawing.whole_ticks(axes)
    axes.set_title(heading)
    axes.set_xlabel("update")
    drawing.legend(figure, drawn, 3)
    return Sketch(figure, rows, title, caption.format(reference=reference))


def _smooth(histories: Sequence[History], name: str) -> list[Floats]:
    """Return the updates and the values of a line, [2, points], stage by stage: means over runs and over neighbors."""
    count = min(len(history.column(name)) for history in histories)
    update, stage = (histories[0].column(one)[:count] for one in ("update", "stage"))
    rows = np.array([history.column(name)[:count] for history in histories])
    known = ~np.isnan(rows)
    means = np.divide(np.where(known, rows, 0.0).sum(0), known.sum(0), out=np.full(count, np.nan), where=known.any(0))
    stages = [np.flatnonzero((stage == number) & known.any(0)) for number in np.unique(stage)]
    most = min(32, max(8, _POINTS // len(stages)))
    pieces = [np.array_split(places, min(len(places), most)) for places in stages if len(places)]
    return [np.array([(update[one].mean(), means[one].mean()) for one in parts]).T for parts in pieces]


def arms(result: LaboratoryResult) -> Sketch:
    """Draw the accuracy of every arm of the laboratory at the end, with its interval, and the best along the way."""
    figure, (axes,) = drawing.panels(1, 0.34 * len(result.arms) + 0.3)
    names = ("name", "accuracy", "low", "high", "best", "vetoed", "clipped", "p")
    rows = [arm.model_dump(include=set(names)) for arm in result.arms]
    for place, arm in enumerate(result.arms):
        color = BLUE if arm.name == result.reference else INK
        axes.plot([arm.low, arm.high], [place, place], color=color, linewidth=1.6)
        axes.plot([arm.accuracy], [place], "o", color=color, markersize=5)
        axes.plot([arm.best], [place], "D", color=ORANGE, markersize=4, markerfacecolor="none")
        if arm.stopped:
            axes.annotate("stopped", (arm.high, place), (5, 0), textcoords="offset points", va="center", fontsize=9)
    axes.axvline(result.base, color=MUTED, linewidth=0.9, linestyle=_DOTS)
    axes.set_yticks(range(len(result.arms)), [arm.name for arm in result.arms])
    axes.set_ylim(len(result.arms) - 0.5, -0.5)
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.set_xlabel("accuracy")
    axes.grid(visible=False)
    drawing.legend(
        figure,
        [
            drawing.line(INK, "at the end, 95 %", marker="o", linestyle="", markersize=5),
            drawing.line(ORANGE, "best on the way", marker="D", markerfacecolor="none", linestyle="", markersize=4),
            drawing.line(MUTED, "base policy", linestyle=_DOTS, linewidth=0.9),
        ],
        3,
    )
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
        _named_rows(axes, LANES)
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
        start, end = (
            sum(min(last, moment) - first for first, last in busy if first < moment)
            for moment in (step.timings.started, step.timings.finished)
        )
        yield from _of(step, start, end)


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
            axes.barh(
                place, spent / size, left=(end - spent) / size, height=0.62, color=color, alpha=alpha, linewidth=0
            )
        _note(axes, sum(seconds) / size, place, duration(sum(seconds)))
    axes.set_xlim(0, 1.2 * longest / size)
    axes.set_xlabel(f"process time, {unit}")
    _named_rows(axes, systems)
    patches = [Patch(facecolor=_FILLS[row][0], alpha=_FILLS[row][1], label=label(row)) for row in rows]
    drawing.legend(figure, patches, 4)
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
    _named_rows(axes, [baseline, *(cause.name for cause in causes), reference])
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


def _named_rows(axes: Any, names: Sequence[str]) -> None:
    """Name the rows of a figure of horizontal bars, the first one on top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False)


def _note(axes: Any, x: float, y: float, text: str) -> None:
    axes.annotate(text, (x, y), (5, 0), textcoords="offset points", va="center", fontsize=9)


def _signed(seconds: float) -> str:
    written = duration(abs(seconds))
    return written if written == "0.0 s" else f"{'+' if seconds > 0 else MINUS}{written}"
