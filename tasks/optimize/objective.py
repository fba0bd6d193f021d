"""The objective: log-probabilities and advantages in, a loss and what happened to every token out.

One loss for every algorithm: its gradient is a coefficient, which carries no gradient itself, times the gradient of the
log-probability. An algorithm is a row of settings.

Legend of shapes: T response tokens of a micro-batch, the responses one after the other; R responses.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.optimize.veto import log_ratio, veto_mask
from tasks.settings.objective import ObjectiveSettings


@dataclass(frozen=True)
class TokenBatch:
    """Response tokens of a micro-batch. Every response is in it as a whole."""

    logp_T: Tensor
    """By the current policy, nats, float32; may require a gradient."""
    behavior_logp_T: Tensor
    """By the policy that sampled, nats, float32."""
    advantage_T: Tensor
    """Advantage of the token's response."""
    response_T: Tensor
    """int64, 0 to responses - 1, non-decreasing."""
    responses: int
    """R; responses without any token count as well."""
    mask_T: Tensor | None = None
    """bool; a False token is as if it were not there, whatever its other columns hold."""

    def mask(self) -> Tensor:
        """mask_T, or all True."""
        return torch.ones_like(self.response_T, dtype=torch.bool) if self.mask_T is None else self.mask_T


@dataclass(frozen=True)
class ObjectiveResult:
    """What the objective makes of a micro-batch. All but ``loss_sum`` is detached; masked tokens hold 0 or False.

    Loss and gradient of an update are the sums over its micro-batches, divided by the sum of their denominators where
    that is not 0. Any split of an update into micro-batches gives the same.
    """

    loss_sum: Tensor
    """Scalar, float64. Its value is the weighted sum of surrogate_T; its gradient with respect to logp_T is
    -coefficient_T times the aggregation's weight."""
    denominator: Tensor
    """Scalar, int64."""
    ratio_T: Tensor
    """Current over behavior probability."""
    coefficient_T: Tensor
    """Ratio times advantage, 0 for clipped and vetoed tokens."""
    surrogate_T: Tensor
    """The clipped surrogate that coefficient_T is the gradient of; 0 for vetoed tokens."""
    clipped_T: Tensor
    """bool: the clipping takes the token's gradient away, whether or not the veto does too."""
    trigger_T: Tensor
    """bool: the statistic of the veto is beyond its threshold."""
    vetoed_T: Tensor
    """bool."""


def objective(batch: TokenBatch, settings: ObjectiveSettings, max_response_tokens: int) -> ObjectiveResult:
    """The clipped surrogate with the veto, summed over a micro-batch.

    The surrogate is PPO's -min(r A, clip(r) A) (arXiv 2402.03300 for GRPO); with ``clip_mode`` two_side it is
    -clip(r) A (arXiv 2509.24203); with ``dual_clip`` c it is at most c |A| where A < 0. Mu-GRPO (arXiv 2605.17570)
    clips to [0, 5], which leaves negative advantages unclipped, and vetoes tokens, see ``veto_mask``. The log-ratio is
    clamped to [-20, 20]; a token beyond that keeps the coefficient of the clamped ratio.

    Args:
        batch: tokens; float64 works as well as float32.
        settings: of the objective.
        max_response_tokens: most tokens that a response can have; aggregation const divides by it (arXiv 2503.20783,
            in TRL's form).
    """
    mask_T = batch.mask()
    advantage_T = torch.where(mask_T, batch.advantage_T.detach(), 0)
    ratio_T = torch.where(mask_T, log_ratio(batch.logp_T, batch.behavior_logp_T, mask_T).exp(), 0)
    trigger_T, vetoed_T = veto_mask(
        batch.logp_T, batch.behavior_logp_T, advantage_T, batch.response_T, mask_T, settings.veto
    )
    surrogate_T, inside_T = _clip(ratio_T, advantage_T, settings)
    surrogate_T = torch.where(vetoed_T, 0, surrogate_T)
    coefficient_T = torch.where(inside_T & ~vetoed_T, ratio_T * advantage_T, 0)
    weight_T, denominator = _aggregate(batch, mask_T, vetoed_T, settings, max_response_tokens)
    # Straight-through: the difference is 0 in value and carries the coefficient's gradient.
    difference_T = torch.where(mask_T, batch.logp_T - batch.logp_T.detach(), 0)
    loss_T = weight_T * (surrogate_T - coefficient_T * difference_T)
    return ObjectiveResult(
        loss_sum=loss_T.sum(dtype=torch.float64),
        denominator=denominator,
        ratio_T=ratio_T,
        coefficient_T=coefficient_T,
        surrogate_T=surrogate_T,
        clipped_T=mask_T & (advantage_T != 0) & ~inside_T,
        trigger_T=trigger_T,
        vetoed_T=vetoed_T,
    )


def _clip(ratio_T: Tensor, advantage_T: Tensor, settings: ObjectiveSettings) -> tuple[Tensor, Tensor]:
    """The surrogate, and whether it has a gradient."""
    low, high = settings.clip_low, settings.clip_high
    negative_T = advantage_T < 0
    surrogate_T = -ratio_T.clamp(low, high) * advantage_T
    if settings.clip_mode == "two_side":
        inside_T = (ratio_T >= low) & (ratio_T <= high)
    else:
        inside_T = torch.where(negative_T, ratio_T >= low, ratio_T <= high)
        surrogate_T = torch.maximum(surrogate_T, -ratio_T * advantage_T)
    if settings.dual_clip is not None:
        inside_T = inside_T & ~(negative_T & (ratio_T > settings.dual_clip))
        capped_T = torch.minimum(surrogate_T, -settings.dual_clip * advantage_T)
        surrogate_T = torch.where(negative_T, capped_T, surrogate_T)
    return surrogate_T, inside_T


def _aggregate(
    batch: TokenBatch, mask_T: Tensor, vetoed_T: Tensor, settings: ObjectiveSettings, max_response_tokens: int
) -> tuple[Tensor, Tensor]:
    """Weights of the tokens in the sum, and what the sum is to be divided by."""
    counted_T = (mask_T if settings.denominator == "original" else mask_T & ~vetoed_T).long()
    weight_T = torch.ones_like(batch.logp_T)
    responses = torch.tensor(batch.responses, device=batch.logp_T.device)
    match settings.aggregation:
        case "token_mean":
            return weight_T, counted_T.sum()
        case "seq_mean_token_mean":
            count_R = counted_T.new_zeros(batch.responses).index_add_(0, batch.response_T, counted_T)
            return weight_T / count_R.clamp(min=1)[batch.response_T], responses
        case "seq_mean_token_sum":
            return weight_T, responses
        case "const":
            return weight_T, responses * max_response_tokens
