"""A penalty on response tokens, differentiable.

Legend of shapes: T response tokens of a micro-batch.
"""

import torch
from torch import Tensor

from tasks.optimize.tokens import TokenBatch, log_ratio, masked, required
from tasks.settings.objective import RegulariserSettings


def penalty(batch: TokenBatch, settings: RegulariserSettings) -> Tensor:
    """What every token adds to the loss, coefficient included; 0 at masked tokens.

    The KL to the base policy uses Schulman's estimators ("Approximating KL divergence"); ``unbiased`` multiplies them
    by the importance ratio, gradient included (DeepSeek-V3.2, arXiv 2512.02556). The squared log-ratio to the behavior
    policy is OPMD's, with its factor 1/2 absorbed (arXiv 2509.24203).
    """
    if settings.kind == "none" or settings.coefficient == 0:
        return torch.zeros_like(batch.logp_T)
    mask_T = batch.mask_T
    match settings.kind:
        case "likelihood":
            return -settings.coefficient * masked(batch.logp_T, mask_T)
        case "behavior_l2":
            return settings.coefficient * _bounded(batch.logp_T, batch.behavior_logp_T, mask_T) ** 2
        case "reference_kl":
            reference_T = required(batch.reference_logp_T, "log-probabilities of the base policy")
            x_T = _bounded(batch.logp_T, reference_T, mask_T)
            match settings.estimator:
                case "k1":
                    kl_T = x_T
                case "k2":
                    kl_T = x_T**2 / 2
                case "k3":
                    kl_T = (-x_T).exp() - 1 + x_T
            if settings.unbiased:
                kl_T = kl_T * _bounded(batch.logp_T, batch.behavior_logp_T, mask_T).exp()
            return settings.coefficient * kl_T


def _bounded(logp_T: Tensor, other_logp_T: Tensor, mask_T: Tensor | None) -> Tensor:
    """The log-ratio with its gradient, clamped in value alone, so that a far token is still pulled back."""
    # A masked token may hold NaN, which must not reach the backward pass.
    difference_T = masked(logp_T, mask_T) - masked(other_logp_T, mask_T)
    return difference_T - difference_T.detach() + log_ratio(logp_T, other_logp_T, mask_T)
