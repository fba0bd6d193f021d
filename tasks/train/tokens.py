"""Response tokens of a micro-batch: their ratios, and sums along each response.

Shapes: T response tokens of a micro-batch, the responses one after the other; R responses.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to plus and minus this, as in verl."""
_FIXED_POINT = 2.0**32
"""Steps per nat of sums; 64 bits hold the sum of 10^8 log-ratios."""


@dataclass(frozen=True)
class TokenBatch:
    """The response tokens of a micro-batch, whole responses, with ratios that are each computed once."""

    logp_T: Tensor
    """Log-probability by the current policy, nats, float32; may require a gradient."""
    behavior_logp_T: Tensor
    """Log-probability by the policy that sampled, computed by the trainer, or by the engine (mismatch.kind bypass)."""
    advantage_T: Tensor
    """Advantage of the token's response."""
    response_T: Tensor
    """int64, 0 to responses - 1, non-decreasing."""
    responses: int
    """R; responses without a token count as well."""
    proximal_logp_T: Tensor | None = None
    """Log-probability by the proximal policy; for ratios to it."""
    reference_logp_T: Tensor | None = None
    """Log-probability by the base policy; for a KL to it."""
    engine_logp_T: Tensor | None = None
    """Log-probability by the engine that sampled; for the correction of its mismatch."""

    @cached_property
    def log_ratio_T(self) -> Tensor:
        """Log-ratio of the current to the behavior policy, [T] in nats, clamped, detached."""
        return log_ratio(self.logp_T, self.behavior_logp_T)

    @cached_property
    def proximal_log_ratio_T(self) -> Tensor:
        """Log-ratio of the proximal to the behavior policy, [T] in nats, clamped, detached."""
        return log_ratio(required(self.proximal_logp_T, "the proximal policy"), self.behavior_logp_T)

    def log_ratio_to(self, policy: str) -> Tensor:
        """Return the log-ratio to the behavior or the proximal policy, [T] in nats, clamped, detached."""
        if policy == "behavior":
            return self.log_ratio_T
        return log_ratio(self.logp_T, required(self.proximal_logp_T, "the proximal policy"))

    @cached_property
    def first_T(self) -> Tensor:
        """Index of the first token of every token's response, int64."""
        return torch.searchsorted(self.response_T, self.response_T)

    @cached_property
    def last_T(self) -> Tensor:
        """Index of the last token of every token's response, int64."""
        return torch.searchsorted(self.response_T, self.response_T, right=True) - 1


def log_ratio(logp_T: Tensor, other_logp_T: Tensor) -> Tensor:
    """Return the clamped log-ratio of two policies' probabilities, detached."""
    return (logp_T.detach() - other_logp_T.detach()).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def at_level(log_T: Tensor, tokens: TokenBatch, level: str) -> Tensor:
    """Return log-ratios at a level (``ratio.level``), [T].

    They are those of the token, of its response, or, for ``prefix_minimum``, of the token plus the smallest before it.
    """
    if level == "sequence_geometric":
        return running_mean(log_T, tokens.first_T)[tokens.last_T].to(log_T.dtype)
    if level == "sequence_product":
        product_T = running_sum(log_T, tokens.first_T)[tokens.last_T].to(log_T.dtype)
        return product_T.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return log_T + _smallest_before(log_T, tokens) if level == "prefix_minimum" else log_T


def required(logp_T: Tensor | None, policy: str) -> Tensor:
    """Return log-probabilities by a policy that the settings need.

    Raises:
        ValueError: the batch does not have them.
    """
    if logp_T is None:
        raise ValueError(f"the objective needs log-probabilities of {policy}, which the batch does not have")
    return logp_T


def running_count(x_T: Tensor, first_T: Tensor) -> Tensor:
    """Return the inclusive cumulative sum of integers or bools, which starts anew at every response's first token."""
    x_T = x_T.long()
    sum_T = x_T.cumsum(0)
    return sum_T - (sum_T - x_T).index_select(0, first_T)


def running_sum(x_T: Tensor, first_T: Tensor) -> Tensor:
    """Return the cumulative sum of real numbers per response, float64.

    It is computed in fixed point, where sums are exact: other responses of the micro-batch do not change a bit of it.
    """
    return running_count((x_T.double() * _FIXED_POINT).round().long(), first_T).double() / _FIXED_POINT


def running_mean(x_T: Tensor, first_T: Tensor) -> Tensor:
    """Return the mean of the response's values up to and including each token, float64."""
    return running_sum(x_T, first_T) / running_count(torch.ones_like(first_T), first_T)


def _smallest_before(log_ratio_T: Tensor, tokens: TokenBatch) -> Tensor:
    """Return the smallest of the clamped log-ratios before each token of its response, at most 0."""
    index_T = torch.arange(len(log_ratio_T), device=log_ratio_T.device)
    before_T = torch.where(tokens.first_T == index_T, 0, log_ratio_T.roll(1)).double()
    # One running minimum over all responses: each is shifted below the one before it by more than the range of values.
    shift_T = 2 * MAX_LOG_RATIO * tokens.response_T.double()
    return ((before_T - shift_T).cummin(0).values + shift_T).to(log_ratio_T.dtype)
