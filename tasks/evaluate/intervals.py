"""95 % intervals of accuracies."""

import numpy as np
import numpy.typing as npt
from scipy import stats


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
    means_P = values_PK.mean(axis=1)
    value = float(means_P.mean())
    if len(means_P) < 2 or np.ptp(means_P) == 0:
        return {"value": value, "low": value, "high": value}
    interval = stats.bootstrap(
        (means_P,),
        np.mean,
        confidence_level=0.95,
        n_resamples=2000,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return {"value": value, "low": float(interval.low), "high": float(interval.high)}
