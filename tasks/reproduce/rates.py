"""What a forward pass, a token and a token that is looked at take: fitted to an engine's timed calls.

Legend of shapes: C calls, F features of work.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from tasks.reproduce.replay import FEATURES, Work
from tasks.settings import EngineSettings

Floats = npt.NDArray[np.float64]
Engine = tuple[str, str, int]
"""Kind, type of weights and devices: engines that are equal in these share their rates."""
Rates = Mapping[Engine, Work]
"""Seconds per unit of every feature, by engine."""
_DRAWS = 200
_NOTHING = 1e-12
"""Seconds; a smaller rate is not worth telling."""


@dataclass(frozen=True)
class Timed:
    """Calls of an engine."""

    engine: Engine
    work_CF: Floats
    seconds_C: Floats


def engine_of(settings: EngineSettings) -> Engine:
    """What an engine's rates belong to."""
    return settings.kind, settings.dtype, settings.tensor_parallel


def fit(timed: Sequence[Timed]) -> Rates:
    """The rates that explain the seconds of calls best, none below 0.

    Least squares, every call weighted by one over its seconds: what disturbs a call adds up over it.
    """
    return {engine: _solved(*_of(timed, engine)) for engine in _engines(timed)}


def drawn(timed: Sequence[Timed]) -> list[Rates]:
    """Fits to as many calls, drawn anew from them with replacement."""
    random = np.random.default_rng(0)
    every = {engine: _of(timed, engine) for engine in _engines(timed)}
    fits: list[Rates] = []
    for _ in range(_DRAWS):
        rates = {}
        for engine, (work_CF, seconds_C) in every.items():
            some = random.integers(len(seconds_C), size=len(seconds_C))
            rates[engine] = _solved(work_CF[some], seconds_C[some])
        fits.append(rates)
    return fits


def error(timed: Sequence[Timed], rates: Rates) -> float:
    """The mean difference of a call's seconds from what the rates give, as a share of the mean call."""
    differences = [np.abs(one.work_CF @ rates[one.engine] - one.seconds_C) for one in timed]
    return float(np.concatenate(differences).sum() / sum(one.seconds_C.sum() for one in timed))


def told(rates: Rates) -> str:
    """``10.2 ms a pass, 31 µs a token``."""
    return "; ".join(
        ", ".join(f"{_small(rate)} {name}" for rate, name in zip(one, FEATURES, strict=True) if rate > _NOTHING)
        for one in rates.values()
    )


def _engines(timed: Sequence[Timed]) -> list[Engine]:
    return list(dict.fromkeys(one.engine for one in timed))


def _of(timed: Sequence[Timed], engine: Engine) -> tuple[Floats, Floats]:
    own = [one for one in timed if one.engine == engine]
    return np.concatenate([one.work_CF for one in own]), np.concatenate([one.seconds_C for one in own])


def _solved(work_CF: Floats, seconds_C: Floats) -> Work:
    weight_C = 1 / np.sqrt(np.maximum(seconds_C, 1e-9))
    unit_F = np.maximum(work_CF.max(axis=0), 1e-9)  # features differ by orders of magnitude
    rates_F, _ = nnls(weight_C[:, None] * work_CF / unit_F, weight_C * seconds_C)
    return np.asarray(rates_F / unit_F)


def _small(seconds: float) -> str:
    factor, unit = next(
        (pair for pair in ((1e3, "ms"), (1e6, "µs")) if seconds * pair[0] >= 1),
        (1e9, "ns"),
    )
    return f"{seconds * factor:.3g} {unit}"
