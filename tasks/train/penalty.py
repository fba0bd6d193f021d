"""A penalty on every response token that is added to the loss.

Shapes: T response tokens of a micro-batch.
"""

import torch
from torch import Tensor

from tasks.settings.objective import RegulariserSettings
from tasks.train.tokens import TokenBatch, log_ratio, required


def penalty(tokens: TokenBatch, settings: RegulariserSettings) -> Tensor:
    """Return what every token adds to the loss, coefficient included, with its gradient.

    The KL to the base policy uses Schulman's estimators ("Approximating KL divergence"); ``unbiased`` multiplies them
    by the importance ratio, gradient included (DeepSeek-V3.2, arXiv 2512.02556). The squared log-ratio to the behavior
    policy is OPMD's, with its factor 1/2 absorbed (arXiv 2509.24203).
    """
    if settings.kind == "none" or settings.coefficient == 0:
        return torch.zeros_like(tokens.logp_T)
    match settings.kind:
        case "likelihood":
            return -settings.coefficient * tokens.logp_T
        case "behavior_l2":
            return settings.coefficient * _clamped(tokens.logp_T, tokens.behavior_logp_T) ** 2
        case "reference_kl":
            x_T = _clamped(tokens.logp_T, required(tokens.reference_logp_T, "the base policy"))
            match settings.estimator:
                case "k1":
                    kl_T = x_T
                case "k2":
                    kl_T = x_T**2 / 2
                case "k3":
                    kl_T = (-x_T).exp() - 1 + x_T
            if settings.unbiased:
                kl_T = kl_T * _clamped(tokens.logp_T, tokens.behavior_logp_T).exp()
            return settings.coefficient * kl_T


def _clamped(logp_T: Tensor, other_logp_T: Tensor) -> Tensor:
    """Return the log-ratio with its gradient, clamped in value alone, so that a far token is still pulled back."""
    difference_T = logp_T - other_logp_T
    return difference_T - difference_T.detach() + log_ratio(logp_T, other_logp_T)
