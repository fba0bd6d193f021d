"""Micro-batches for tests: other policies beside the behavior policy, and the interval of a whole update."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from tasks.settings import ObjectiveSettings
from tasks.train.bounds import Bounds, update_bounds
from tasks.train.tokens import TokenBatch, log_ratio

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
    log_ratios, advantages = [torch.zeros(0)], [torch.zeros(0)]
    for batch in batches:
        below_T = batch.behavior_logp_T if settings.ratio.reference == "behavior" else batch.proximal_logp_T
        log_ratios.append(log_ratio(batch.logp_T, below_T))
        advantages.append(batch.advantage_T)
    return update_bounds(torch.cat(log_ratios), torch.cat(advantages), settings.gate)
