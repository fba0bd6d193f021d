"""Diagnostics of an update: a row of numbers over all its tokens, and two of its responses token by token.

Which tokens are vetoed depends on the weights at the update, which are not kept. So a few updates of each stage keep
the tokens of the best and the worst response of a group.

Legend of shapes: T response tokens of a micro-batch, N those of the whole update, R responses, C columns.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tasks.train import distributed
from tasks.train.advantages import Selection
from tasks.train.batches import Flags, Floats, Ints, Responses
from tasks.train.objective import ObjectiveResult
from tasks.train.results import EDGES, Row
from tasks.train.tokens import TokenBatch

_FLAGS = ("clipped", "vetoed", "rejected", "trigger")
_COLUMNS = ("log_ratio", "advantage", "entropy", *_FLAGS)
_EXAMPLE_COLUMNS = ("ratio", "logp", "behavior_logp", *_FLAGS)
_EXAMPLE_UPDATES = 5
"""Number of updates of a stage that store examples."""
_QUANTILES = {"p01": 0.01, "p50": 0.50, "p99": 0.99}
_Numbers = npt.NDArray[np.float64]


class UpdateStatistics:
    """Collects the micro-batches of an update and computes its row, which does not depend on how the update was split.

    What is collected stays on its device, so that no micro-batch waits for the one before. The micro-batches of all
    processes are gathered when ``row`` is called, which every process must do.
    """

    def __init__(self) -> None:
        self._sums: list[tuple[Tensor, Tensor, int]] = []
        """Loss, denominator and responses of every micro-batch."""
        self._tables: list[Tensor] = []
        """Columns of every micro-batch, [1 + C, T] in the objective's dtype: which tokens begin a response, then
        ``_COLUMNS``."""

    def add(self, result: ObjectiveResult, tokens: TokenBatch, entropy_T: Tensor) -> None:
        """Add a micro-batch with its result and the current policy's entropies, in nats."""
        begins_T = tokens.first_T == torch.arange(len(tokens.first_T), device=tokens.first_T.device)
        columns = (begins_T, tokens.log_ratio_T, tokens.advantage_T, entropy_T, *_flags(result))
        self._tables.append(torch.stack(columns).detach())
        self._sums.append((result.loss_sum.detach(), result.denominator, tokens.responses))

    def _gather(self) -> tuple[list[float], _Numbers, Flags]:
        """Return [loss, denominator, responses], float64 columns [C, N], and which tokens begin a response [N]."""
        sums = np.zeros(3)
        for values in self._sums:
            sums += [float(value) for value in values]
        empty = np.zeros((1 + len(_COLUMNS), 0), np.float32)
        table = np.concatenate([empty, *(table.cpu().numpy() for table in self._tables)], axis=1)
        all_sums, tables = zip(*distributed.all_gather((sums, table)), strict=True)
        table = np.concatenate(tables, axis=1, dtype=np.float64)  # Processes exchange half as many bytes.
        return np.sum(all_sums, axis=0).tolist(), table[1:], table[0] > 0

    def row(self) -> dict[str, float | int | list[int] | None]:
        """Compute the row of the update, which docs/metrics.md explains; a mean over no tokens is None.

        Tokens come from the behavior policy, so with r the ratio -log r (kl_k1) and r - 1 - log r (kl_k3) both estimate
        KL(behavior || current), in nats per token (Schulman, "Approximating KL divergence"). The effective sample size
        (ess) is (sum r)^2 / (N sum r^2).
        """
        (loss, denominator, responses), columns, begins_N = self._gather()
        log_ratio_N, advantage_N = columns[:2]
        vetoed_N, trigger_N = (columns[_COLUMNS.index(name)] > 0 for name in ("vetoed", "trigger"))
        means = columns.mean(1).tolist() if len(log_ratio_N) else [None] * len(_COLUMNS)
        mean = dict(zip(_COLUMNS, means, strict=True))
        ratio_N = np.exp(log_ratio_N)
        negative_N, positive_N = advantage_N < 0, advantage_N > 0
        first_R = begins_N.nonzero()[0]
        advantage_R = advantage_N[first_R]
        negative_R, position_R = advantage_R < 0, _trigger_positions(trigger_N, first_R)
        triggered_R = negative_R & ~np.isnan(position_R)
        row: dict[str, float | int | list[int] | None] = {
            "tokens": len(ratio_N),
            "responses": int(responses),
            "loss": loss / denominator if denominator else 0.0,
            "clip_fraction": mean["clipped"],
            "veto_fraction": mean["vetoed"],
            "reject_fraction": mean["rejected"],
            "veto_fraction_negative": _mean(vetoed_N[negative_N]),
            "trigger_share_negative": _mean(triggered_R[negative_R]),
            "trigger_position": _mean(position_R[triggered_R]),
            "ess": float(ratio_N.mean() ** 2 / np.square(ratio_N).mean()) if len(ratio_N) else None,
            "kl_k1": None if mean["log_ratio"] is None else -mean["log_ratio"],
            "kl_k3": _mean(np.expm1(log_ratio_N) - log_ratio_N),
            "entropy": mean["entropy"],
            "zero_advantage_share": _mean(advantage_R == 0),
        }
        for name, which_N in (("advantage_histogram", slice(None)), ("advantage_histogram_kept", ~vetoed_N)):
            row[name] = _histogram(advantage_N[which_N], EDGES[name])
        for sign, sign_N in (("negative", negative_N), ("positive", positive_N)):
            summary = _ratio_summary(np.sort(ratio_N[sign_N]))
            row |= {f"ratio_{name}_{sign}": value for name, value in summary.items()}
            row[f"ratio_histogram_{sign}"] = _histogram(log_ratio_N[sign_N], EDGES[f"ratio_histogram_{sign}"])
        return row


def _flags(result: ObjectiveResult) -> tuple[Tensor, ...]:
    """Return what happened to the tokens, in the order of ``_FLAGS``."""
    return result.clipped_T, result.vetoed_T, result.rejected_T, result.trigger_T


def _trigger_positions(trigger_N: Flags, first_R: npt.NDArray[np.int64]) -> _Numbers:
    """Return the share of each response's tokens that precede its first trigger, [R]; NaN without a trigger."""
    position_R = np.full(len(first_R), np.nan)
    token = trigger_N.nonzero()[0]
    response = first_R.searchsorted(token, side="right") - 1
    length_R = np.diff(first_R, append=len(trigger_N))
    # Backwards, so that the first trigger of a response is written last.
    position_R[response[::-1]] = ((token - first_R[response]) / length_R[response])[::-1]
    return position_R


def _histogram(values: _Numbers, edges: _Numbers) -> list[int]:
    """Count values per bin, faster than numpy; values beyond the edges count in the outermost bins."""
    bins: list[int] = np.bincount(edges[1:-1].searchsorted(values, side="right"), minlength=len(edges) - 1).tolist()
    return bins


def _ratio_summary(ascending: _Numbers) -> dict[str, float | None]:
    """Return mean, maximum and quantiles of ratios in ascending order; quantiles are interpolated."""
    if not len(ascending):
        return dict.fromkeys(("mean", "max", *_QUANTILES))
    row_N = np.arange(len(ascending))
    quantiles = np.interp(row_N[-1] * np.array(list(_QUANTILES.values())), row_N, ascending).tolist()
    return {"mean": _mean(ascending), "max": ascending.item(-1), **dict(zip(_QUANTILES, quantiles, strict=True))}


def _mean(values: _Numbers | Flags) -> float | None:
    return float(values.sum() / len(values)) if len(values) else None  # numpy's mean takes twice as long


def example_updates(updates: int) -> list[int]:
    """Return the updates of a stage that store examples, from 0: the first, the last and evenly spaced ones between."""
    return sorted({round(number) for number in np.linspace(0, updates - 1, _EXAMPLE_UPDATES)})


class UpdateExamples:
    """Collects the micro-batches of an update and chooses two of its responses, the same in every process."""

    def __init__(self, responses: Responses, selection: Selection, rows: Ints) -> None:
        self._responses = responses
        self._advantage_R = selection.advantage_R.numpy()
        self._rows = selection.active_rows(rows)
        self._tokens: dict[int, Floats] = {}
        """Columns of this process's responses by row, each [columns, tokens]."""

    def add(self, rows: Ints, tokens: TokenBatch, result: ObjectiveResult) -> None:
        """Add a micro-batch, which consists of these rows."""
        if not len(rows):
            return
        columns = (tokens.log_ratio_T.exp(), tokens.logp_T.detach(), tokens.behavior_logp_T, *_flags(result))
        table = torch.stack([column.float() for column in columns]).cpu().numpy()
        ends = np.cumsum(self._responses.response_tokens.lengths_of(rows))
        self._tokens.update(zip(rows.tolist(), np.split(table, ends[:-1], axis=1), strict=True))

    def rows(self, labels: Row) -> list[Row]:
        """Return the best and the worst response of a group, each with its tokens; every process must call this.

        It is the first group of the update with different advantages and a vetoed token; else the first with different
        advantages, else the first. Of the worst responses it is the one with most vetoed tokens. A response without
        a reward is chosen only if none has one. ``labels`` is stage, update and staleness.
        """
        if not len(self._rows):
            return []
        tokens = {row: table for gathered in distributed.all_gather(self._tokens) for row, table in gathered.items()}
        vetoed = np.array([tokens[row][_EXAMPLE_COLUMNS.index("vetoed")].sum() for row in self._rows.tolist()])
        advantage, numbers = self._advantage_R[self._rows], self._responses.group_R[self._rows]
        compared = ~np.isnan(self._responses.reward_R[self._rows])
        if not compared.any():
            compared[:] = True
        groups = [compared & (numbers == number) for number in dict.fromkeys(numbers[compared].tolist())]
        differ = [group for group in groups if np.ptp(advantage[group]) > 0] or groups
        group = next((group for group in differ if vetoed[group].any()), differ[0])
        best = max(np.flatnonzero(group), key=lambda index: advantage[index])
        worst = max(np.flatnonzero(group), key=lambda index: (-advantage[index], vetoed[index]))
        chosen = [int(self._rows[index]) for index in dict.fromkeys((best, worst))]
        return [{**labels, **self._example(row, tokens[row])} for row in chosen]

    def _example(self, row: int, table: Floats) -> Row:
        responses, reward = self._responses, float(self._responses.reward_R[row])
        columns = zip(_EXAMPLE_COLUMNS, table, strict=True)
        return {
            "reward": None if np.isnan(reward) else reward,
            "advantage": float(self._advantage_R[row]),
            "prompt_token_ids": responses.prompt_tokens[row].tolist(),
            "response_token_ids": responses.response_tokens[row].tolist(),
            **{name: (values > 0 if name in _FLAGS else values).tolist() for name, values in columns},
        }
