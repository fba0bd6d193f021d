"""The negative-advantage veto (NAV): which tokens of stale responses take no part in an update.

The paper (Mu-GRPO, arXiv 2605.17570) states its effect: no updates after a trigger in negative-advantage responses.
Threshold and direction of the trigger are readings of it, hence settings.

Legend of shapes: T response tokens of a micro-batch, the responses one after the other.
"""

import math

import torch
from torch import Tensor

from tasks.optimize.tokens import first_token, last_token, log_ratio, running_count, running_mean, running_sum
from tasks.settings.objective import VetoSettings

LOG_TOLERANCE = 1e-5
"""A statistic that is this close to kappa, in nats, equals it and is no trigger.

Log-probabilities in float32 are exact to about 1e-6, so without it rounding would decide.
"""


def veto_mask(
    logp_T: Tensor,
    behavior_logp_T: Tensor,
    advantage_T: Tensor,
    response_T: Tensor,
    mask_T: Tensor,
    settings: VetoSettings,
) -> tuple[Tensor, Tensor]:
    """Trigger and vetoed tokens, after arXiv 2605.17570 (NAV). No gradient flows into either.

    With tau the position of a response's ``trigger_count``-th trigger, the scopes veto

    - ``suffix``: every token after tau, later triggers too;
    - ``suffix_nontrigger``: those of them that are no triggers (H_kappa in the paper's localisation experiment);
    - ``suffix_inclusive``: tau and every token after it;
    - ``response``: all tokens;
    - ``trigger_only``: tau and the triggers after it.

    A response with fewer triggers keeps all its tokens. A window of W ends the suffix scopes W tokens after tau; later
    triggers do not move it. Triggers are found with scope ``off`` too, so that runs without the veto can be compared.

    Args:
        logp_T: log-probabilities by the current policy, nats.
        behavior_logp_T: log-probabilities by the policy that sampled, nats.
        advantage_T: advantage of the token's response.
        response_T: int64, the token's response; non-decreasing.
        mask_T: bool; a False token is as if it were not there.
        settings: of the veto.

    Returns:
        trigger_T and vetoed_T, bool.
    """
    if settings.recompute == "once_per_stage":
        logp_T = behavior_logp_T
    first_T = first_token(response_T)
    statistic_T = _log_statistic(logp_T, behavior_logp_T, mask_T, response_T, first_T, settings)
    active_T = mask_T if settings.advantage_sign == "all" else mask_T & (advantage_T < 0)
    trigger_T = active_T & _is_beyond(statistic_T, settings)
    return trigger_T, mask_T & _in_scope(trigger_T, mask_T, response_T, first_T, settings)


def _log_statistic(
    logp_T: Tensor, behavior_logp_T: Tensor, mask_T: Tensor, response_T: Tensor, first_T: Tensor, settings: VetoSettings
) -> Tensor:
    log_ratio_T = log_ratio(logp_T, behavior_logp_T, mask_T)
    match settings.statistic:
        case "token_prob":
            return logp_T.detach()
        case "token_ratio":
            return log_ratio_T
        case "prefix_product":
            return running_sum(log_ratio_T, first_T)
        case "running_geo":
            return running_mean(log_ratio_T, mask_T, first_T)
        case "sequence_geo":
            return running_mean(log_ratio_T, mask_T, first_T)[last_token(response_T)]


def _is_beyond(statistic_T: Tensor, settings: VetoSettings) -> Tensor:
    log_kappa = math.log(settings.kappa)
    match settings.direction:
        case "below":
            return statistic_T < log_kappa - LOG_TOLERANCE
        case "above":
            return statistic_T > log_kappa + LOG_TOLERANCE
        case "both":
            return statistic_T.abs() > LOG_TOLERANCE - log_kappa


def _in_scope(trigger_T: Tensor, mask_T: Tensor, response_T: Tensor, first_T: Tensor, settings: VetoSettings) -> Tensor:
    if settings.scope == "off":
        return torch.zeros_like(trigger_T)
    count_T = running_count(trigger_T, first_T)
    if settings.scope.startswith("suffix"):
        after_tau_T = count_T - trigger_T.long() >= settings.trigger_count
        suffix_T = count_T >= settings.trigger_count if settings.scope == "suffix_inclusive" else after_tau_T
        if settings.window is not None:
            suffix_T = suffix_T & (running_count(after_tau_T & mask_T, first_T) <= settings.window)
        return suffix_T & ~trigger_T if settings.scope == "suffix_nontrigger" else suffix_T
    from_tau_T = count_T >= settings.trigger_count
    return from_tau_T[last_token(response_T)] if settings.scope == "response" else from_tau_T & trigger_T
