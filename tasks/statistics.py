"""What runs on the same seeds and problems say: intervals, paired tests, effect sizes, equivalence.

Legend of shapes: S seeds, P problems, N pairs, D draws of the bootstrap.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

Values = npt.NDArray[np.float64]
Benchmarks = Mapping[str, Values]
"""Of a model: values [S, P] by benchmark, of the same seeds on each."""
_DRAWS = 10_000
FEWEST_PAIRS = 6
"""Of the signed-rank test over runs: with five pairs no outcome reaches the 5 % level."""


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % interval."""

    value: float
    low: float
    high: float


def mean(models: Sequence[Benchmarks]) -> float:
    """The mean over models of their mean over benchmarks."""
    return float(np.mean([np.mean([values_SP.mean() for values_SP in one.values()]) for one in models]))


def run_means(models: Sequence[Benchmarks]) -> Values:
    """[N], of every run (a model and a seed) the mean over benchmarks: what one run tells is one value."""
    return np.concatenate([np.mean([values_SP.mean(1) for values_SP in one.values()], axis=0) for one in models])


def draws(models: Sequence[Benchmarks]) -> Values:
    """[D], the mean that ``mean`` gives, with seeds and problems drawn anew.

    Which models and benchmarks there are is no chance. The seeds of a model are drawn for all of its benchmarks
    together: a run that went well did so on all of them. The problems of a benchmark are drawn for all models
    together, which answered the same ones.

    Three seeds are few: intervals are wide where they differ, and may still be too narrow.
    """
    random = np.random.default_rng(0)
    sizes = {name: values_SP.shape[1] for one in models for name, values_SP in one.items()}
    counts = {name: _drawn(random, problems) for name, problems in sizes.items()}
    means_D = np.zeros(_DRAWS)
    for one in models:
        seed_counts = _drawn(random, len(next(iter(one.values()))))
        for name, values_SP in one.items():
            drawn = np.einsum("ds,sp,dp->d", seed_counts, values_SP, counts[name], optimize=True)
            means_D += drawn / (len(one) * len(models))
    return means_D


def _drawn(random: np.random.Generator, number: int) -> Values:
    """[D, ``number``], the share of each in a draw of as many with replacement."""
    return random.multinomial(number, np.full(number, 1 / number), _DRAWS) / number


def interval(values_SP: Values) -> Interval:
    """The mean over seeds and problems of one model on one benchmark."""
    return interval_of([{"": values_SP}])


def interval_of(models: Sequence[Benchmarks]) -> Interval:
    """The mean that ``mean`` gives, with the quantiles of ``draws``."""
    low, high = np.quantile(draws(models), [0.025, 0.975])
    return Interval(mean(models), float(low), float(high))


def bootstrap_p(drawn_D: Values, null: float = 0.0) -> float:
    """Two-sided p that a mean is ``null``: twice the share of draws on its rarer side."""
    return min(1.0, 2 * min(_share(drawn_D <= null), _share(drawn_D >= null)))


def equivalence_p(drawn_D: Values, margin: float) -> float:
    """P of two one-sided tests that a mean lies within ``margin`` of 0 (Schuirmann 1987)."""
    return max(_share(drawn_D <= -margin), _share(drawn_D >= margin))


def _share(found_D: npt.NDArray[np.bool_]) -> float:
    """With the draw that was observed, so that no p is 0."""
    return float((found_D.sum() + 1) / (len(found_D) + 1))


def signed_rank_p(difference_N: Values) -> float | None:
    """Two-sided p of the Wilcoxon signed-rank test over pairs of runs; None with fewer than ``FEWEST_PAIRS``."""
    if len(difference_N) < FEWEST_PAIRS:
        return None
    if not difference_N.any():
        return 1.0
    return float(stats.wilcoxon(difference_N, zero_method="zsplit").pvalue)


def cohen_dz(difference_N: Values) -> float | None:
    """The mean of paired differences in their standard deviations; None where they do not vary."""
    spread = difference_N.std(ddof=1) if len(difference_N) > 1 else 0.0
    return float(difference_N.mean() / spread) if spread > 0 else None


def rank_biserial(difference_N: Values) -> float | None:
    """The matched-pairs rank-biserial correlation (Kerby 2014), -1 to 1; None where all differences are 0."""
    nonzero = difference_N[difference_N != 0]
    if not len(nonzero):
        return None
    ranks = stats.rankdata(np.abs(nonzero))
    return float((ranks * np.sign(nonzero)).sum() / ranks.sum())


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for their number (Holm 1979)."""
    order = np.argsort(p_values)
    adjusted = np.empty(len(p_values))
    running = 0.0
    for rank, place in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = running
    return [float(p) for p in adjusted]
