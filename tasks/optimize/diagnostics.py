"""One row of numbers per update: what the objective did to its tokens, and how far the policy has moved.

Legend of shapes: T response tokens of a micro-batch, N those of the whole update.
"""

from typing import Any

import torch
from torch import Tensor

from tasks.optimize.objective import ObjectiveResult, TokenBatch
from tasks.optimize.veto import log_ratio

_QUANTILES = {"p01": 0.01, "p50": 0.50, "p99": 0.99}


class UpdateStatistics:
    """Takes up micro-batches and gives the update's row, which does not depend on how the update was split."""

    def __init__(self) -> None:
        self._loss = 0.0
        self._denominator = 0.0
        self._responses = 0
        self._idle_responses = 0
        self._negative_responses = 0
        self._positions: list[Tensor] = []
        self._columns: dict[str, list[Tensor]] = {
            name: [] for name in ("log_ratio", "advantage", "clipped", "vetoed", "entropy")
        }

    def add(self, result: ObjectiveResult, batch: TokenBatch, entropy_T: Tensor) -> None:
        """Takes up a micro-batch.

        Args:
            result: of the objective on ``batch``.
            batch: the tokens.
            entropy_T: of the current policy at every token, nats.
        """
        mask_T = batch.mask()
        self._loss += float(result.loss_sum.detach())
        self._denominator += float(result.denominator)
        self._responses += batch.responses
        columns = {
            "log_ratio": log_ratio(batch.logp_T, batch.behavior_logp_T, mask_T),
            "advantage": batch.advantage_T.detach(),
            "clipped": result.clipped_T,
            "vetoed": result.vetoed_T,
            "entropy": entropy_T.detach(),
        }
        for name, column_T in columns.items():
            self._columns[name].append(column_T[mask_T].double())
        self._add_responses(result, batch, mask_T)

    def _add_responses(self, result: ObjectiveResult, batch: TokenBatch, mask_T: Tensor) -> None:
        response_T = batch.response_T[mask_T]
        tokens_R = response_T.bincount(minlength=batch.responses)
        advantage_R = torch.zeros(batch.responses, dtype=torch.float64)
        advantage_R[response_T] = batch.advantage_T.detach()[mask_T].double()
        self._idle_responses += int((advantage_R == 0).sum())
        self._negative_responses += int((advantage_R < 0).sum())
        # The place of a token in its response, counted from 0 over the tokens that are there.
        place_T = torch.arange(len(response_T)) - (tokens_R.cumsum(0) - tokens_R)[response_T]
        trigger_T = result.trigger_T[mask_T] & (batch.advantage_T.detach()[mask_T] < 0)
        first_R = torch.full((batch.responses,), len(response_T), dtype=torch.int64)
        first_R.scatter_reduce_(0, response_T[trigger_T], place_T[trigger_T], reduce="amin")
        triggered_R = first_R < len(response_T)
        self._positions.append((first_R[triggered_R] / tokens_R[triggered_R]).double())

    def row(self) -> dict[str, Any]:
        """The update's numbers. A number over nothing, such as a ratio of no negative tokens, is None.

        Fractions are of tokens unless named otherwise; ``_negative`` and ``_positive`` are over tokens of responses with
        an advantage below or above 0. ``trigger_position`` is the mean of tau / n over negative responses with a
        trigger. ``ess`` is (sum r)^2 / (N sum r^2). With x ~ the behavior policy, ``kl_k1`` is the mean of -log r and
        ``kl_k3`` that of r - 1 - log r: both estimate KL(behavior || current) in nats per token, the second with less
        variance (schulman's k1 and k3). ``entropy`` is the current policy's, in nats per token.
        """
        column = {name: torch.cat(parts) for name, parts in self._columns.items()}
        log_ratio_N, advantage_N = column["log_ratio"], column["advantage"]
        ratio_N = log_ratio_N.exp()
        positions = torch.cat(self._positions)
        row: dict[str, Any] = {
            "tokens": len(ratio_N),
            "responses": self._responses,
            "loss": self._loss / self._denominator if self._denominator else 0.0,
            "clip_fraction": _mean(column["clipped"]),
            "veto_fraction": _mean(column["vetoed"]),
            "veto_fraction_negative": _mean(column["vetoed"][advantage_N < 0]),
            "trigger_share_negative": len(positions) / self._negative_responses if self._negative_responses else None,
            "trigger_position": _mean(positions),
            "ess": float(ratio_N.sum() ** 2 / (len(ratio_N) * (ratio_N**2).sum())) if len(ratio_N) else None,
            "kl_k1": _mean(-log_ratio_N),
            "kl_k3": _mean(ratio_N - 1 - log_ratio_N),
            "entropy": _mean(column["entropy"]),
            "zero_advantage_share": self._idle_responses / self._responses if self._responses else None,
        }
        for sign, ratios in (("negative", ratio_N[advantage_N < 0]), ("positive", ratio_N[advantage_N > 0])):
            row[f"ratio_mean_{sign}"] = _mean(ratios)
            row[f"ratio_max_{sign}"] = float(ratios.max()) if len(ratios) else None
            for name, quantile in _QUANTILES.items():
                row[f"ratio_{name}_{sign}"] = _quantile(ratios, quantile)
        return row


def _mean(values: Tensor) -> float | None:
    return float(values.mean()) if len(values) else None


def _quantile(values: Tensor, quantile: float) -> float | None:
    # torch.quantile refuses more than 2^24 values; the order statistic below it has no such bound.
    if not len(values):
        return None
    return float(values.kthvalue(max(1, round(quantile * len(values))))[0])
