"""What arms that ran on the same seeds and problems say: intervals, paired differences, paired tests.

Legend of shapes: S seeds, P held-out problems.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

Accuracy = npt.NDArray[np.float64]
_DRAWS = 10_000


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % interval."""

    value: float
    low: float
    high: float


def interval(accuracy_SP: Accuracy) -> Interval:
    """The mean over seeds and problems, with a bootstrap that draws both anew.

    Three seeds are few: the interval is wide where they differ, and may still be too narrow.
    """
    random = np.random.default_rng(0)
    seeds, problems = accuracy_SP.shape
    seed_counts = random.multinomial(seeds, np.full(seeds, 1 / seeds), _DRAWS) / seeds
    problem_counts = random.multinomial(problems, np.full(problems, 1 / problems), _DRAWS) / problems
    means = np.einsum("ds,sp,dp->d", seed_counts, accuracy_SP, problem_counts, optimize=True)
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(float(accuracy_SP.mean()), float(low), float(high))


def paired_p(accuracy_SP: Accuracy, other_SP: Accuracy) -> float:
    """Two-sided p of the Wilcoxon signed-rank test over problems, each with its mean difference over the seeds."""
    difference_P = (accuracy_SP - other_SP).mean(0)
    if not difference_P.any():
        return 1.0
    return float(stats.wilcoxon(difference_P, zero_method="zsplit", method="approx").pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for their number (Holm 1979)."""
    order = np.argsort(p_values)
    adjusted = np.empty(len(p_values))
    running = 0.0
    for rank, place in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = running
    return [float(p) for p in adjusted]
