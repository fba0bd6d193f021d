"""Intervals of accuracies; paired tests, effect sizes and equivalence of runs on the same seeds and problems.

Legend of shapes: S seeds, P problems, N pairs, D draws of the bootstrap.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
"""Values in double precision."""
Benchmarks = Mapping[str, Values]
"""Values of a model, [S, P] by benchmark, of the same seeds on each."""
Extremes = tuple[float, float]
"""The smallest and the largest value that a problem can have."""
SHARES: Extremes = (0.0, 1.0)
DIFFERENCES: Extremes = (-1.0, 1.0)
_DRAWS = 10_000
_WEIGHTS_AT_ONCE = 2**23
"""Weights of problems that are in memory at once, of as many draws as have so many: 64 MiB."""
FEWEST_PAIRS = 6
"""Smallest number of pairs for the signed-rank test over runs: with five no outcome reaches the 5 % level."""


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % interval."""

    value: float
    low: float
    high: float


def mean(models: Sequence[Benchmarks]) -> float:
    """Return the mean over models of their mean over benchmarks."""
    return float(np.mean([np.mean([values_SP.mean() for values_SP in one.values()]) for one in models]))


def run_means(models: Sequence[Benchmarks]) -> Values:
    """Return the mean over benchmarks of every run, [N]; a run is a model and a seed, and counts as one value.

    The means are rounded to 12 decimals, so that equal means are equal numbers for the tests of pairs.
    """
    means = [np.mean([values_SP.mean(1) for values_SP in one.values()], axis=0) for one in models]
    return np.concatenate(means).round(12)


@dataclass(frozen=True)
class Draws:
    """A mean with its bootstrap draws: a distribution for its lower and one for its upper bound."""

    value: float
    low_D: Values
    high_D: Values

    def interval(self) -> Interval:
        """Return the mean with its 95 % interval."""
        return Interval(self.value, float(np.quantile(self.low_D, 0.025)), float(np.quantile(self.high_D, 0.975)))


def draws(models: Sequence[Benchmarks], extremes: Extremes = SHARES) -> Draws:
    """Draw bootstrap replicates of ``mean`` over problems and seeds.

    Problems have random weights that are uniform over all weights with sum 1 (the Bayesian bootstrap). One unseen
    problem is added, with the smallest of the extremes for the lower bound and the largest for the upper bound
    (Gaffke 2005; arXiv 2106.03163). For values 0 and 1 this gives the exact interval of Clopper and Pearson. All models
    have the same weights on a benchmark, since they answered the same problems.

    The means of seeds are taken as normal, and random weights give their mean a t distribution. A seed of a model has
    the same weight on all benchmarks, because the results of one run go together. With a single seed the draws are
    about this seed alone. Models and benchmarks are fixed, not drawn.

    Args:
        models: values of each model, within the extremes.
        extremes: the smallest and the largest value that a problem can have.
    """
    random = np.random.default_rng(0)
    seed_weights = [_seed_weights(random, len(next(iter(one.values())))) for one in models]
    low_D, high_D = np.zeros(_DRAWS), np.zeros(_DRAWS)
    for name in dict.fromkeys(name for one in models for name in one):
        having = [index for index, one in enumerate(models) if name in one]
        weight_M = [1 / (len(models) * len(models[index])) for index in having]
        # Problems with equal values share the sum of their weights, which takes less time.
        values_RP = np.concatenate([models[index][name] for index in having])
        values_RP, count_P = np.unique(values_RP, axis=1, return_counts=True)
        weights_DR = np.hstack([seed_weights[index] * one for index, one in zip(having, weight_M, strict=True)])
        seen_D, sum_D = np.empty(_DRAWS), np.empty(_DRAWS)
        draws_at_once = max(1, _WEIGHTS_AT_ONCE // len(count_P))
        for start in range(0, _DRAWS, draws_at_once):
            some = slice(start, start + draws_at_once)
            means_DP = weights_DR[some] @ values_RP
            weights_DP = random.standard_gamma(count_P, means_DP.shape)
            sum_D[some] = weights_DP.sum(axis=1)
            means_DP *= weights_DP
            seen_D[some] = means_DP.sum(axis=1)
        unseen_D = random.exponential(size=_DRAWS)
        for bound_D, extreme in ((low_D, extremes[0]), (high_D, extremes[1])):
            bound_D += (seen_D + unseen_D * extreme * sum(weight_M)) / (sum_D + unseen_D)
    return Draws(mean(models), np.clip(low_D, *extremes), np.clip(high_D, *extremes))


def _seed_weights(random: np.random.Generator, seeds: int) -> Values:
    """Return weights of seeds, [D, S], with sum 1, that give a mean a t distribution with S - 1 degrees of freedom."""
    if seeds == 1:
        return np.ones((_DRAWS, 1))
    normal_DS = random.standard_normal((_DRAWS, seeds))
    normal_DS -= normal_DS.mean(axis=1, keepdims=True)
    return (1 + normal_DS * np.sqrt(seeds / random.chisquare(seeds - 1, (_DRAWS, 1)))) / seeds


def interval(models: Sequence[Benchmarks], extremes: Extremes = SHARES) -> Interval:
    """Return ``mean`` of the models, with the interval of ``draws``."""
    return draws(models, extremes).interval()


def bootstrap_p(drawn: Draws) -> float:
    """Return the two-sided p-value for a mean of 0: twice the smaller share of draws on one side of 0."""
    return min(1.0, 2 * min(_share(drawn.low_D <= 0), _share(drawn.high_D >= 0)))


def equivalence_p(drawn: Draws, margin: float) -> float:
    """Return the p-value of two one-sided tests that a mean is within ``margin`` of 0 (Schuirmann 1987)."""
    return max(_share(drawn.low_D <= -margin), _share(drawn.high_D >= margin))


def _share(found_D: npt.NDArray[np.bool_]) -> float:
    """Return the share of true values; the observation counts as one draw, so that no p-value is 0."""
    return float((found_D.sum() + 1) / (len(found_D) + 1))


def signed_rank_p(difference_N: Values) -> float | None:
    """Return the two-sided p-value of the Wilcoxon signed-rank test; None with fewer pairs than ``FEWEST_PAIRS``."""
    if len(difference_N) < FEWEST_PAIRS:
        return None
    from scipy import stats

    return float(stats.wilcoxon(difference_N, zero_method="zsplit").pvalue)


def cohen_dz(difference_N: Values) -> float | None:
    """Return Cohen's d_z, the mean of paired differences over their standard deviation; None where they do not vary."""
    return float(difference_N.mean() / difference_N.std(ddof=1)) if np.ptp(difference_N) > 0 else None


def rank_biserial(difference_N: Values) -> float | None:
    """Return the rank-biserial correlation of pairs (Kerby 2014), -1 to 1; None where all differences are 0."""
    nonzero = difference_N[difference_N != 0]
    if not len(nonzero):
        return None
    from scipy import stats

    ranks = stats.rankdata(np.abs(nonzero))
    return float((ranks * np.sign(nonzero)).sum() / ranks.sum())


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for their number (Holm 1979)."""
    p_N, order = np.array(p_values), np.argsort(p_values)
    adjusted_N = np.empty(len(p_N))
    adjusted_N[order] = np.maximum.accumulate(np.minimum(1.0, p_N[order] * np.arange(len(p_N), 0, -1)))
    return [float(p) for p in adjusted_N]
