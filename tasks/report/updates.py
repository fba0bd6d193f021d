"""Metrics of the updates as columns over a whole run, and fewer points of a long column for a figure."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.train.histogram import EDGES

Column = NDArray[np.float64]


def number_columns(tables: Sequence[pa.Table]) -> dict[str, Column]:
    """Return the numbers of several stages' metrics, one stage after the other; what is null or absent is NaN."""
    nested = {field.name for table in tables for field in table.schema if pa.types.is_nested(field.type)}
    names = dict.fromkeys(name for table in tables for name in table.column_names if name not in nested)
    return {
        name: np.array([math.nan if value is None else value for value in _values(tables, name)], dtype=np.float64)
        for name in names
    }


def histogram_columns(tables: Sequence[pa.Table]) -> dict[str, Column]:
    """Return counts per bin of several stages' metrics, [updates, bins]; the row of an update without counts is NaN."""
    found = {}
    for name, edges in EDGES.items():
        bins = len(edges) - 1
        rows = [counts if counts and len(counts) == bins else [math.nan] * bins for counts in _values(tables, name)]
        found[name] = np.array(rows, dtype=np.float64).reshape(-1, bins)
    return found


def _values(tables: Sequence[pa.Table], name: str) -> list[Any]:
    return [
        value
        for table in tables
        for value in (table[name].to_pylist() if name in table.column_names else [None] * table.num_rows)
    ]


def binned(x: Column, *ys: Column, points: int) -> tuple[Column, ...]:
    """Return means over runs of neighbors, at most about ``points`` of them; NaN does not count."""
    if len(x) == 0:
        return (x, *ys)
    size = -(-len(x) // points)
    starts = np.arange(0, len(x), size)
    return tuple(_mean(column, starts) for column in (x, *ys))


def _mean(column: Column, starts: np.ndarray[Any, Any]) -> Column:
    known = ~np.isnan(column)
    count = np.add.reduceat(known.astype(float), starts)
    total = np.add.reduceat(np.where(known, column, 0.0), starts)
    means: Column = np.divide(total, count, out=np.full(len(starts), np.nan), where=count > 0)
    return means


def thinned(x: Column, y: Column, points: int, reduce: Callable[[Column], Any] = np.median) -> tuple[Column, Column]:
    """Return a point for every value of x, or for every few of them, so that there are at most ``points``.

    Args:
        x: in any order; a value can occur more than once.
        y: NaN does not count.
        points: the most points.
        reduce: reduces the ys of a point to one number.
    """
    known = ~np.isnan(y)
    if not known.any():
        return np.zeros(0), np.zeros(0)
    values, place = np.unique(x[known], return_inverse=True)
    place //= -(-len(values) // points)
    order = np.argsort(place, kind="stable")
    starts = np.flatnonzero(np.diff(place[order])) + 1
    middles = [np.median(part) for part in np.split(x[known][order], starts)]
    return np.array(middles), np.array([reduce(part) for part in np.split(y[known][order], starts)])


def rolling(column: Column, window: int) -> Column:
    """Return the mean over up to ``window`` entries around each; NaN does not count, and stays where all are NaN."""
    known = ~np.isnan(column)
    kernel = np.ones(min(window, len(column)))
    count = np.convolve(known, kernel, mode="same")
    total = np.convolve(np.where(known, column, 0.0), kernel, mode="same")
    means: Column = np.divide(total, count, out=np.full(len(column), np.nan), where=count > 0)
    return means


def segments(stage: Column) -> Iterator[slice]:
    """Yield slices of the runs of equal values: the stages, so that no line is drawn over the jump between two."""
    edges = [0, *(np.flatnonzero(np.diff(stage)) + 1).tolist(), len(stage)]
    yield from (slice(start, end) for start, end in pairwise(edges) if end > start)
