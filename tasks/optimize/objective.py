"""The objective: log-probabilities and advantages in, a loss and what happened to every token out.

One loss for every algorithm: its gradient is a coefficient, which carries no gradient itself, times the gradient of the
log-probability, plus that of a regulariser. An algorithm is a row of settings.

Legend of shapes: T response tokens of a micro-batch, the responses one after the other; R responses.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.optimize.gate import Bounds, Gated, gate
from tasks.optimize.ratio import behavior_weight, mismatch_weight, ratios
from tasks.optimize.regulariser import penalty
from tasks.optimize.tokens import TokenBatch, masked
from tasks.optimize.veto import veto_mask
from tasks.settings.objective import ObjectiveSettings


@dataclass(frozen=True)
class ObjectiveResult:
    """What the objective makes of a micro-batch. All but ``loss_sum`` is detached; masked tokens hold 0 or False.

    Loss and gradient of an update are the sums over its micro-batches, divided by the sum of their denominators where
    that is not 0. Any split of an update into micro-batches gives the same.
    """

    loss_sum: Tensor
    """Scalar, float64. Its value is the weighted sum of surrogate_T and the penalty; its gradient with respect to
    logp_T is that of the penalty minus coefficient_T, times the aggregation's weight."""
    denominator: Tensor
    """Scalar, int64."""
    log_ratio_T: Tensor
    """Of the current to the behavior probability of the token, clamped."""
    ratio_T: Tensor
    """Current over behavior probability of the token."""
    coefficient_T: Tensor
    """Weight times advantage, 0 for clipped, masked and vetoed tokens."""
    surrogate_T: Tensor
    """What the algorithm writes as its loss per token, without the penalty; 0 for masked and vetoed tokens."""
    clipped_T: Tensor
    """bool: the gate takes the token's gradient away or bounds it, whether or not the veto does too."""
    trigger_T: Tensor
    """bool: the statistic of the veto is beyond its threshold."""
    vetoed_T: Tensor
    """bool."""
    rejected_T: Tensor
    """bool: a correction of the sampling policy leaves the token out (MIS, the cap of decoupled PPO)."""


def objective(
    batch: TokenBatch, settings: ObjectiveSettings, max_response_tokens: int, bounds: Bounds | None = None
) -> ObjectiveResult:
    """The loss of a micro-batch, summed over its tokens.

    With gate one_side and weight ratio it is PPO's -min(r A, clip(r) A) (arXiv 2402.03300 for GRPO), for which
    ``dual_clip`` c allows at most c |A| where A < 0. Mu-GRPO (arXiv 2605.17570) clips to [0, 5], which leaves
    negative advantages unclipped, and vetoes tokens, see ``veto_mask``. The log-ratio is clamped to [-20, 20]; a token
    beyond that keeps the coefficient of the clamped ratio.

    Args:
        batch: tokens; float64 works as well as float32.
        settings: of the objective.
        max_response_tokens: most tokens that a response can have; aggregation const divides by it (arXiv 2503.20783,
            in TRL's form).
        bounds: the update's interval, see ``update_bounds``; that of the settings without it.

    Raises:
        ValueError: the settings need a column or bounds that were not given.
    """
    if bounds is None:
        if settings.gate.bounds != "static":
            raise ValueError(f"gate.bounds {settings.gate.bounds} are found over a whole update and must be given")
        bounds = Bounds(settings.gate.low, settings.gate.high)
    mask_T = batch.counted_T
    advantage_T = masked(batch.advantage_T.detach(), batch.mask_T)
    ratio = ratios(batch, settings)
    gated = gate(ratio.gate_T, batch, settings.gate, bounds)
    weight_T = _weight(ratio.weight_T, advantage_T, gated, settings)
    surrogate_T = _surrogate(ratio.weight_T, weight_T, advantage_T, gated, settings)
    rejected_T = torch.zeros_like(mask_T)
    for extra_T, left_out_T in _corrections(batch, settings):
        weight_T, surrogate_T = weight_T * extra_T, surrogate_T * extra_T
        rejected_T = rejected_T | left_out_T
    trigger_T, vetoed_T = veto_mask(
        batch.logp_T, batch.behavior_logp_T, advantage_T, batch.response_T, mask_T, settings.veto
    )
    keep_T = mask_T & ~vetoed_T & ~rejected_T
    surrogate_T = torch.where(keep_T, surrogate_T, 0)
    coefficient_T = torch.where(keep_T & gated.passes_T, weight_T * advantage_T, 0)
    aggregate_T, denominator = _aggregate(batch, mask_T, keep_T, settings, max_response_tokens)
    # Straight-through: the difference is 0 in value and carries the coefficient's gradient.
    difference_T = masked(batch.logp_T - batch.logp_T.detach(), batch.mask_T)
    loss_T = torch.addcmul(surrogate_T, coefficient_T, difference_T, value=-1)
    if settings.regulariser.kind != "none":
        loss_T = loss_T + penalty(batch, settings.regulariser)
    if aggregate_T is not None:
        loss_T = loss_T * aggregate_T
    return ObjectiveResult(
        loss_sum=loss_T.sum(dtype=torch.float64),
        denominator=denominator,
        log_ratio_T=ratio.log_T,
        ratio_T=ratio.token_T,
        coefficient_T=coefficient_T,
        surrogate_T=surrogate_T,
        clipped_T=mask_T & (advantage_T != 0) & _is_clipped(ratio.weight_T, advantage_T, gated, settings),
        trigger_T=trigger_T,
        vetoed_T=vetoed_T,
        rejected_T=rejected_T,
    )


def _weight(ratio_T: Tensor, advantage_T: Tensor, gated: Gated, settings: ObjectiveSettings) -> Tensor:
    """What a token that passes is multiplied by."""
    weight = settings.weight
    match weight.kind:
        case "one":
            return torch.ones_like(ratio_T)
        case "ratio":
            return ratio_T
        case "clipped":
            return ratio_T.clamp(weight.low, weight.high)
        case "taper":
            return torch.where(advantage_T < 0, ratio_T.clamp(*weight.negative), ratio_T.clamp(*weight.positive))
        case "preserve":
            beyond_T = torch.where(advantage_T < 0, ratio_T < gated.low_T, ratio_T > gated.high_T)
            bound_T = torch.where(
                advantage_T < 0, weight.preserve_low * gated.low_T, weight.preserve_high * gated.high_T
            )
            return torch.where(beyond_T, bound_T, ratio_T)
        case "exponential":
            return (advantage_T / weight.temperature).exp()


def _is_clipped(ratio_T: Tensor, advantage_T: Tensor, gated: Gated, settings: ObjectiveSettings) -> Tensor:
    """Tokens that do not pass, or keep a gradient that the ratio does not scale any more."""
    if settings.weight.kind not in ("clipped", "taper", "preserve"):
        return ~gated.passes_T
    return ~gated.passes_T | (_weight(ratio_T, advantage_T, gated, settings) != ratio_T)


def _surrogate(
    ratio_T: Tensor, weight_T: Tensor, advantage_T: Tensor, gated: Gated, settings: ObjectiveSettings
) -> Tensor:
    """The loss per token: PPO's for ratios under an interval, else minus weight times advantage of what passes."""
    if settings.weight.kind != "ratio" or settings.gate.kind in ("none", "ring"):
        return torch.where(gated.passes_T, -weight_T * advantage_T, 0)
    surrogate_T = -ratio_T.clamp(gated.low_T, gated.high_T) * advantage_T
    if settings.gate.kind != "two_side":
        surrogate_T = torch.maximum(surrogate_T, -ratio_T * advantage_T)
    if settings.gate.dual_clip is not None:
        capped_T = torch.minimum(surrogate_T, -settings.gate.dual_clip * advantage_T)
        surrogate_T = torch.where(advantage_T < 0, capped_T, surrogate_T)
    return surrogate_T


def _corrections(batch: TokenBatch, settings: ObjectiveSettings) -> list[tuple[Tensor, Tensor]]:
    """Weights for the policy that sampled, each with the tokens that it leaves out."""
    found = []
    if settings.ratio.reference == "proximal":
        found.append(behavior_weight(batch, settings.weight))
    if settings.mismatch.kind != "none":
        found.append(mismatch_weight(batch, settings.mismatch))
    return found


def _aggregate(
    batch: TokenBatch, mask_T: Tensor, keep_T: Tensor, settings: ObjectiveSettings, max_response_tokens: int
) -> tuple[Tensor | None, Tensor]:
    """Weights of the tokens in the sum, None for 1 each, and what the sum is to be divided by."""
    counted_T = mask_T if settings.denominator == "original" else keep_T
    if settings.aggregation == "token_mean":
        return None, counted_T.sum()
    responses = torch.tensor(batch.responses, device=batch.logp_T.device)
    match settings.aggregation:
        case "seq_mean_token_mean":
            count_R = batch.response_T.new_zeros(batch.responses).index_add_(0, batch.response_T, counted_T.long())
            return (1 / count_R.clamp(min=1).to(batch.logp_T.dtype))[batch.response_T], responses
        case "seq_mean_token_sum":
            return None, responses
        case "const":
            return None, responses * max_response_tokens
