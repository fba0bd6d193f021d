"""Bins of histograms over tokens; the report reads them too, so nothing heavy is imported here."""

import numpy as np

ADVANTAGE_EDGES = np.linspace(-4.25, 4.25, 18)
"""The outermost bins take what lies beyond them, and the middle one holds 0."""
LOG_RATIO_EDGES = np.linspace(-3.1, 3.1, 32)
"""Likewise; ratios from 0.045 to 22."""
EDGES = {
    "advantage_histogram": ADVANTAGE_EDGES,
    "advantage_histogram_kept": ADVANTAGE_EDGES,
    "ratio_histogram_negative": LOG_RATIO_EDGES,
    "ratio_histogram_positive": LOG_RATIO_EDGES,
}
"""Of every column of the diagnostics that holds a count per bin."""
