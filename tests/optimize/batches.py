"""Micro-batches for tests: other policies beside the behavior policy, padding, and the interval of a whole update."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tasks.optimize.gate import Bounds, Gather, alone, update_bounds
from tasks.optimize.tokens import TokenBatch, log_ratio
from tasks.settings import ObjectiveSettings

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


def pad(batch: TokenBatch, rubbish: float, front: int = 0) -> TokenBatch:
    """The tokens of a packed batch from [B, T] rows, flattened, with rubbish in the padding on both sides."""
    lengths_R = torch.bincount(batch.response_T, minlength=batch.responses)
    width = front + 1 + int(lengths_R.max()) if batch.responses else 0
    place_T = torch.arange(width) - front
    mask = (place_T >= 0) & (place_T < lengths_R[:, None])

    def spread(values_T: Tensor | None) -> Any:
        if values_T is None:
            return None
        return torch.full(mask.shape, rubbish, dtype=values_T.dtype).masked_scatter(mask, values_T.detach()).flatten()

    return TokenBatch(
        logp_T=spread(batch.logp_T).requires_grad_(),
        behavior_logp_T=spread(batch.behavior_logp_T),
        advantage_T=spread(batch.advantage_T),
        response_T=torch.arange(batch.responses).repeat_interleave(width),
        responses=batch.responses,
        mask_T=mask.flatten(),
        **{f"{name}_logp_T": spread(getattr(batch, f"{name}_logp_T")) for name in OTHERS},
    )


def bounds_of(batches: Sequence[TokenBatch], settings: ObjectiveSettings, gather: Gather = alone) -> Bounds:
    """The interval of an update, as the trainer finds it from the micro-batches."""
    log_ratios, advantages = [torch.zeros(0)], [torch.zeros(0)]
    for batch in batches:
        mask_T = batch.counted_T
        below_T = batch.behavior_logp_T if settings.ratio.reference == "behavior" else batch.proximal_logp_T
        log_ratios.append(log_ratio(batch.logp_T, below_T, mask_T)[mask_T])
        advantages.append(batch.advantage_T[mask_T])
    return update_bounds(torch.cat(log_ratios), torch.cat(advantages), settings.gate, gather)
