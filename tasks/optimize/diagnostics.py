"""One row of numbers per update: what the objective did to its tokens, and how far the policy has moved.

Legend of shapes: T response tokens of a micro-batch, N those of the whole update, R responses.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tasks.optimize import processes
from tasks.optimize.histogram import EDGES
from tasks.optimize.objective import ObjectiveResult
from tasks.optimize.tokens import TokenBatch, log_ratio

_OF_TOKENS = ("log_ratio", "advantage", "clipped", "vetoed", "rejected", "entropy")
_OF_RESPONSES = ("response_advantage", "trigger_position")
_QUANTILES = {"p01": 0.01, "p50": 0.50, "p99": 0.99}


class UpdateStatistics:
    """Takes up micro-batches and gives the update's row, which does not depend on how the update was split."""

    def __init__(self) -> None:
        self.denominator = 0
        """Of the loss, over all micro-batches so far."""
        self._loss = 0.0
        self._responses = 0
        self._columns = {name: [torch.zeros(0)] for name in (*_OF_TOKENS, *_OF_RESPONSES)}

    def add(self, result: ObjectiveResult, batch: TokenBatch, entropy_T: Tensor) -> None:
        """Takes up a micro-batch.

        Args:
            result: of the objective on ``batch``.
            batch: the tokens.
            entropy_T: of the current policy at every token, nats.
        """
        mask_T = batch.mask()
        self._loss += float(result.loss_sum.detach())
        self.denominator += int(result.denominator)
        self._responses += batch.responses
        advantage_T = batch.advantage_T.detach()[mask_T]
        columns = {
            "log_ratio": log_ratio(batch.logp_T, batch.behavior_logp_T, mask_T)[mask_T],
            "advantage": advantage_T,
            "clipped": result.clipped_T[mask_T],
            "vetoed": result.vetoed_T[mask_T],
            "rejected": result.rejected_T[mask_T],
            "entropy": entropy_T.detach()[mask_T],
            **_per_response(batch.response_T[mask_T], advantage_T, result.trigger_T[mask_T]),
        }
        for name, column in columns.items():
            self._columns[name].append(column.cpu())

    def gather(self) -> None:
        """Takes up what the other processes have taken up."""
        if processes.count() == 1:
            return
        sums = torch.tensor([self._loss, self.denominator, self._responses], dtype=torch.float64)
        self._loss, denominator, responses = processes.total(sums).tolist()
        self.denominator, self._responses = int(denominator), int(responses)
        for names in (_OF_TOKENS, _OF_RESPONSES):
            rows = torch.stack([torch.cat(self._columns[name]).double() for name in names], dim=1)
            for name, column in zip(names, processes.gather_rows(rows).unbind(1), strict=True):
                self._columns[name] = [column]

    def row(self) -> dict[str, float | int | list[int] | None]:
        """The update's numbers; one about nothing, such as a ratio of no negative tokens, is None.

        - tokens, responses: counts.
        - loss: the surrogate, after division.
        - clip_fraction, veto_fraction, reject_fraction: share of the tokens.
        - veto_fraction_negative: vetoed tokens with A < 0 among tokens with A < 0 (A is the advantage).
        - trigger_share_negative: responses with a trigger among those with A < 0.
        - trigger_position: over those, the mean share of the response that precedes its first trigger.
        - ratio_mean, _max, _p01, _p50, _p99 of tokens with A < 0 (_negative) and A > 0 (_positive).
        - ess: effective sample size over tokens, (sum r)^2 / (N sum r^2) with r the ratio; 1 when on-policy.
        - kl_k1, kl_k3: means of -log r and of r - 1 - log r. Tokens come from the behavior policy, so both estimate
          KL(behavior || current), in nats per token (k1 and k3 of Schulman, "Approximating KL divergence").
        - entropy: of the current policy, nats per token.
        - zero_advantage_share: responses with A = 0.
        - advantage_histogram, _kept: tokens by advantage, of all and of those that are not vetoed; EDGES.
        - ratio_histogram_negative, _positive: tokens with A < 0 and with A > 0 by log r; EDGES.

        Shares of responses are among those that have a token. Log-ratios are clamped as in the objective.
        """
        column = {name: torch.cat(parts).double() for name, parts in self._columns.items()}
        log_ratio_N, advantage_N, vetoed_N = column["log_ratio"], column["advantage"], column["vetoed"]
        advantage_R, position_R = column["response_advantage"], column["trigger_position"]
        ratio_N = log_ratio_N.exp()
        has_trigger_R = (advantage_R < 0) & ~position_R.isnan()
        row: dict[str, float | int | list[int] | None] = {
            "tokens": len(ratio_N),
            "responses": self._responses,
            "loss": self._loss / self.denominator if self.denominator else 0.0,
            "clip_fraction": _mean(column["clipped"]),
            "veto_fraction": _mean(vetoed_N),
            "reject_fraction": _mean(column["rejected"]),
            "veto_fraction_negative": _mean(vetoed_N[advantage_N < 0]),
            "trigger_share_negative": _mean(has_trigger_R[advantage_R < 0].double()),
            "trigger_position": _mean(position_R[has_trigger_R]),
            "ess": float(ratio_N.mean() ** 2 / (ratio_N**2).mean()) if len(ratio_N) else None,
            "kl_k1": _mean(-log_ratio_N),
            "kl_k3": _mean(log_ratio_N.expm1() - log_ratio_N),
            "entropy": _mean(column["entropy"]),
            "zero_advantage_share": _mean((advantage_R == 0).double()),
        }
        counted = (advantage_N, advantage_N[vetoed_N == 0], log_ratio_N[advantage_N < 0], log_ratio_N[advantage_N > 0])
        row |= {name: _histogram(values, EDGES[name]) for name, values in zip(EDGES, counted, strict=True)}
        for sign, ratio_S in (("negative", ratio_N[advantage_N < 0]), ("positive", ratio_N[advantage_N > 0])):
            row[f"ratio_mean_{sign}"] = _mean(ratio_S)
            row[f"ratio_max_{sign}"] = float(ratio_S.max()) if len(ratio_S) else None
            row |= {f"ratio_{name}_{sign}": value for name, value in _quantiles(ratio_S).items()}
        return row


def _per_response(response_T: Tensor, advantage_T: Tensor, trigger_T: Tensor) -> dict[str, Tensor]:
    """Advantage and share of tokens before the first trigger (NaN without one) of every response that has a token."""
    index_T, tokens_R = torch.unique_consecutive(response_T, return_inverse=True, return_counts=True)[1:]
    first_R = tokens_R.cumsum(0) - tokens_R
    place_T = torch.arange(len(index_T), device=index_T.device) - first_R[index_T]
    # A place past the end stands for no trigger.
    trigger_R = tokens_R.scatter_reduce(0, index_T[trigger_T], place_T[trigger_T], reduce="amin")
    position_R = torch.where(trigger_R < tokens_R, trigger_R.double() / tokens_R, torch.nan)
    return {"response_advantage": advantage_T[first_R], "trigger_position": position_R}


def _histogram(values: Tensor, edges: npt.NDArray[np.float64]) -> list[int]:
    return [int(count) for count in np.histogram(values.clamp(edges[0], edges[-1]).numpy(), edges)[0]]


def _quantiles(values: Tensor) -> dict[str, float | None]:
    if not len(values):
        return dict.fromkeys(_QUANTILES)
    # numpy, because torch.quantile refuses more than 2^24 values.
    return dict(zip(_QUANTILES, np.quantile(values.numpy(), list(_QUANTILES.values())).tolist(), strict=True))


def _mean(values: Tensor) -> float | None:
    return float(values.mean()) if len(values) else None
