"""All figures of a comparison, as SVG with the data that they draw. A figure without data is left out."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from matplotlib.ticker import MaxNLocator

from tasks.experiments import time_figures, training_figures
from tasks.experiments.looks import Row, Sketch, looks
from tasks.experiments.result import LaboratoryResult, ReproductionResult
from tasks.experiments.runs import SystemRun
from tasks.report import drawing
from tasks.report.look import BLUE, INK, MUTED, ORANGE

_OF_THE_PAPER = ("a", "b")
"""Parts of the laboratory that are figures of the paper."""


@dataclass(frozen=True)
class CaptionedFigure:
    """A figure of the page, with its title and caption."""

    svg: str
    data: pa.Table
    """What is drawn, row by row: its CSV."""
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
    drawn: dict[str, CaptionedFigure] = {}
    for model in result.models:
        for name, maker in _makers(result, model, runs).items():
            drawn |= _drawn(f"{name}-{_plain(model)}", maker, model)
    for one in laboratory:
        if one.part in _OF_THE_PAPER:
            drawn |= _drawn(f"laboratory-{one.part}", partial(_arms, one), "")
    return drawn


def _makers(
    result: ReproductionResult, model: str, runs: Sequence[SystemRun]
) -> dict[str, Callable[[], Sketch | None]]:
    look, reference = looks(result), result.reference
    made: dict[str, Callable[[], Sketch | None]] = {
        "accuracy": partial(training_figures.accuracy, model, runs, look),
        "reward": partial(training_figures.reward, model, runs, look, reference),
        "vetoed": partial(training_figures.vetoed, model, runs, look, reference),
        "ledger": partial(time_figures.ledgers, model, result.times, look),
    }
    for baseline in (system for system in result.systems if system != reference):
        made[f"causes-{_plain(baseline)}"] = partial(time_figures.waterfall, result, model, runs, baseline)
        made[f"execution-{_plain(baseline)}"] = partial(time_figures.timeline, model, runs, reference, baseline)
    return made


def _drawn(name: str, maker: Callable[[], Sketch | None], model: str) -> dict[str, CaptionedFigure]:
    with drawing.style():
        sketch = maker()
        if sketch is None:
            return {}
        svg = drawing.to_svg(sketch.figure, name, f"{sketch.title}. {sketch.caption}")
    rows = [{**({"model": model} if model else {}), **row} for row in sketch.data]
    return {name: CaptionedFigure(svg, pa.Table.from_pylist(rows), sketch.title, sketch.caption, model)}


def _plain(name: str) -> str:
    """Return a name that is fit for a file and for an id."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _arms(result: LaboratoryResult) -> Sketch:
    """Draw the accuracy of every arm at the end, with its interval, and the best one along the way."""
    figure, (axes,) = drawing.panels(1, 0.34 * len(result.arms) + 0.3)
    rows: list[Row] = []
    for place, arm in enumerate(result.arms):
        color = BLUE if arm.name == result.reference else INK
        axes.plot([arm.low, arm.high], [place, place], color=color, linewidth=1.6)
        axes.plot([arm.accuracy], [place], "o", color=color, markersize=5)
        axes.plot([arm.best], [place], "D", color=ORANGE, markersize=4, markerfacecolor="none")
        if arm.stopped:
            axes.annotate("stopped", (arm.high, place), (5, 0), textcoords="offset points", va="center", fontsize=9)
        rows.append(
            {
                "arm": arm.name,
                "accuracy": arm.accuracy,
                "low": arm.low,
                "high": arm.high,
                "best": arm.best,
                "vetoed": arm.vetoed,
                "clipped": arm.clipped,
                "p": arm.p,
            }
        )
    axes.axvline(result.base, color=MUTED, linewidth=0.9, linestyle=(0, (3, 3)))
    axes.set_yticks(range(len(result.arms)), [arm.name for arm in result.arms])
    axes.set_ylim(len(result.arms) - 0.5, -0.5)
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.set_xlabel("accuracy")
    axes.grid(visible=False)
    look = {"linestyle": "", "markersize": 5}
    drawing.legend(
        figure,
        [
            drawing.line(INK, "at the end, 95 %", marker="o", **look),
            drawing.line(ORANGE, "best on the way", marker="D", markerfacecolor="none", linestyle="", markersize=4),
            drawing.line(MUTED, "base policy", linestyle=(0, (3, 3)), linewidth=0.9),
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
