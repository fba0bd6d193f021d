"""Results of training on a stage: the table of metrics with a row of diagnostics per update, examples, and counts.

The report reads the bins of the histograms too, so nothing heavy is imported here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.errors import NothingToLearnError

Row = dict[str, Any]
"""Diagnostics of an update, or an example: a response with its tokens."""
ADVANTAGE_EDGES = np.linspace(-4.25, 4.25, 18)
"""Values beyond the edges count in the outermost bins; the middle bin holds 0."""
LOG_RATIO_EDGES = np.linspace(-3.1, 3.1, 32)
"""Ratios from 0.045 to 22; values beyond count in the outermost bins."""
EDGES = {
    "advantage_histogram": ADVANTAGE_EDGES,
    "advantage_histogram_kept": ADVANTAGE_EDGES,
    "ratio_histogram_negative": LOG_RATIO_EDGES,
    "ratio_histogram_positive": LOG_RATIO_EDGES,
}
"""Edges of the bins of every column that holds a count per bin."""
_COUNTS = ("stage", "update", "staleness", "tokens", "responses")


def metrics_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of the diagnostics, with a row per update; it types columns in which all values are null."""
    types = dict.fromkeys(_COUNTS, pa.int64()) | dict.fromkeys(EDGES, pa.list_(pa.int64()))
    return pa.schema({name: types.get(name, pa.float64()) for name in columns})


@dataclass
class StageResults:
    """Results of a stage so far; each refresh of rollouts adds to them."""

    responses: int
    """Responses of the whole stage."""
    updates: int
    """Updates of the whole stage."""
    rows: list[Row] = field(default_factory=list)
    """One row of diagnostics per update that is made."""
    examples: list[Row] = field(default_factory=list)
    """Responses of some updates, with the ratio, flags and log-probabilities of their tokens."""
    groups: int = 0
    zero_variance_groups: int = 0
    reward_sum: float = 0.0
    """Sum of the rewards of all responses but the unscored ones."""
    unscored: int = 0
    """Responses whose reward is in no baseline; the dropped ones are among them."""
    dropped: int = 0
    """Responses with log-probabilities that are not finite."""
    has_signal: bool = False
    """Some advantage is not 0."""
    mismatch_sum: float = 0.0
    """Sum over ``mismatch_tokens`` of the absolute difference of the engine's and the trainer's log-probabilities."""
    mismatch_tokens: int = 0
    logp_mismatch_max: float = 0.0

    def check_signal(self) -> None:
        """Check that a response of the stage has an advantage other than 0.

        Raises:
            NothingToLearnError: no response has one.
        """
        if self.has_signal:
            return
        if self.unscored == self.responses:
            raise NothingToLearnError(
                f"optimize: none of the {self.responses} responses has a reward; the outcomes of the verdicts say why. "
                "Correct the gold answers, or the reward function."
            )
        mean = self.reward_sum / (self.responses - self.unscored)
        raise NothingToLearnError(
            f"optimize: every advantage is 0. {self.zero_variance_groups} of the {self.groups} groups of "
            f"{self.updates} updates have one reward each, and the mean reward is {mean:.3f}. If most verdicts are "
            "no_answer, ask for the form of answer that verify.kind reads, as with prompts.template. Else use prompts "
            "that the policy solves sometimes, more responses per prompt, a reward function with more than one value, "
            "or, where optimize.objective.data.truncated is mask, a larger rollout.max_new_tokens. If earlier rewards "
            "were higher, training has spoiled the policy: lower optimize.learning_rate."
        )

    def facts(self) -> dict[str, Any]:
        """Return the counts of the stage for a manifest."""
        return {
            "groups": self.groups,
            "zero_variance_groups": self.zero_variance_groups,
            "unscored": self.unscored,
            "dropped": self.dropped,
            "logp_mismatch": self.mismatch_sum / max(1, self.mismatch_tokens),
            "logp_mismatch_max": self.logp_mismatch_max,
        }
