"""The table of metrics, with a row of diagnostics per update, and the bins of its histograms.

The report reads the bins too, so nothing heavy is imported here.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

Row = dict[str, Any]
"""Diagnostics of an update, or what it did to the tokens of a response."""
ADVANTAGE_EDGES = np.linspace(-4.25, 4.25, 18)
"""Values beyond the edges count in the outermost bins; the middle bin holds 0."""
LOG_RATIO_EDGES = np.linspace(-3.1, 3.1, 32)
"""Ratios from 0.045 to 22; values beyond count in the outermost bins."""
EDGES = {
    "advantage_histogram": ADVANTAGE_EDGES,
    "advantage_histogram_kept": ADVANTAGE_EDGES,
    "ratio_histogram_negative": LOG_RATIO_EDGES,
    "ratio_histogram_positive": LOG_RATIO_EDGES,
}
"""Edges of the bins of every column that holds a count per bin."""
_COUNTS = ("stage", "update", "staleness", "tokens", "responses")


def metrics_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of the diagnostics, with a row per update; it types columns in which all values are null."""

    def kind(name: str) -> pa.DataType:
        if name in EDGES:
            return pa.list_(pa.int64())
        return pa.int64() if name in _COUNTS else pa.float64()

    return pa.schema({name: kind(name) for name in columns})
