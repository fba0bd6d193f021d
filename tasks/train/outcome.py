"""What training on a set of rollouts gave."""

from dataclasses import dataclass, field
from typing import Any

from tasks.errors import NothingToLearnError

Row = dict[str, Any]
"""Diagnostics of an update, or what it did to the tokens of a response."""


@dataclass
class Outcome:
    """What training on a set of rollouts gave."""

    rows: list[Row] = field(default_factory=list)
    """One row of diagnostics per update."""
    groups: int = 0
    zero_variance_groups: int = 0
    unscored: int = 0
    teaches: bool = True
    """Whether some advantage is not 0."""
    dropped: int = 0
    """Responses with log-probabilities that are not finite."""
    logp_mismatch: float = 0.0
    """Mean absolute difference of the engine's and the trainer's log-probabilities."""
    logp_mismatch_max: float = 0.0
    examples: list[Row] = field(default_factory=list)
    """Responses of the updates that were to be noted, with their tokens."""


@dataclass(frozen=True)
class PartOfStage:
    """The size of the whole stage, where its responses come refresh by refresh."""

    responses: int
    """Responses of the whole stage."""
    dropped: int = 0
    """Responses before these with log-probabilities that are not finite."""


def nothing_to_learn(groups: int, uniform: int, updates: int, reward: float) -> NothingToLearnError:
    """Make the error of a stage without an advantage.

    Args:
        groups: of the stage.
        uniform: those whose rewards are all the same.
        updates: of the stage.
        reward: their mean.
    """
    if uniform < groups:
        return NothingToLearnError(
            f"optimize: {uniform} of the {groups} groups of {updates} updates have one reward each (mean "
            f"{reward:.3f}), and of the others every advantage is 0 or every response is left out, as "
            "optimize.objective.data.truncated mask does with those that were cut off. Raise rollout.max_new_tokens, "
            "or use prompts that the policy solves sometimes."
        )
    return NothingToLearnError(
        f"optimize: the {groups} groups of {updates} updates have one reward each (mean {reward:.3f}), so every "
        "advantage is 0. Use prompts that the policy solves sometimes, or more responses per prompt."
    )
