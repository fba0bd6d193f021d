"""Which responses of a stage take part in its updates, and with what reward and advantage.

Legend of shapes: R responses.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tasks.errors import GateError
from tasks.optimize.advantages import Advantages, group_advantages, varying
from tasks.optimize.columns import AT_ONCE
from tasks.optimize.responses import Floats, Ints, Responses
from tasks.settings import OptimizeSettings

Flags = npt.NDArray[np.bool_]
_ROWS_AT_ONCE = 2**15
_COUNTS = ("groups", "zero_variance_groups", "unscored", "balanced_out")


@dataclass(frozen=True)
class Selection:
    """The responses that take part, and their advantages."""

    advantages: Advantages
    takes_part_R: Flags

    @property
    def advantage_R(self) -> Tensor:
        """Of every response, 0 for those that do not take part."""
        return self.advantages.advantage_R


def select(
    responses: Responses, settings: OptimizeSettings, max_response_tokens: int, dropped_R: Flags, seed: Sequence[int]
) -> Selection:
    """Applies the data rules and computes advantages.

    Args:
        responses: of the stage.
        settings: of the step.
        max_response_tokens: most tokens that a response can have.
        dropped_R: responses that cannot be used; they do not enter their group's statistics.
        seed: of random choices.
    """
    rules = settings.objective.data
    random = np.random.default_rng([*seed, 1]) if rules.balance_negatives else None
    # Everything but a scale of the whole batch is found group by group.
    at_once = len(responses.group_R) if settings.objective.advantage.scale == "batch_std" else _ROWS_AT_ONCE
    advantage_R, takes_part_R = torch.zeros(len(responses.group_R)), np.zeros(len(responses.group_R), dtype=bool)
    counts: Counter[str] = Counter()
    for rows in _portions(responses.group_R, at_once):
        part = _selected(responses, settings, max_response_tokens, dropped_R, rows, random)
        advantage_R[rows], takes_part_R[rows] = part.advantage_R, part.takes_part_R
        counts.update({name: getattr(part.advantages, name) for name in _COUNTS})
    return Selection(Advantages(advantage_R, **{name: counts[name] for name in _COUNTS}), takes_part_R)


def _portions(group_R: Ints, at_once: int) -> Iterator[slice]:
    """Rows of whole groups, about so many at a time."""
    start = 0
    while start < len(group_R):
        last = group_R[min(start + at_once, len(group_R)) - 1]
        end = int(np.searchsorted(group_R, last, side="right"))
        yield slice(start, end)
        start = end


def _selected(
    responses: Responses,
    settings: OptimizeSettings,
    max_response_tokens: int,
    dropped_R: Flags,
    rows: slice,
    random: np.random.Generator | None,
) -> Selection:
    """Of some rows, which are whole groups."""
    rules = settings.objective.data
    reward_R, group_R = responses.reward_R[rows].copy(), torch.from_numpy(responses.group_R[rows])
    length_R = responses.response_tokens.lengths_of(np.arange(rows.start, rows.stop))
    takes_part_R = ~dropped_R[rows] & ~(np.isnan(reward_R) & (length_R == 0))
    reward_R[~takes_part_R] = np.nan
    correctness_R = torch.from_numpy(reward_R.copy())
    if rules.overlong_buffer_share is not None:
        reward_R += overlong_penalty(length_R, max_response_tokens, rules.overlong_buffer_share).astype(np.float32)
    advantages = group_advantages(torch.from_numpy(reward_R), group_R, settings.objective.advantage, random)
    if rules.zero_variance == "drop":
        # By the rewards themselves: a penalty for length does not make an all-correct group informative.
        takes_part_R &= varying(correctness_R, group_R).numpy()
    if rules.truncated == "mask":
        takes_part_R &= ~responses.truncated_R[rows]
    advantage_R = torch.where(torch.from_numpy(takes_part_R), advantages.advantage_R, 0)
    return Selection(replace(advantages, advantage_R=advantage_R), takes_part_R)


def overlong_penalty(lengths_R: Ints, max_response_tokens: int, buffer_share: float) -> npt.NDArray[np.float64]:
    """DAPO's soft punishment of long responses (arXiv 2503.14476, equation 13), added to the reward.

    0 up to the buffer, which is the last ``buffer_share`` of ``max_response_tokens``; falls to -1 at its end and stays.
    """
    buffer = buffer_share * max_response_tokens
    return np.clip((max_response_tokens - buffer - lengths_R) / buffer, -1, 0)


def check_dropped(dropped: int, responses: int, max_share: float) -> None:
    """Stops a stage of which too many responses have log-probabilities that are not finite.

    Args:
        dropped: so many.
        responses: of the stage.
        max_share: that is allowed.

    Raises:
        GateError: their share is above ``max_share``.
    """
    share = dropped / responses
    if share > max_share:
        raise GateError(
            f"optimize: {dropped} of {responses} responses ({share:.1%}) have log-probabilities that "
            f"are not finite; optimize.max_dropped_share allows {max_share:.1%}. Look at the engine's precision."
        )


def finite_responses(logp: Floats, responses: Responses) -> Flags:
    """Which responses have only finite values in a column of response tokens."""
    finite_R = np.ones(len(responses.group_R), dtype=bool)
    for start in range(0, len(logp), AT_ONCE):
        bad = start + np.flatnonzero(~np.isfinite(logp[start : start + AT_ONCE]))
        finite_R[np.searchsorted(responses.response_tokens.offsets, bad, side="right") - 1] = False
    return finite_R
