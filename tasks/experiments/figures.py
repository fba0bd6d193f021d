"""Figures of a comparison, as SVG and as a table of their numbers. A figure without data is left out."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, cycle, product
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from matplotlib.colors import to_rgba

from tasks.evaluate.statistics import Values
from tasks.experiments.laboratory import FIGURE as CURVES
from tasks.experiments.result import Cause, LaboratoryResult, ReproductionResult
from tasks.experiments.runs import Pair, SystemRun, pairs_of
from tasks.experiments.speedup import pairs_of_equal_length, training_time
from tasks.formats import MINUS, duration
from tasks.report import drawing
from tasks.report.drawing import Chart, Drawn, Look, Panel, Picture, Series, draw_picture
from tasks.report.history import History
from tasks.report.ledger import STARTS, merge, seconds_before, training_clock
from tasks.report.theme import BLUE, GREEN, INK, MUTED, ORANGE
from tasks.settings.base import read_packaged_yaml
from tasks.store.records import Manifest

Looks = dict[str, Look]
OF_THE_PAPER = ("a", "b")
"""Parts of the laboratory that are figures of the paper."""
_COLORS, _STYLES, _MARKERS = ("blue", "orange", "green", "ink", "muted"), ("-", "--", ":"), "osD^v"
_POINTS = 128
"""Largest number of points in the line of a system over all stages."""
_LANES = {"generate": BLUE, "verify": GREEN, "optimize": ORANGE, "switch": INK, "load, save": INK, "evaluate": MUTED}
"""Colors of the lanes in an execution figure."""
_LANE_OF_PHASE = {"logp": "optimize", "start": "load, save", "load": "load, save", "save": "load, save"}
"""Lanes of the phases whose lane has another name."""
LaneSpan = tuple[str, float, float, float]
"""Lane, start, end, and the share of this time in which the lane worked."""


def make_figures(
    result: ReproductionResult, runs: Sequence[SystemRun], laboratory: Sequence[LaboratoryResult]
) -> dict[str, Picture]:
    """Draw all figures, by name of their files, in the order of the page."""
    reference = result.reference
    # The reference is blue, and a system has the same look in all figures.
    ordered = [reference, *(system for system in result.systems if system != reference)]
    looks = {
        system: Look(text=system, color=color, style=style, marker=marker)
        for system, (style, color), marker in zip(
            ordered, cycle(product(_STYLES, _COLORS)), cycle(_MARKERS), strict=False
        )
    }
    captions = read_packaged_yaml(__file__, "figures.yaml")
    pictures: dict[str, Picture] = {}

    def add(kind: str, model: str, drawn: Drawn | None, baseline: str = "") -> None:
        if drawn:
            name = re.sub(r"[^a-z0-9]+", "-", f"{kind} {baseline} {model}".lower()).strip("-")
            name += f"-{len(pictures)}" * (name in pictures)  # Models "7B" and "7b", or two names in Chinese.
            texts = {key: text.format(reference=reference, baseline=baseline) for key, text in captions[kind].items()}
            pictures[name] = draw_picture(drawn, name, **texts, model=model)

    with drawing.style():
        for model in result.models:
            of_model = [run for run in runs if run.model == model]
            if not of_model:
                continue
            add("accuracy", model, accuracy(of_model, looks))
            add("reward", model, over_updates("reward", Panel("mean reward", "zero"), of_model, looks, reference))
            vetoed = Panel("vetoed share of response tokens", "percent")
            add("vetoed", model, over_updates("veto_fraction", vetoed, of_model, looks, reference))
            for baseline in ordered[1:]:
                causes = [one for one in result.causes if (one.model, one.baseline) == (model, baseline)]
                if pairs := pairs_of_equal_length(pairs_of(runs, model, reference, baseline)):
                    add("causes", model, waterfall(causes, pairs), baseline)
                    add("execution", model, execution(*pairs[0]), baseline)
    for part in laboratory:
        if part.part in OF_THE_PAPER:
            svg = (Path(part.folder) / CURVES).read_text(encoding="utf-8")
            ends = [
                Series("", one.name, [part.updates], [one.accuracy.value], [one.accuracy.low], [one.accuracy.high])
                for one in part.arms
            ]
            caption = f"{part.asks} A thin line is a seed, and a strong line is the mean of the seeds."
            pictures[f"laboratory-{part.part}"] = Picture(svg, ends, part.title, caption)
    return pictures


def accuracy(runs: Sequence[SystemRun], looks: Looks) -> Drawn:
    """Draw accuracy over wall-clock, with a line per system and a thin line per seed."""
    series = []
    for system, look in looks.items():
        lines = []
        for run in (one for one in runs if one.system == system):
            lines.append((training_clock(run.history), [one.accuracy.value for one in run.history.evaluated]))
            series.append(Series("", f"{system}, seed {run.seed}", *lines[-1], look=look.thin()))
        if lines:
            series.append(Series("", system, *np.mean(lines, axis=0), look=look))
    unit, size = drawing.time_unit(max(float(one.x.max()) for one in series))
    panel = Panel(f"accuracy, {runs[0].history.evaluated[-1].headline}", "percent")
    return Chart(series, {"": panel}, f"training time, {unit}", unit=size, whole_ticks=False)


def over_updates(name: str, panel: Panel, runs: Sequence[SystemRun], looks: Looks, reference: str) -> Drawn | None:
    """Draw a column of the metrics over updates, with a line per system.

    A column other than ``reward`` is drawn only for runs whose objective has a veto.
    """
    series = []
    for system, look in looks.items():
        histories = [run.history for run in runs if run.system == system]
        measured = [one for one in histories if one.has_numbers(name) and (name == "reward" or one.veto)]
        smooth = look.model_copy(update={"marker": "", "points": _POINTS})
        series += [Series("", system, *line, look=smooth) for line in _means(measured, name)] if measured else []
    if not series:
        return None
    boundaries = next((run.history.boundaries for run in runs if run.system == reference), [])
    if len(systems := {one.name for one in series}) == 1:  # A single line has no legend.
        panel = replace(panel, title=f"{panel.title}, {systems.pop()}")
    return Chart(series, {"": panel}, "update", boundaries=[update + 0.5 for update in boundaries])


def _means(histories: Sequence[History], name: str) -> list[Values]:
    """Return, per stage, the updates and the means of a column over runs, [2, updates]."""
    update, stage = (histories[0].column(one) for one in ("update", "stage"))
    values = np.array([history.column(name) for history in histories])
    known = ~np.isnan(values).all(axis=0)
    means = np.array([update[known], np.nanmean(values[:, known], axis=0)])
    return [means[:, stage[known] == number] for number in np.unique(stage[known])]


def execution(ours: SystemRun, theirs: SystemRun) -> Drawn:
    """Draw the phases of two runs over time, in two panels with one time axis."""
    lines = [(run.system, list(_spans(run.history))) for run in (theirs, ours)]
    longest = max(end for _, spans in lines for _, _, end, _ in spans)
    unit, size = drawing.time_unit(longest)
    figure, grid = drawing.panels(2, 1.7)
    for axes, (system, spans) in zip(grid, lines, strict=True):
        for lane, start, end, share in spans:
            color = to_rgba(_LANES[lane], 0.12 + 0.88 * min(1.0, share))
            axes.barh(list(_LANES).index(lane), (end - start) / size, 0.8, start / size, color=color, linewidth=0)
        axes.set_xlim(0, longest / size)
        drawing.named_rows(axes, list(_LANES))
        axes.set_title(f"{system}, seed {ours.seed}")
    grid[-1].set_xlabel(f"time since the first stage began, {unit}")
    series = [
        Series(system, lane, [start], [share * (end - start)], [start], [end])
        for system, spans in lines
        for lane, start, end, share in spans
    ]
    return figure, series


def _spans(history: History) -> Iterator[LaneSpan]:
    """Yield the spans of all lanes, in seconds since the first stage began, without the time between processes."""
    steps = [step for stage in history.stages for step in stage.steps]
    trained = [policy for policy in history.evaluated if policy.updates]
    steps += [history.manifests[one.evaluation] for policy in trained for one in policy.evaluations]
    busy = merge((one.timings.started, one.timings.finished) for one in steps)
    for step in steps:
        start, end = (seconds_before(busy, moment) for moment in (step.timings.started, step.timings.finished))
        yield from _phase_spans(step, start, end)


def _phase_spans(manifest: Manifest, start: float, end: float) -> Iterator[LaneSpan]:
    """Yield the phases of a step between two moments, one after the other.

    If generation and training alternate in the step, every phase spans the whole time with its share.
    """
    phases: dict[str, float] = {}
    for phase, seconds in manifest.timings.phases.items():
        lane = _LANE_OF_PHASE.get(phase, phase)
        if manifest.kind == "evaluation" and phase not in STARTS:
            lane = "evaluate"
        if seconds > 0:
            phases[lane] = phases.get(lane, 0.0) + seconds
    scale = min(1.0, (end - start) / sum(phases.values())) if phases else 0.0
    alternating = "generate" in phases and "optimize" in phases
    for lane, seconds in phases.items():
        if alternating:
            yield lane, start, end, scale * seconds / (end - start)
        else:
            yield lane, start, start + scale * seconds, 1.0
            start += scale * seconds


def waterfall(causes: Sequence[Cause], pairs: Sequence[Pair]) -> Drawn:
    """Draw a waterfall from the training time of the baseline to that of the reference, with a bar per cause."""
    reference, baseline = (run.system for run in pairs[0])
    whole = mean(sum(training_time(theirs).values()) for _, theirs in pairs)
    remaining = list(accumulate((-cause.seconds for cause in causes), initial=whole))
    figure, (axes,) = drawing.panels(1, 0.36 * (len(causes) + 2) + 0.2)
    axes.barh(0, whole, color=MUTED, height=0.6, alpha=0.8)
    _note(axes, whole, 0, duration(whole))
    for row, (cause, before, after) in enumerate(zip(causes, remaining, remaining[1:], strict=False), 1):
        color = GREEN if cause.seconds >= 0 else ORANGE
        axes.barh(row, abs(cause.seconds), left=min(before, after), height=0.6, color=color)
        axes.plot([before, before], [row - 1, row], color=MUTED, linewidth=0.7, zorder=1)
        _note(axes, max(before, after), row, _signed(-cause.seconds))
    axes.plot([remaining[-1], remaining[-1]], [len(causes), len(causes) + 1], color=MUTED, linewidth=0.7, zorder=1)
    axes.barh(len(causes) + 1, remaining[-1], color=BLUE, height=0.6)
    _note(axes, remaining[-1], len(causes) + 1, duration(remaining[-1]))
    drawing.named_rows(axes, [baseline, *(cause.name for cause in causes), reference])
    axes.set_xlim(0, 1.28 * max(remaining))
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    bars = [(baseline, whole), *((cause.name, cause.seconds) for cause in causes), (reference, remaining[-1])]
    series = [
        Series("", name, [seconds], [after])
        for (name, seconds), after in zip(bars, [*remaining, remaining[-1]], strict=True)
    ]
    return figure, series


def _note(axes: Any, x: float, y: float, text: str) -> None:
    axes.annotate(text, (x, y), (5, 0), textcoords="offset points", va="center", fontsize=9)


def _signed(seconds: float) -> str:
    text = duration(abs(seconds))
    return text if text == "0.0 s" else f"{'+' if seconds > 0 else MINUS}{text}"
