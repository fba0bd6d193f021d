"""All figures of a reproduction, as SVG with the data that they draw. A figure without data is left out."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from tasks.laboratory.result import LaboratoryResult
from tasks.report import drawing
from tasks.reproduce import laboratory_figures, time_figures, training_figures
from tasks.reproduce.looks import Sketch, looks
from tasks.reproduce.result import ReproductionResult
from tasks.reproduce.runs import SystemRun

_OF_THE_PAPER = ("a", "b")
"""Parts of the laboratory that are figures of the paper."""


@dataclass(frozen=True)
class CaptionedFigure:
    """A figure of the page, with what it says."""

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
    """Figures by name, in the order of the page; a name is fit for a file.

    Args:
        result: tables.
        runs: those that they are made from.
        laboratory: its parts a and b, as far as they are there.
    """
    drawn: dict[str, CaptionedFigure] = {}
    for model in result.models:
        for name, maker in _makers(result, model, runs).items():
            drawn |= _drawn(f"{name}-{_plain(model)}", maker, model)
    for one in laboratory:
        if one.part in _OF_THE_PAPER:
            drawn |= _drawn(f"laboratory-{one.part}", partial(laboratory_figures.arms, one), "")
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
    """A name as part of a file's and an id's."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
