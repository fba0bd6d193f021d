"""The importance ratio at its levels, and the correction for an engine that differs from the trainer.

Legend of shapes: T response tokens of a micro-batch.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.optimize.tokens import (
    MAX_LOG_RATIO,
    TokenBatch,
    first_token,
    last_token,
    log_ratio,
    masked,
    required,
    running_mean,
    running_sum,
)
from tasks.settings.objective import MismatchSettings, ObjectiveSettings, WeightSettings


@dataclass(frozen=True)
class Ratios:
    """Ratios of every token, detached; 0 at masked tokens."""

    log_T: Tensor
    """Logarithm of token_T, clamped."""
    token_T: Tensor
    """Current over behavior probability, whatever the settings: for diagnostics."""
    gate_T: Tensor
    """What the gate looks at."""
    weight_T: Tensor
    """What the weight is made of; carries the gradient's scale."""


def ratios(batch: TokenBatch, settings: ObjectiveSettings) -> Ratios:
    """The ratios of a micro-batch.

    Sequence levels are those of GSPO (arXiv 2507.18071) and TOPR (2503.14286). ``prefix_minimum`` multiplies the weight
    by the smallest ratio before the token, 1 included, a reading of MinPRO (2601.22718).
    """
    mask_T = batch.mask_T
    token_log_T = log_ratio(batch.logp_T, batch.behavior_logp_T, mask_T)
    log_T = token_log_T
    if settings.ratio.reference == "proximal":
        proximal_T = required(batch.proximal_logp_T, "log-probabilities of the proximal policy")
        log_T = log_ratio(batch.logp_T, proximal_T, mask_T)
    level_log_T = _at_level(log_T, batch.counted_T, batch.response_T, settings.ratio.level)
    token_T = masked(token_log_T.exp(), mask_T)
    gate_T = weight_T = token_T if level_log_T is token_log_T else masked(level_log_T.exp(), mask_T)
    if settings.ratio.level == "prefix_minimum":
        weight_T = masked((level_log_T + _smallest_before(log_T, batch.response_T)).exp(), mask_T)
    return Ratios(log_T=token_log_T, token_T=token_T, gate_T=gate_T, weight_T=weight_T)


def behavior_weight(batch: TokenBatch, settings: WeightSettings) -> tuple[Tensor, Tensor]:
    """Proximal over behavior probability with its cap (arXiv 2505.24298), and which tokens the cap leaves out."""
    mask_T = batch.counted_T
    proximal_T = required(batch.proximal_logp_T, "log-probabilities of the proximal policy")
    weight_T = log_ratio(proximal_T, batch.behavior_logp_T, mask_T).exp()
    beyond_T = weight_T > settings.behavior_cap
    if settings.beyond_cap == "truncate":
        return weight_T.clamp(max=settings.behavior_cap), torch.zeros_like(beyond_T)
    return weight_T, beyond_T & mask_T


def mismatch_weight(batch: TokenBatch, settings: MismatchSettings) -> tuple[Tensor, Tensor]:
    """Trainer over engine probability for the same weights, cut at the top (TIS), and which tokens are left out (MIS).

    At a sequence level all tokens of a response share the weight.
    """
    mask_T = batch.counted_T
    engine_T = required(batch.engine_logp_T, "log-probabilities of the engine")
    log_T = log_ratio(batch.behavior_logp_T, engine_T, mask_T)
    weight_T = _at_level(log_T, mask_T, batch.response_T, settings.level).exp()
    if settings.kind == "truncate":
        return weight_T.clamp(max=settings.high), torch.zeros_like(mask_T)
    return weight_T, mask_T & ((weight_T < settings.low) | (weight_T > settings.high))


def _at_level(log_T: Tensor, mask_T: Tensor, response_T: Tensor, level: str) -> Tensor:
    if not level.startswith("sequence"):
        return log_T
    first_T, last_T = first_token(response_T), last_token(response_T)
    if level == "sequence_geometric":
        return running_mean(log_T, mask_T, first_T)[last_T].to(log_T.dtype)
    return running_sum(log_T, first_T)[last_T].to(log_T.dtype).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def _smallest_before(log_T: Tensor, response_T: Tensor) -> Tensor:
    """The smallest log-ratio of the tokens before each token of its response, at most 0."""
    if not len(log_T):
        return log_T
    place_T = torch.arange(len(log_T), device=log_T.device)
    before_T = torch.where(first_token(response_T) == place_T, 0, log_T.roll(1)).double()
    # One running minimum for all: each response is moved below those before it by more than a log-ratio can be.
    depth_T = 2 * MAX_LOG_RATIO * response_T.double()
    return ((before_T - depth_T).cummin(0).values + depth_T).to(log_T.dtype)
