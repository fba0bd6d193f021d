"""The objective: the tokens of a micro-batch in, their loss and what happened to each of them out.

One loss serves every algorithm; an algorithm is a row of settings (tasks/settings/presets.yaml). For a token with
ratio r and advantage A

    loss          = sum over tokens of a (s + penalty), divided by the denominator
    gradient of s = -w A (gradient of log pi) where the token passes the gate and is not vetoed or rejected, else 0

with the surrogate s, which is PPO's loss where w is the ratio, else the token's -w A; the weight w, which carries no
gradient; and the aggregation's weight a. docs/objective.md has the equations.

Shapes: T response tokens of a micro-batch, the responses one after the other; R responses.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.settings import objective as kinds
from tasks.settings.objective import ObjectiveSettings
from tasks.train.bounds import Bounds
from tasks.train.tokens import TokenBatch, at_level, log_ratio, required, running_count, running_mean, running_sum

LOG_TOLERANCE = 1e-5
"""A statistic of the veto that is this close to kappa, in nats, equals it and is not a trigger: log-probabilities in
float32 are exact to about 1e-6, and without a tolerance rounding would decide."""


@dataclass(frozen=True)
class ObjectiveResult:
    """Loss of a micro-batch, and what happened to its tokens; everything but ``loss_sum`` is detached.

    Loss and gradient of an update are the sums over its micro-batches, divided by the sum of their denominators where
    that is not 0. Any split of an update into micro-batches gives the same. ``loss_sum`` is a scalar in float64,
    ``denominator`` one in int64.
    """

    loss_sum: Tensor
    denominator: Tensor
    coefficient_T: Tensor
    """Weight and corrections times advantage; 0 for tokens that the gate stops, and for vetoed and rejected ones. Minus
    this is the surrogate's gradient."""
    surrogate_T: Tensor
    """The algorithm's loss per token, without the penalty; 0 for vetoed and rejected tokens."""
    clipped_T: Tensor
    """bool: the gate stops the token, or its weight is bounded, and A is not 0. The veto makes no difference."""
    trigger_T: Tensor
    """bool: the statistic of the veto is beyond its threshold."""
    vetoed_T: Tensor
    """bool: the veto leaves the token out."""
    rejected_T: Tensor
    """bool: a correction of the sampling policy leaves the token out (MIS, the cap of decoupled PPO)."""


def objective(
    tokens: TokenBatch, settings: ObjectiveSettings, max_response_tokens: int, bounds: Bounds
) -> ObjectiveResult:
    """Compute the loss of a micro-batch, summed over its tokens, which are in float32 or float64.

    Aggregation ``const`` divides by ``max_response_tokens`` (arXiv 2503.20783). ``bounds`` is the update's interval,
    from ``update_bounds``.

    Raises:
        ValueError: the settings need a column that was not given.
    """
    advantage_T = tokens.advantage_T.detach()
    gate_ratio_T, weight_ratio_T = _ratios(tokens, settings.ratio)
    low_T, high_T = _interval(tokens, settings.gate, bounds)
    passes_T = _gate(gate_ratio_T, advantage_T, low_T, high_T, settings.gate)
    weight_T = _weight(weight_ratio_T, advantage_T, settings.weight)
    surrogate_T = torch.where(passes_T, -weight_T * advantage_T, 0)
    if isinstance(settings.weight, kinds.RatioWeight) and settings.gate.kind in ("one_side", "two_side", "centred"):
        # Both ratios are equal, except that prefix_minimum multiplies the whole loss of a token by a factor.
        surrogate_T = _ppo(gate_ratio_T, advantage_T, low_T, high_T, settings.gate) * (weight_ratio_T / gate_ratio_T)
    correction_T, rejected_T = _correction(tokens, settings)
    trigger_T, vetoed_T = veto(tokens, settings.veto)

    keep_T = ~vetoed_T & ~rejected_T
    surrogate_T = torch.where(keep_T, surrogate_T * correction_T, 0)
    coefficient_T = torch.where(keep_T & passes_T, weight_T * correction_T * advantage_T, 0)
    # Straight-through: the difference is 0 in value and carries the coefficient's gradient.
    difference_T = tokens.logp_T - tokens.logp_T.detach()
    loss_T = torch.addcmul(surrogate_T, coefficient_T, difference_T, value=-1) + penalty(tokens, settings.regulariser)
    aggregate_T, denominator = _aggregation(tokens, keep_T, settings, max_response_tokens)
    is_bounded = isinstance(settings.weight, kinds.BoundedWeight)
    bounded_T = weight_T != weight_ratio_T if is_bounded else torch.zeros_like(passes_T)
    return ObjectiveResult(
        loss_sum=(loss_T * aggregate_T).sum(dtype=torch.float64),
        denominator=denominator,
        coefficient_T=coefficient_T,
        surrogate_T=surrogate_T,
        clipped_T=(~passes_T | bounded_T) & (advantage_T != 0),
        trigger_T=trigger_T,
        vetoed_T=vetoed_T,
        rejected_T=rejected_T,
    )


def _ratios(tokens: TokenBatch, settings: kinds.RatioSettings) -> tuple[Tensor, Tensor]:
    """Return two ratios, [T] each: that of the gate, which it compares with its bounds, and that of the weight.

    Sequence levels are those of GSPO (arXiv 2507.18071) and TOPR (2503.14286). ``prefix_minimum`` multiplies the weight
    by the smallest ratio before the token, 1 included, a reading of MinPRO (2601.22718).
    """
    log_T = tokens.log_ratio_to(settings.reference)
    ratio_T = at_level(log_T, tokens, settings.level).exp()
    return log_T.exp() if settings.level == "prefix_minimum" else ratio_T, ratio_T


def _interval(tokens: TokenBatch, settings: kinds.GateSettings, bounds: Bounds) -> tuple[Tensor, Tensor]:
    """Return both ends of every token's interval, [T]; ``centred`` is around the proximal ratio (arXiv 2505.22257)."""
    if isinstance(settings, kinds.CentredGate):
        centre_T = tokens.proximal_log_ratio_T.exp()
        return (centre_T - settings.half_width).clamp(min=0), centre_T + settings.half_width
    return torch.full_like(tokens.logp_T, bounds.low), torch.full_like(tokens.logp_T, bounds.high)


def _gate(ratio_T: Tensor, advantage_T: Tensor, low_T: Tensor, high_T: Tensor, settings: kinds.GateSettings) -> Tensor:
    """Return which tokens keep their gradient, bool [T].

    ``one_side`` is PPO's min(). With the interval [0, 5] of Mu-GRPO (arXiv 2605.17570) it does not clip negative
    advantages; ``two_side`` and ``ring`` are those of arXiv 2509.24203.
    """
    above_low_T, below_high_T = ratio_T >= low_T, ratio_T <= high_T
    match settings:
        case kinds.NoGate():
            passes_T = torch.ones_like(above_low_T)
        case kinds.IntervalGate(kind="one_side") | kinds.CentredGate():
            passes_T = torch.where(advantage_T < 0, above_low_T, below_high_T)
        case kinds.IntervalGate(kind="two_side"):
            passes_T = above_low_T & below_high_T
        case kinds.RingGate():
            inward_T = (advantage_T >= 0) & (ratio_T <= settings.outer_low)
            inward_T |= (advantage_T <= 0) & (ratio_T >= settings.outer_high)
            passes_T = (above_low_T & below_high_T) | inward_T
        case _:
            raise NotImplementedError(f"a rule for gate.kind {settings.kind}")
    if settings.dual_clip is None:
        return passes_T
    return passes_T & ~((advantage_T < 0) & (ratio_T > settings.dual_clip))


def _weight(ratio_T: Tensor, advantage_T: Tensor, settings: kinds.WeightSettings) -> Tensor:
    """Return the factor of a token that passes the gate, [T]."""
    match settings:
        case kinds.OneWeight():
            return torch.ones_like(ratio_T)
        case kinds.RatioWeight():
            return ratio_T
        case kinds.ClippedWeight(low=low, high=high):
            return ratio_T.clamp(low, high)
        case kinds.TaperWeight(positive=positive, negative=negative):
            return torch.where(advantage_T < 0, ratio_T.clamp(*negative), ratio_T.clamp(*positive))
        case kinds.PreserveWeight(low=low, high=high):
            below_T = torch.where(ratio_T < low, settings.preserve_low * low, ratio_T)
            above_T = torch.where(ratio_T > high, settings.preserve_high * high, ratio_T)
            return torch.where(advantage_T < 0, below_T, above_T)
        case kinds.ExponentialWeight(temperature=temperature):
            return (advantage_T / temperature).exp()
    raise NotImplementedError(f"a factor for weight.kind {settings.kind}")


def _ppo(ratio_T: Tensor, advantage_T: Tensor, low_T: Tensor, high_T: Tensor, gate: kinds.GateSettings) -> Tensor:
    """Return PPO's loss per token, [T], which is constant where the gate stops the gradient."""
    surrogate_T = -ratio_T.clamp(low_T, high_T) * advantage_T
    if gate.kind != "two_side":
        surrogate_T = torch.maximum(surrogate_T, -ratio_T * advantage_T)
    if gate.dual_clip is None:
        return surrogate_T
    return torch.where(advantage_T < 0, torch.minimum(surrogate_T, -gate.dual_clip * advantage_T), surrogate_T)


def _correction(tokens: TokenBatch, settings: ObjectiveSettings) -> tuple[Tensor, Tensor]:
    """Return the factor that corrects for the policy that sampled, and the tokens that are left out, bool, [T] each.

    The factors are the ratio of the proximal to the behavior policy (decoupled PPO, arXiv 2505.24298), and that of the
    trainer's to the engine's probability for the same weights, truncated (TIS) or masked (MIS).
    """
    factor_T = torch.ones_like(tokens.behavior_logp_T)
    rejected_T = torch.zeros_like(factor_T, dtype=torch.bool)
    ratio, mismatch = settings.ratio, settings.mismatch
    if isinstance(ratio, kinds.ProximalRatio):
        factor_T = tokens.proximal_log_ratio_T.exp()
        if ratio.beyond_cap == "mask":
            rejected_T = factor_T > ratio.behavior_cap
        factor_T = factor_T.clamp(max=ratio.behavior_cap)
    if isinstance(mismatch, kinds.TruncateMismatch | kinds.MaskMismatch):
        log_T = log_ratio(tokens.behavior_logp_T, required(tokens.engine_logp_T, "the engine"))
        engine_ratio_T = at_level(log_T, tokens, mismatch.level).exp()
        factor_T = factor_T * engine_ratio_T.clamp(max=mismatch.high)
        if isinstance(mismatch, kinds.MaskMismatch):
            rejected_T = rejected_T | (engine_ratio_T < mismatch.low) | (engine_ratio_T > mismatch.high)
    return factor_T, rejected_T


def veto(tokens: TokenBatch, settings: kinds.VetoSettings) -> tuple[Tensor, Tensor]:
    """Find triggers and vetoed tokens, bool [T] each, of the negative-advantage veto (NAV) of arXiv 2605.17570.

    The paper states its effect: no update after a trigger in responses with negative advantage. Threshold and direction
    of the trigger are readings of it, hence settings; triggers are found with scope ``off`` too. With tau the position
    of a response's ``trigger_count``-th trigger, the scopes veto tokens from tau on, tokens after it, or the whole
    response; a window of W ends the suffix scopes W tokens after tau, and later triggers do not move it.
    """
    trigger_T = _triggers(tokens, settings)
    if not isinstance(settings, kinds.SuffixVeto | kinds.ResponseVeto):
        return trigger_T, torch.zeros_like(trigger_T)
    count_T = running_count(trigger_T, tokens.first_T)
    from_tau_T = count_T >= settings.trigger_count
    after_tau_T = count_T - trigger_T.long() >= settings.trigger_count
    match settings.scope:
        case "response":
            vetoed_T = from_tau_T[tokens.last_T]
        case "trigger_only":
            vetoed_T = from_tau_T & trigger_T
        case "suffix_inclusive":
            vetoed_T = from_tau_T
        case "suffix_nontrigger":
            vetoed_T = after_tau_T & ~trigger_T
        case "suffix":
            vetoed_T = after_tau_T
    if isinstance(settings, kinds.SuffixVeto) and settings.window is not None:
        vetoed_T = vetoed_T & (running_count(after_tau_T, tokens.first_T) <= settings.window)
    return trigger_T, vetoed_T


def _triggers(tokens: TokenBatch, settings: kinds.VetoSettings) -> Tensor:
    """Return which tokens have a statistic beyond kappa, bool [T]."""
    match settings.statistic:
        case "token_prob":
            # Probabilities that do not change during a stage make the same triggers in all of its updates.
            log_T = (tokens.logp_T if settings.recompute == "every_update" else tokens.behavior_logp_T).detach()
        case "token_ratio":
            log_T = tokens.log_ratio_T
        case "prefix_product":
            log_T = running_sum(tokens.log_ratio_T, tokens.first_T)
        case "running_geo":
            log_T = running_mean(tokens.log_ratio_T, tokens.first_T)
        case "sequence_geo":
            log_T = running_mean(tokens.log_ratio_T, tokens.first_T)[tokens.last_T]
    log_kappa = math.log(settings.kappa)
    match settings.direction:
        case "below":
            trigger_T = log_T < log_kappa - LOG_TOLERANCE
        case "above":
            trigger_T = log_T > log_kappa + LOG_TOLERANCE
        case "both":
            trigger_T = log_T.abs() > LOG_TOLERANCE - log_kappa
    return trigger_T & (tokens.advantage_T < 0) if settings.advantage_sign == "negative" else trigger_T


def penalty(tokens: TokenBatch, settings: kinds.RegulariserSettings) -> Tensor:
    """Return the penalty of every token, times its coefficient, with its gradient; [T], or a scalar 0.

    The KL to the base policy uses Schulman's estimators ("Approximating KL divergence"); ``unbiased`` multiplies them
    by the importance ratio, gradient included (DeepSeek-V3.2, arXiv 2512.02556). The squared log-ratio to the behavior
    policy is OPMD's, with its factor 1/2 absorbed (arXiv 2509.24203).
    """
    match settings:
        case kinds.NoPenalty() | kinds.ReferencePenalty(coefficient=0):
            return tokens.logp_T.new_zeros(())
        case kinds.TokenPenalty(kind="likelihood", coefficient=coefficient):
            return -coefficient * tokens.logp_T
        case kinds.TokenPenalty(kind="behavior_l2", coefficient=coefficient):
            return coefficient * _clamped(tokens.logp_T, tokens.behavior_logp_T) ** 2
        case kinds.ReferencePenalty(coefficient=coefficient, estimator=estimator):
            x_T = _clamped(tokens.logp_T, required(tokens.reference_logp_T, "the base policy"))
            kl_T = {"k1": x_T, "k2": x_T**2 / 2, "k3": (-x_T).exp() - 1 + x_T}[estimator]
            if settings.unbiased:
                kl_T = kl_T * _clamped(tokens.logp_T, tokens.behavior_logp_T).exp()
            return coefficient * kl_T
    raise NotImplementedError(f"a term for regulariser.kind {settings.kind}")


def _clamped(logp_T: Tensor, other_logp_T: Tensor) -> Tensor:
    """Return the log-ratio with its gradient, clamped in value alone, so that a far token is still pulled back."""
    difference_T = logp_T - other_logp_T
    return difference_T - difference_T.detach() + log_ratio(logp_T, other_logp_T)


def _aggregation(
    tokens: TokenBatch, keep_T: Tensor, settings: ObjectiveSettings, max_response_tokens: int
) -> tuple[Tensor, Tensor]:
    """Return the factors of the tokens in the sum, a scalar or [T], and the divisor of the sum, a scalar."""
    counted_T = torch.ones_like(keep_T) if settings.denominator == "original" else keep_T
    one, responses = tokens.logp_T.new_ones(()), torch.tensor(tokens.responses, device=tokens.logp_T.device)
    match settings.aggregation:
        case "token_mean":
            return one, counted_T.sum()
        case "seq_mean_token_mean":
            count_R = tokens.response_T.new_zeros(tokens.responses).index_add_(0, tokens.response_T, counted_T.long())
            return (one / count_R.clamp(min=1))[tokens.response_T], responses
        case "seq_mean_token_sum":
            return one, responses
        case "const":
            return one, responses * max_response_tokens
