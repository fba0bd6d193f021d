"""The numbers of a figure, said once: what is drawn is drawn from them, and they are the table beside it."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from matplotlib.figure import Figure

from tasks.report.updates import Column

COLUMNS = ("panel", "series", "x", "y", "low", "high")
"""Of every figure's table; docs/metrics.md tells what they hold."""
Values = Sequence[float] | Column


@dataclass(frozen=True)
class Series:
    """Numbers with one look in one panel. Columns are of one length; NaN where there is nothing to show."""

    panel: str
    """Empty in a figure of one panel."""
    name: str
    x: Column
    y: Column
    low: Column
    """Of an interval around y, as is ``high``."""
    high: Column

    @classmethod
    def of(
        cls, panel: str, name: str, x: Values, y: Values, low: Values | None = None, high: Values | None = None
    ) -> Self:
        """From plain numbers; without an interval its columns are NaN."""
        nothing = np.full(len(x), math.nan)
        columns = (nothing if one is None else np.asarray(one, dtype=np.float64) for one in (x, y, low, high))
        return cls(panel, name, *columns)


@dataclass(frozen=True)
class Picture:
    """A figure, and all that is drawn in it; a long line is drawn through fewer points than its series has."""

    drawn: Figure | str
    """Of matplotlib, or SVG."""
    series: Sequence[Series]


@dataclass(frozen=True)
class Drawn:
    """A figure as files."""

    svg: str
    csv: str


def to_csv(series: Sequence[Series]) -> str:
    """A row per point, in the order in which they are drawn; a cell is empty where there is no number."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for one in series:
        for numbers in zip(*(column.tolist() for column in (one.x, one.y, one.low, one.high)), strict=True):
            table.writerow([one.panel, one.name, *map(_written, numbers)])
    return text.getvalue()


def _written(value: float) -> str:
    """All of its digits; whole numbers without a point."""
    if math.isnan(value):
        return ""
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
