"""Rows of numbers per update, as columns over a whole run."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.optimize.histogram import HISTOGRAM_EDGES

Column = NDArray[np.float64]
HISTOGRAMS = ("advantage_histogram", "advantage_histogram_kept")
"""Columns with a count per bin of HISTOGRAM_EDGES: of all tokens, and of those that are not vetoed."""
BINS = len(HISTOGRAM_EDGES) - 1


def number_columns(tables: Sequence[pa.Table]) -> dict[str, Column]:
    """Columns of numbers of some stages' metrics, one after the other; what is null or absent is NaN."""
    nested = {field.name for table in tables for field in table.schema if pa.types.is_nested(field.type)}
    names = dict.fromkeys(name for table in tables for name in table.column_names if name not in nested)
    return {
        name: np.array([math.nan if value is None else value for value in _values(tables, name)], dtype=np.float64)
        for name in names
    }


def histogram_columns(tables: Sequence[pa.Table]) -> dict[str, Column]:
    """The HISTOGRAMS of some stages' metrics, [updates, bins]; the row of an update without one is NaN."""
    found = {}
    for name in HISTOGRAMS:
        rows = [counts if counts and len(counts) == BINS else [math.nan] * BINS for counts in _values(tables, name)]
        found[name] = np.array(rows, dtype=np.float64).reshape(-1, BINS)
    return found


def _values(tables: Sequence[pa.Table], name: str) -> list[Any]:
    return [
        value
        for table in tables
        for value in (table[name].to_pylist() if name in table.column_names else [None] * table.num_rows)
    ]
