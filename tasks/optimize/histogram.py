"""Bins of the advantage histograms; the report reads them too, so nothing heavy is imported here."""

import numpy as np

HISTOGRAM_EDGES = np.linspace(-4.25, 4.25, 18)
"""The outermost bins take what lies beyond them, and the middle one holds 0."""
