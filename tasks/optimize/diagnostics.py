"""One row of numbers per update: what the objective did to its tokens, and how far the policy has moved.

Legend of shapes: T response tokens of a micro-batch, N those of the whole update, R responses, C columns.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tasks.optimize import processes
from tasks.optimize.histogram import EDGES
from tasks.optimize.objective import ObjectiveResult
from tasks.optimize.tokens import TokenBatch

_COLUMNS = ("log_ratio", "advantage", "entropy", "clipped", "vetoed", "rejected", "trigger", "begins")
_QUANTILES = {"p01": 0.01, "p50": 0.50, "p99": 0.99}
_Numbers = npt.NDArray[np.float64]
_Flags = npt.NDArray[np.bool_]


class UpdateStatistics:
    """Takes up micro-batches and gives the update's row, which does not depend on how the update was split.

    What is taken up stays on its device until ``gather``, so that no micro-batch waits for the one before.
    """

    def __init__(self) -> None:
        self._sums: list[Tensor] = []
        """[loss, denominator, responses] of every micro-batch."""
        self._tokens: list[Tensor] = []
        """[C, T] of every micro-batch."""

    def add(self, result: ObjectiveResult, batch: TokenBatch, entropy_T: Tensor) -> None:
        """Takes up a micro-batch.

        Args:
            result: of the objective on ``batch``.
            batch: the tokens.
            entropy_T: of the current policy at every token, nats.
        """
        response_T = batch.response_T
        columns_CT = torch.stack([result.log_ratio_T, batch.advantage_T, entropy_T])
        flags_CT = torch.stack([result.clipped_T, result.vetoed_T, result.rejected_T, result.trigger_T])
        if batch.mask_T is not None:
            response_T, columns_CT, flags_CT = (x[..., batch.mask_T] for x in (response_T, columns_CT, flags_CT))
        begins_1T = response_T.diff(prepend=response_T.new_full((1,), -1))[None] != 0
        self._tokens.append(torch.cat([columns_CT, flags_CT, begins_1T]))
        responses = result.denominator.new_tensor(batch.responses)
        sums = (result.loss_sum.detach(), result.denominator, responses)
        self._sums.append(torch.stack([value.double() for value in sums]))

    def gather(self) -> None:
        """Takes up what the other processes have taken up."""
        if processes.count() > 1:
            self._sums = [processes.total(self._total())]
            self._tokens = [processes.gather_rows(self._table().T).T]

    def _total(self) -> Tensor:
        """[3], on the CPU."""
        return torch.stack(self._sums).cpu().sum(0) if self._sums else torch.zeros(3, dtype=torch.float64)

    def _table(self) -> Tensor:
        """[C, N], float64, on the CPU."""
        return torch.cat(self._tokens, dim=1).cpu().double() if self._tokens else torch.zeros(len(_COLUMNS), 0).double()

    @property
    def denominator(self) -> int:
        """Of the loss, over all micro-batches so far."""
        return int(self._total()[1])

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
        loss, denominator, responses = self._total().tolist()
        columns = self._table().numpy()
        log_ratio_N, advantage_N = columns[:2]
        vetoed_N, trigger_N, begins_N = (columns[_COLUMNS.index(name)] > 0 for name in ("vetoed", "trigger", "begins"))
        means = columns.mean(1).tolist() if len(log_ratio_N) else [None] * len(_COLUMNS)
        mean = dict(zip(_COLUMNS, means, strict=True))
        ratio_N = np.exp(log_ratio_N)
        negative_N, positive_N = advantage_N < 0, advantage_N > 0
        first_R = begins_N.nonzero()[0]
        advantage_R, position_R = advantage_N[first_R], _trigger_positions(trigger_N, first_R)
        has_trigger_R = (advantage_R < 0) & ~np.isnan(position_R)
        row: dict[str, float | int | list[int] | None] = {
            "tokens": len(ratio_N),
            "responses": int(responses),
            "loss": loss / denominator if denominator else 0.0,
            "clip_fraction": mean["clipped"],
            "veto_fraction": mean["vetoed"],
            "reject_fraction": mean["rejected"],
            "veto_fraction_negative": _mean(vetoed_N[negative_N]),
            "trigger_share_negative": _mean(has_trigger_R[advantage_R < 0]),
            "trigger_position": _mean(position_R[has_trigger_R]),
            "ess": float(ratio_N.mean() ** 2 / np.square(ratio_N).mean()) if len(ratio_N) else None,
            "kl_k1": None if mean["log_ratio"] is None else -mean["log_ratio"],
            "kl_k3": _mean(np.expm1(log_ratio_N) - log_ratio_N),
            "entropy": mean["entropy"],
            "zero_advantage_share": _mean(advantage_R == 0),
        }
        counted = (advantage_N, advantage_N[~vetoed_N], log_ratio_N[negative_N], log_ratio_N[positive_N])
        row |= {name: _histogram(values, EDGES[name]) for name, values in zip(EDGES, counted, strict=True)}
        for sign, ratio_S in (("negative", ratio_N[negative_N]), ("positive", ratio_N[positive_N])):
            row[f"ratio_mean_{sign}"] = _mean(ratio_S)
            row[f"ratio_max_{sign}"] = float(ratio_S.max()) if len(ratio_S) else None
            row |= {f"ratio_{name}_{sign}": value for name, value in _quantiles(ratio_S).items()}
        return row


def _trigger_positions(trigger_N: _Flags, first_R: npt.NDArray[np.int64]) -> _Numbers:
    """Share of every response's tokens before its first trigger, NaN without one; its tokens begin at ``first_R``."""
    if not len(first_R):
        return np.zeros(0)
    place_N = np.where(trigger_N, np.arange(len(trigger_N)), len(trigger_N))
    trigger_R = np.minimum.reduceat(place_N, first_R)
    position_R = (trigger_R - first_R) / np.diff(first_R, append=len(trigger_N))
    return np.where(trigger_R < len(trigger_N), position_R, np.nan)


def _histogram(values: _Numbers, edges: _Numbers) -> list[int]:
    """As numpy's, which sorts and takes ten times as long on an update of few tokens; the outermost bins take all."""
    bins = len(edges) - 1
    place = (np.searchsorted(edges, values, side="right") - 1).clip(0, bins - 1)
    counts: list[int] = np.bincount(place, minlength=bins).tolist()
    return counts


def _quantiles(values: _Numbers) -> dict[str, float | None]:
    """As numpy's with linear interpolation, which takes ten times as long on an update of few tokens."""
    if not len(values):
        return dict.fromkeys(_QUANTILES)
    ordered, last = np.sort(values), len(values) - 1
    place = last * np.array(list(_QUANTILES.values()))
    below = place.astype(np.int64)
    low, high = ordered[below], ordered[np.minimum(below + 1, last)]
    return dict(zip(_QUANTILES, (low + (high - low) * (place - below)).tolist(), strict=True))


def _mean(values: _Numbers | _Flags) -> float | None:
    return float(values.mean()) if len(values) else None
