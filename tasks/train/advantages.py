"""Advantages from groups of rewards, and the table of which responses take part in an update.

| reason        | the response                              | in its group's baseline | in the update              |
|---------------|-------------------------------------------|-------------------------|----------------------------|
| missing       | was never generated                       | no                      | no                         |
| not_finite    | has log-probabilities that are not finite | no                      | no                         |
| unscored      | has no reward: it could not be judged     | no                      | with A = 0                 |
| surplus       | data.balance_negatives left it out        | no                      | with A = 0                 |
| zero_variance | its group of two or more responses has no | yes                     | with A, mostly 0, or not:  |
|               | two different rewards                     |                         | data.zero_variance: drop   |
| truncated     | was cut off at the largest length         | yes                     | with A, or not:            |
|               |                                           |                         | data.truncated: mask       |

Every other response takes part with its advantage A. "In the update" means: its tokens count in the denominator of the
loss and in the diagnostics.

Shapes: R responses, G groups.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tasks.settings.objective import AdvantageSettings, ObjectiveSettings
from tasks.train.batches import Flags, Ints, Responses


@dataclass(frozen=True)
class Selection:
    """The responses that take part in updates with their advantages, and counts of those without a signal."""

    advantage_R: Tensor
    """Advantages, in the dtype of the rewards; 0 for responses that take no part or cannot be compared with another."""
    takes_part_R: Flags
    groups: int
    zero_variance_groups: int
    """Groups without two different rewards, other than a single response with a reward."""
    unscored: int
    """Responses whose reward is in no baseline: missing, not finite and unscored ones of the table above."""

    def active_rows(self, rows: Ints) -> Ints:
        """Return the rows that take part."""
        return rows[self.takes_part_R[rows]]


def select(
    responses: Responses, settings: ObjectiveSettings, max_response_tokens: int, not_finite_R: Flags, draw_R: Tensor
) -> Selection:
    """Decide which responses take part, and compute their advantages; ``draw_R`` are random numbers from 0 to 1."""
    rules = settings.data
    group_R, length_R = torch.from_numpy(responses.group_R), responses.response_tokens.lengths
    missing_R = np.isnan(responses.reward_R) & (length_R == 0)
    takes_part_R = ~not_finite_R & ~missing_R
    reward_R = torch.from_numpy(np.where(takes_part_R, responses.reward_R, np.float32(np.nan)))
    shaped_R = reward_R
    if rules.overlong_buffer_share is not None:
        penalty_R = overlong_penalty(length_R, max_response_tokens, rules.overlong_buffer_share)
        shaped_R = reward_R + torch.from_numpy(penalty_R.astype(np.float32))
    balance_R = draw_R if rules.balance_negatives else None
    advantage_R = group_advantages(shaped_R, group_R, settings.advantage, balance_R)
    # The penalty for length is left out here: it does not make an all-correct group informative.
    scored = _Groups.of(group_R, ~reward_R.isnan())
    informative_G = scored.informative(reward_R)
    if rules.zero_variance == "drop":
        takes_part_R &= informative_G[scored.group_R].numpy()
    if rules.truncated == "mask":
        takes_part_R &= ~responses.truncated_R
    return Selection(
        advantage_R=torch.where(torch.from_numpy(takes_part_R), advantage_R, 0),
        takes_part_R=takes_part_R,
        groups=len(informative_G),
        zero_variance_groups=int((~informative_G).sum()),
        unscored=int((~scored.kept_R).sum()),
    )


def group_advantages(
    reward_R: Tensor, group_R: Tensor, settings: AdvantageSettings, draw_R: Tensor | None = None
) -> Tensor:
    """Compute advantages, [R] in the dtype of the rewards: reward minus baseline and its offset, over scale.

    Scale ``std`` is unbiased, as in verl's GRPO (arXiv 2402.03300), ``std_biased`` is not (2509.24203), ``sqrt_eps`` is
    that of 2505.22257, ``none`` leaves the difference as it is (Dr.GRPO, 2503.20783). Rewards that equal their baseline
    within rounding differ by exactly 0. A prompt's only response has baseline 0 and scale 1, as in verl.

    ``reward_R`` is NaN where there is none, ``group_R`` the same number for responses to the same prompt, in any order.
    With random numbers ``draw_R``, of the responses below their group's mean those with the smallest numbers are kept,
    no more than are above it; baseline and scale are those of the kept ones (RED-Drop, 2509.24203).
    """
    scored = _Groups.of(group_R, ~reward_R.isnan())
    kept = scored if draw_R is None else replace(scored, kept_R=scored.kept_R & ~_surplus(reward_R, scored, draw_R))
    score_R = torch.where(kept.kept_R, reward_R, 0).double()
    lowest_G, highest_G = kept.range(score_R)
    relative_R = ((scored.size_G > 1) & (settings.baseline != "none"))[scored.group_R]
    difference_R = kept.differences(score_R, _baseline(score_R, highest_G, kept, settings))
    centred_R = torch.where(relative_R, difference_R, score_R)
    scale_G = _scale(score_R, kept, settings)
    if settings.scale != "batch_std":
        scale_G = torch.where(highest_G > lowest_G, scale_G, 1)
    advantage_R = torch.where(kept.kept_R, (centred_R - settings.baseline_offset) / scale_G[scored.group_R], 0)
    return advantage_R.to(reward_R.dtype)


@dataclass(frozen=True)
class _Groups:
    """The group of every response, and reductions over the responses of a group that are kept, in float64."""

    group_R: Tensor
    """Index of the group, 0 to G - 1."""
    size_G: Tensor
    """Number of responses, also of those that are not kept."""
    kept_R: Tensor

    @classmethod
    def of(cls, group_R: Tensor, kept_R: Tensor) -> "_Groups":
        _, index_R, size_G = torch.unique(group_R, return_inverse=True, return_counts=True)
        return cls(index_R, size_G, kept_R)

    def sum(self, x_R: Tensor) -> Tensor:
        start_G = torch.zeros(len(self.size_G), dtype=torch.float64)
        return start_G.index_add_(0, self.group_R, torch.where(self.kept_R, x_R, 0).double())

    def count(self) -> Tensor:
        return self.sum(torch.ones(len(self.group_R)))

    def mean(self, x_R: Tensor) -> Tensor:
        return self.sum(x_R) / self.count().clamp(min=1)

    def range(self, x_R: Tensor) -> tuple[Tensor, Tensor]:
        """Return the smallest and largest value of each group; inf and -inf where none is kept."""

        def extreme(reduce: str, empty: float) -> Tensor:
            start_G = torch.full((len(self.size_G),), empty, dtype=torch.float64)
            values_R = torch.where(self.kept_R, x_R.double(), empty)
            return start_G.scatter_reduce(0, self.group_R, values_R, reduce=reduce)

        return extreme("amin", math.inf), extreme("amax", -math.inf)

    def differences(self, x_R: Tensor, baseline_G: Tensor) -> Tensor:
        """Return values minus their group's baseline: 0, not a random sign, where rounding to float32 could make it."""
        rounding_G = torch.finfo(torch.float32).eps * torch.stack(self.range(x_R)).abs().amax(0)
        difference_R = x_R - baseline_G[self.group_R]
        return torch.where(difference_R.abs() <= rounding_G[self.group_R], 0, difference_R)

    def informative(self, reward_R: Tensor) -> Tensor:
        """Return which groups have two different rewards, or are a single response with a reward, bool [G]."""
        lowest_G, highest_G = self.range(reward_R)
        informative_G: Tensor = (highest_G > lowest_G) | ((self.size_G == 1) & (highest_G == lowest_G))
        return informative_G


def _baseline(score_R: Tensor, highest_G: Tensor, groups: _Groups, settings: AdvantageSettings) -> Tensor:
    match settings.baseline:
        case "none":
            return torch.zeros_like(highest_G)
        case "mean":
            return groups.mean(score_R)
        case "logavgexp":
            highest_G = torch.where(groups.count() > 0, highest_G, 0)
            exponent_R = (score_R - highest_G[groups.group_R]) / settings.temperature
            return highest_G + settings.temperature * groups.mean(exponent_R.exp()).clamp(min=1e-300).log()


def _scale(score_R: Tensor, groups: _Groups, settings: AdvantageSettings) -> Tensor:
    count_G = groups.count()
    if settings.scale == "none":
        return torch.ones_like(count_G)
    if settings.scale == "batch_std":
        # Of equal rewards, or of one, there is no spread to divide by.
        kept_R = score_R[groups.kept_R]
        spread = float(kept_R.std()) if len(kept_R.unique()) > 1 else 1.0
        return torch.full_like(count_G, spread + settings.epsilon)
    squares_G = groups.sum((score_R - groups.mean(score_R)[groups.group_R]) ** 2)
    match settings.scale:
        case "std":
            return (squares_G / (count_G - 1).clamp(min=1)).sqrt() + settings.epsilon
        case "std_biased":
            return (squares_G / count_G.clamp(min=1)).sqrt() + settings.epsilon
        case "sqrt_eps":
            return (squares_G / count_G.clamp(min=1) + settings.epsilon).sqrt()


def _surplus(reward_R: Tensor, groups: _Groups, draw_R: Tensor) -> Tensor:
    """Choose random responses to leave out, bool [R], so that no more of a group are below its mean than above it."""
    difference_R = groups.differences(reward_R.double(), groups.mean(reward_R.double()))
    below_R = groups.kept_R & (difference_R < 0)
    allowed_G = groups.sum(difference_R > 0)
    # Responses are ranked in their group by draw, those below the mean first.
    order_R = torch.argsort(groups.group_R.double() + torch.where(below_R, draw_R / 2, draw_R / 2 + 0.5))
    rank_R = order_R.argsort() - (groups.size_G.cumsum(0) - groups.size_G)[groups.group_R]
    return below_R & (rank_R >= allowed_G[groups.group_R])


def overlong_penalty(lengths_R: Ints, max_response_tokens: int, buffer_share: float) -> npt.NDArray[np.float64]:
    """Compute DAPO's soft punishment of long responses (arXiv 2503.14476, equation 13), which is added to the reward.

    It is 0 up to the buffer, which is the last ``buffer_share`` of ``max_response_tokens``, and falls to -1 at its end.
    """
    buffer = buffer_share * max_response_tokens
    return np.clip((max_response_tokens - buffer - lengths_R) / buffer, -1, 0)
