"""The interval of the ratio in an update, which M2PO and BAPO find over all its tokens.

Shapes: N response tokens of an update; n those of them that count, sorted.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from tasks.settings.objective import BalanceGate, BalanceSettings, GateSettings, SecondMomentGate, SecondMomentSettings
from tasks.train import distributed


class Bounds(NamedTuple):
    """The interval of the ratio in an update."""

    low: float
    high: float


def update_bounds(log_ratio_N: Tensor, advantage_N: Tensor, settings: GateSettings) -> Bounds:
    """Find the interval of an update whose gate computes it, from the tokens of all processes.

    ``log_ratio_N``, at the start of the update, and ``advantage_N`` are those of the N tokens of this process.
    """
    rows = torch.stack([log_ratio_N.double(), advantage_N.double()], dim=1)
    log_ratio_N, advantage_N = torch.cat(distributed.all_gather(rows)).unbind(1)
    match settings:
        case SecondMomentGate():
            return _second_moment(log_ratio_N, advantage_N, settings.second_moment)
        case BalanceGate():
            return _balance(log_ratio_N.exp(), advantage_N, Bounds(settings.low, settings.high), settings.balance)
    raise NotImplementedError(f"bounds for gate.kind {settings.kind}")


def _second_moment(log_ratio_N: Tensor, advantage_N: Tensor, settings: SecondMomentSettings) -> Bounds:
    """Find M2PO's interval (arXiv 2510.01161), which keeps the second moment of log-ratios within the threshold."""
    counted_N = log_ratio_N * advantage_N > 0 if settings.harmful_only else torch.ones_like(log_ratio_N).bool()
    square_n = (log_ratio_N[counted_N] ** 2).sort().values
    count, sum_n = len(square_n), square_n.cumsum(0)
    if not count or sum_n[-1] <= settings.threshold * count:
        return Bounds(0.0, math.inf)
    rank_n = torch.arange(1, count + 1, device=square_n.device)
    if settings.form == "winsorize":
        capped_n = sum_n + (count - rank_n) * square_n
        first = int((capped_n >= settings.threshold * count).nonzero()[0])
        square = float(square_n[first - 1]) if first else 0.0
    else:
        # A mean of ascending values ascends; equal values stay or go together.
        fits_n = (sum_n / rank_n <= settings.threshold) & (square_n < square_n.roll(-1))
        kept = int(fits_n.nonzero()[-1]) + 1 if fits_n.any() else 0
        square = float(square_n[kept - 1] + square_n[kept]) / 2 if kept else 0.0
    return Bounds(math.exp(-math.sqrt(square)), math.exp(math.sqrt(square)))


def _balance(ratio_N: Tensor, advantage_N: Tensor, start: Bounds, settings: BalanceSettings) -> Bounds:
    """Find BAPO's interval (arXiv 2510.18927): low is raised first, then high, until positives weigh enough."""
    positive_N = advantage_N >= 0

    def positive_mass(low: float, high: float) -> float:
        """Return the mass of positive advantages, in units of the mass of negative ones."""
        if settings.statistic == "code":
            positive = (ratio_N.clamp(max=high) * advantage_N)[positive_N].sum()
            negative = (ratio_N.clamp(min=low) * -advantage_N)[~positive_N].sum()
        else:
            positive = (ratio_N * advantage_N)[positive_N & (ratio_N <= high)].sum()
            negative = (ratio_N * -advantage_N)[~positive_N & (ratio_N >= low)].sum()
        return float(positive / negative) if negative > 0 else math.inf

    def rising(first: float, last: float) -> list[float]:
        steps = math.ceil((last - first) / settings.step)
        return [first, *(min(first + step * settings.step, last) for step in range(1, 1 + steps))]

    lows, highs = rising(start.low, settings.low_max), rising(start.high, settings.high_max)
    candidates = [*(Bounds(low, start.high) for low in lows), *(Bounds(lows[-1], high) for high in highs[1:])]
    return next((bounds for bounds in candidates if positive_mass(*bounds) >= settings.target), candidates[-1])
