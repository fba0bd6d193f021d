"""Micro-batches for tests: other policies beside the behavior policy, and a whole update with its interval."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from tasks.settings import ObjectiveSettings
from tasks.train.bounds import Bounds, update_bounds
from tasks.train.objective import ObjectiveResult, objective
from tasks.train.tokens import TokenBatch

LONGEST = 4
OTHERS = ("proximal", "reference", "engine")
"""Policies that some objectives need besides the current and the behavior policy."""


def with_policies(batch: TokenBatch, **ratios: Sequence[float]) -> TokenBatch:
    """The batch with other policies, each given by its probabilities over the behavior policy's."""
    assert set(ratios) <= set(OTHERS)
    columns: dict[str, Any] = {}
    for name, row in ratios.items():
        log_T = torch.tensor(row, dtype=torch.float64).log()
        columns[f"{name}_logp_T"] = (batch.behavior_logp_T.double() + log_T).to(batch.behavior_logp_T.dtype)
    return replace(batch, **columns)


def bounds_of(batches: Sequence[TokenBatch], settings: ObjectiveSettings) -> Bounds:
    """The interval of an update, as the trainer finds it from the micro-batches."""
    if settings.gate.interval is not None:
        return Bounds(*settings.gate.interval)
    log_ratios, advantages = [torch.zeros(0)], [torch.zeros(0)]
    for batch in batches:
        log_ratios.append(batch.log_ratio_to(settings.ratio.reference))
        advantages.append(batch.advantage_T)
    return update_bounds(torch.cat(log_ratios), torch.cat(advantages), settings.gate)


def result_of(batch: TokenBatch, settings: ObjectiveSettings) -> ObjectiveResult:
    """What the objective makes of a micro-batch that is a whole update."""
    return objective(batch, settings, LONGEST, bounds_of([batch], settings))


def update(batches: Sequence[TokenBatch], settings: ObjectiveSettings) -> tuple[float, list[float]]:
    """Loss and gradient of an update, as the trainer makes them from micro-batches."""
    bounds = bounds_of(batches, settings)
    results = [objective(batch, settings, LONGEST, bounds) for batch in batches]
    for result in results:
        result.loss_sum.backward()
    denominator = sum(int(result.denominator) for result in results)
    scale = 1 / denominator if denominator else 0.0
    loss = sum(float(result.loss_sum.detach()) for result in results) * scale
    return loss, [float(g) * scale for batch in batches for g in batch.logp_T.grad]
