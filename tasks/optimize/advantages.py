"""Rewards of a group of responses to one prompt become advantages.

Legend of shapes: R responses, G groups.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.errors import SettingsError
from tasks.settings.objective import AdvantageSettings


@dataclass(frozen=True)
class Advantages:
    """One advantage per response, and how many of them say nothing."""

    advantage_R: Tensor
    """In the dtype of the rewards; 0 where there is nothing to compare with."""
    groups: int
    zero_variance_groups: int
    """Groups without two different rewards, so that every advantage in them is 0."""
    unscored: int
    """Responses without a reward."""


def group_advantages(reward_R: Tensor, group_R: Tensor, settings: AdvantageSettings) -> Advantages:
    """Reward minus the group's mean, over the group's standard deviation plus epsilon.

    ``std`` is unbiased, as in verl's GRPO (arXiv 2402.03300), ``std_biased`` is not (arXiv 2509.24203), ``none`` leaves
    the difference as it is (Dr.GRPO, arXiv 2503.20783). A response without a reward has advantage 0 and does not enter
    its group's statistics. Equal rewards give exactly 0. A prompt's only response has its reward as advantage, as in
    verl; it has no standard deviation, so scale must be none.

    Args:
        reward_R: rewards; NaN where the verifier could not tell.
        group_R: int64, the same number for responses to the same prompt, in any order.
        settings: of the advantages.

    Raises:
        SettingsError: a group has one response and the scale is a standard deviation.
    """
    names_G, group_R, size_G = torch.unique(group_R, return_inverse=True, return_counts=True)
    alone_G = size_G == 1
    if settings.scale != "none" and alone_G.any():
        raise SettingsError(
            f"optimize.objective.advantage.scale {settings.scale!r}: group {int(names_G[alone_G][0])} has one response "
            "and one reward has no standard deviation; allowed: none, or at least 2 responses per prompt"
        )
    scored_R = ~reward_R.isnan()
    score_R = torch.where(scored_R, reward_R, 0).double()
    count_G = _sum(scored_R.double(), group_R, size_G)
    mean_G = torch.where(alone_G, 0, _sum(score_R, group_R, size_G) / count_G.clamp(min=1))
    centred_R = torch.where(scored_R, score_R - mean_G[group_R], 0)

    # Rounding of the mean can leave equal rewards a little off it; their range is exactly 0.
    varies_G = _extreme(reward_R, group_R, size_G, "amax") > _extreme(reward_R, group_R, size_G, "amin")
    varies_G |= alone_G & (count_G == 1)
    scale_G = torch.ones_like(mean_G)
    if settings.scale != "none":
        freedom_G = count_G - 1 if settings.scale == "std" else count_G
        scale_G = (_sum(centred_R**2, group_R, size_G) / freedom_G.clamp(min=1)).sqrt() + settings.epsilon
    advantage_R = torch.where(varies_G[group_R], centred_R / scale_G[group_R], 0)
    return Advantages(
        advantage_R=advantage_R.to(reward_R.dtype),
        groups=len(size_G),
        zero_variance_groups=int((~varies_G).sum()),
        unscored=int((~scored_R).sum()),
    )


def _sum(x_R: Tensor, group_R: Tensor, like_G: Tensor) -> Tensor:
    return torch.zeros_like(like_G, dtype=torch.float64).index_add_(0, group_R, x_R)


def _extreme(reward_R: Tensor, group_R: Tensor, like_G: Tensor, reduce: str) -> Tensor:
    worst = float("-inf") if reduce == "amax" else float("inf")
    start_G = torch.full_like(like_G, worst, dtype=torch.float64)
    reward_R = torch.where(reward_R.isnan(), worst, reward_R).double()
    return start_G.scatter_reduce(0, group_R, reward_R, reduce=reduce)
