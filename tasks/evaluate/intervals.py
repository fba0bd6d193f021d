"""95 % intervals of accuracies."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import stats

_RESAMPLES = 2000
_COUNTS_AT_ONCE = 2**22
"""Of resampled problems: 32 MiB."""


def share_interval(hits: npt.NDArray[np.bool_]) -> dict[str, float]:
    """A share and its Wilson interval.

    Args:
        hits: [N], independent trials.
    """
    result = stats.binomtest(int(hits.sum()), len(hits)).proportion_ci(0.95, method="wilson")
    return {"value": float(hits.mean()), "low": float(result.low), "high": float(result.high)}


def mean_interval(values_PK: npt.NDArray[np.float64], seed: int) -> dict[str, float]:
    """The mean over problems and samples, and its bootstrap interval over problems.

    The samples of a problem are not independent of each other, so problems are resampled, not samples.

    Args:
        values_PK: [problems, samples].
        seed: of the bootstrap.
    """
    return strata_interval([values_PK.mean(axis=1)], seed)


def strata_interval(strata: Sequence[npt.NDArray[np.float64]], seed: int) -> dict[str, float]:
    """The mean over groups of their means over problems, and its bootstrap interval.

    Problems are resampled within their group: which benchmarks there are is no chance.

    Args:
        strata: a value per problem of every group, [P] each.
        seed: of the bootstrap.
    """
    value = float(np.mean([one_P.mean() for one_P in strata]))
    if all(len(one_P) < 2 or np.ptp(one_P) == 0 for one_P in strata):
        return {"value": value, "low": value, "high": value}
    random = np.random.default_rng(seed)
    means_R = np.mean([_resampled(one_P, random) for one_P in strata], axis=0)
    low, high = np.quantile(means_R, [0.025, 0.975])
    return {"value": value, "low": float(low), "high": float(high)}


def _resampled(values_P: npt.NDArray[np.float64], random: np.random.Generator) -> npt.NDArray[np.float64]:
    """[R], means of samples as large as the group, drawn from it with replacement."""
    many, share_P = len(values_P), np.full(len(values_P), 1 / len(values_P))
    at_once = max(1, _COUNTS_AT_ONCE // many)
    drawn = [min(at_once, _RESAMPLES - start) for start in range(0, _RESAMPLES, at_once)]
    means = [random.multinomial(many, share_P, some) @ values_P / many for some in drawn]
    return np.concatenate(means)
