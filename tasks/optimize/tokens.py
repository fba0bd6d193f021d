"""Response tokens of a micro-batch, and sums along each response.

Legend of shapes: T response tokens of a micro-batch, the responses one after the other; R responses.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to plus and minus this, as verl does."""
_FIXED_POINT = 2.0**32


@dataclass(frozen=True)
class TokenBatch:
    """Response tokens of a micro-batch. Every response is in it as a whole."""

    logp_T: Tensor
    """By the current policy, nats, float32; may require a gradient."""
    behavior_logp_T: Tensor
    """By the policy that sampled, as the trainer computes it, nats, float32."""
    advantage_T: Tensor
    """Advantage of the token's response."""
    response_T: Tensor
    """int64, 0 to responses - 1, non-decreasing."""
    responses: int
    """R; responses without any token count as well."""
    mask_T: Tensor | None = None
    """bool; a False token is as if it were not there, whatever its other columns hold."""
    proximal_logp_T: Tensor | None = None
    """By the weights at the start of the batch; for ratios to them."""
    reference_logp_T: Tensor | None = None
    """By the base policy; for a KL to it."""
    engine_logp_T: Tensor | None = None
    """By the engine that sampled; for the correction of its mismatch."""

    @cached_property
    def counted_T(self) -> Tensor:
        """mask_T, or all True."""
        return torch.ones_like(self.response_T, dtype=torch.bool) if self.mask_T is None else self.mask_T


def masked(x_T: Tensor, mask_T: Tensor | None) -> Tensor:
    """0 where masked out, whatever stands there, and no gradient; without a mask as it is."""
    return x_T if mask_T is None else torch.where(mask_T, x_T, 0)


def log_ratio(logp_T: Tensor, other_logp_T: Tensor, mask_T: Tensor | None) -> Tensor:
    """Clamped log-ratio of two policies, detached; 0 where masked out.

    Args:
        logp_T: log-probabilities by the policy above the line, nats.
        other_logp_T: log-probabilities by the one below it, nats.
        mask_T: bool; what stands at False positions is never read.
    """
    difference_T = logp_T.detach() - other_logp_T.detach()
    return masked(difference_T, mask_T).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def required(column_T: Tensor | None, what: str) -> Tensor:
    """A column that the settings ask for.

    Raises:
        ValueError: it is not there.
    """
    if column_T is None:
        raise ValueError(f"the objective needs {what}, which the batch does not have")
    return column_T


def first_token(response_T: Tensor) -> Tensor:
    """The index of the first token of every token's response."""
    return torch.searchsorted(response_T, response_T)


def last_token(response_T: Tensor) -> Tensor:
    """The index of the last token of every token's response."""
    return torch.searchsorted(response_T, response_T, right=True) - 1


def running_count(x_T: Tensor, first_T: Tensor) -> Tensor:
    """Inclusive cumulative sum of integers or bools that starts anew at every response; first_T is its first token."""
    x_T = x_T.long()
    sum_T = x_T.cumsum(0)
    return sum_T - (sum_T - x_T).index_select(0, first_T)


def running_sum(x_T: Tensor, first_T: Tensor) -> Tensor:
    """The same of real numbers, float64.

    In fixed point, where sums are exact: the responses before this one in the micro-batch cannot change a bit of it.
    """
    return running_count((x_T.double() * _FIXED_POINT).round().long(), first_T).double() / _FIXED_POINT


def running_mean(x_T: Tensor, mask_T: Tensor, first_T: Tensor) -> Tensor:
    """Mean of the unmasked values so far, float64; 0 before the first one. Masked values must be 0."""
    return running_sum(x_T, first_T) / running_count(mask_T, first_T).clamp(min=1)
