"""Small curves and bars, drawn without matplotlib: a step must not take longer because of its deck."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tasks.report.formats import number
from tasks.report.updates import Column, binned

SIZE = (240, 72)
"""Pixels of a curve."""
_INSET = 4
_POINTS = 120


@dataclass(frozen=True)
class Curve:
    """A metric over updates."""

    title: str
    last: str
    """The value at the end."""
    low: str
    high: str
    """The ends of the vertical axis."""
    path: str
    """Of the line, in pixels; a point where there is a single value."""


@dataclass(frozen=True)
class Bar:
    """A count beside others."""

    name: str
    value: str
    share: float
    """Of the longest bar."""


def curve(title: str, x: Column, y: Column, from_zero: bool = False) -> Curve | None:
    """A line over all values that are known; None when there is none.

    Args:
        title: what y is.
        x: ascending.
        y: NaN where there is no value.
        from_zero: the axis starts at zero.
    """
    known = np.isfinite(y)
    if not known.any():
        return None
    x, y = binned(x[known], y[known], points=_POINTS)
    low, high = (min(0.0, float(y.min())) if from_zero else float(y.min())), float(y.max())
    (wide, tall), (width, height) = SIZE, (float(x[-1] - x[0]), high - low)
    points = [
        (
            _INSET + (wide - 2 * _INSET) * (float(at - x[0]) / width if width else 0.5),
            tall - _INSET - (tall - 2 * _INSET) * (float(value - low) / height if height else 0.0),
        )
        for at, value in zip(x, y, strict=True)
    ]
    line = "L".join(f"{across:.1f} {down:.1f}" for across, down in points)
    return Curve(title, _written(float(y[-1])), _written(low), _written(high), f"M{line}" + "h0" * (len(points) == 1))


def bars(counts: Mapping[str, float]) -> list[Bar]:
    """A bar per count, in their order."""
    longest = max(counts.values(), default=0) or 1
    return [Bar(name, number(count), count / longest) for name, count in counts.items()]


def histogram(values: Sequence[int] | Column, bins: int = 12) -> dict[str, int]:
    """How many whole numbers from zero on lie in each of some ranges of one width, by ``first to last``."""
    longest = int(max(values, default=0))
    width = longest // bins + 1
    edges = [width * place for place in range(longest // width + 2)]
    counts, _ = np.histogram(np.asarray(values), edges)
    names = [f"{low}" if width == 1 else f"{low} to {high - 1}" for low, high in pairwise(edges)]
    return dict(zip(names, (int(count) for count in counts), strict=True))


def _written(value: float) -> str:
    return f"{value:.3g}"
