"""A penalty on every response token that is added to the loss.

Shapes: T response tokens of a micro-batch.
"""

from torch import Tensor

from tasks.settings.objective import NoPenalty, ReferencePenalty, RegulariserSettings, TokenPenalty
from tasks.train.tokens import TokenBatch, log_ratio, required


def penalty(tokens: TokenBatch, settings: RegulariserSettings) -> Tensor:
    """Return what every token adds to the loss, coefficient included, with its gradient; [T], or a scalar of 0.

    The KL to the base policy uses Schulman's estimators ("Approximating KL divergence"); ``unbiased`` multiplies them
    by the importance ratio, gradient included (DeepSeek-V3.2, arXiv 2512.02556). The squared log-ratio to the behavior
    policy is OPMD's, with its factor 1/2 absorbed (arXiv 2509.24203).
    """
    match settings:
        case NoPenalty() | ReferencePenalty(coefficient=0):
            return tokens.logp_T.new_zeros(())
        case TokenPenalty(kind="likelihood", coefficient=coefficient):
            return -coefficient * tokens.logp_T
        case TokenPenalty(kind="behavior_l2", coefficient=coefficient):
            return coefficient * _clamped(tokens.logp_T, tokens.behavior_logp_T) ** 2
        case ReferencePenalty(coefficient=coefficient, estimator=estimator):
            x_T = _clamped(tokens.logp_T, required(tokens.reference_logp_T, "the base policy"))
            kl_T = {"k1": x_T, "k2": x_T**2 / 2, "k3": (-x_T).exp() - 1 + x_T}[estimator]
            if settings.unbiased:
                kl_T = kl_T * _clamped(tokens.logp_T, tokens.behavior_logp_T).exp()
            return coefficient * kl_T
    raise NotImplementedError(f"regulariser.kind {settings.kind}")


def _clamped(logp_T: Tensor, other_logp_T: Tensor) -> Tensor:
    """Return the log-ratio with its gradient, clamped in value alone, so that a far token is still pulled back."""
    difference_T = logp_T - other_logp_T
    return difference_T - difference_T.detach() + log_ratio(logp_T, other_logp_T)
