"""All figures of a comparison, as SVG with the data that they draw. A figure without data is left out."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from tasks.experiments import sketches
from tasks.experiments.result import LaboratoryResult, ReproductionResult
from tasks.experiments.runs import SystemRun
from tasks.experiments.sketches import Sketch, looks
from tasks.report import drawing

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
    look, reference = looks(result), result.reference
    drawn: dict[str, CaptionedFigure] = {}
    for model in result.models:
        own = [run for run in runs if run.model == model]
        makers: dict[str, Callable[[], Sketch | None]] = {
            "accuracy": partial(sketches.accuracy, own, look),
            "reward": partial(sketches.over_updates, "reward", own, look, reference),
            "vetoed": partial(sketches.over_updates, "veto_fraction", own, look, reference),
            "ledger": partial(sketches.ledgers, [one for one in result.times if one.model == model], look),
        }
        for baseline in (system for system in result.systems if system != reference):
            causes = [one for one in result.causes if (one.model, one.baseline) == (model, baseline)]
            makers |= {
                f"causes-{_plain(baseline)}": partial(sketches.waterfall, causes, own, reference, baseline),
                f"execution-{_plain(baseline)}": partial(sketches.timeline, own, reference, baseline),
            }
        drawn |= _drawn({f"{name}-{_plain(model)}": maker for name, maker in makers.items()}, model)
    asked = [one for one in laboratory if one.part in _OF_THE_PAPER]
    return drawn | _drawn({f"laboratory-{one.part}": partial(sketches.arms, one) for one in asked})


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
