"""The responses that an update sequence works on, with log-probabilities of their tokens by several policies.

Shapes: T response tokens of a micro-batch.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tasks.policy.scorer import MicroBatch, pack_flat
from tasks.train.advantages import Selection
from tasks.train.batches import Floats, Ints, Responses
from tasks.train.checkpoint import Columns
from tasks.train.tokens import TokenBatch


@dataclass
class StageTokens:
    """Responses of a stage or of a refresh, the selection of those that take part, and a column of logp per policy."""

    responses: Responses
    number: int
    """The stage, counted from 0."""
    scratch: Path | None
    """Where columns are kept on disk; None for the system's folder of temporary files."""
    selection: Selection
    logp: Columns
    """Log-probabilities of all response tokens by policy: engine, behavior, and where used reference and proximal."""

    def micro_batch(self, rows: Ints) -> MicroBatch:
        """Pack some rows for a forward pass."""
        prompts, responses = self.responses.prompt_tokens, self.responses.response_tokens
        return pack_flat(prompts.of(rows), prompts.lengths_of(rows), responses.of(rows), responses.lengths_of(rows))

    def token_batch(self, rows: Ints, response_T: Tensor, logp_T: Tensor) -> TokenBatch:
        """Put the stored columns of some rows beside what the current policy gives them."""
        places, device = self.responses.response_tokens.places(rows), logp_T.device
        advantage_r = self.selection.advantage_R.index_select(0, torch.from_numpy(rows))
        return TokenBatch(
            logp_T=logp_T,
            advantage_T=advantage_r.index_select(0, response_T).to(device),
            response_T=response_T.to(device),
            responses=len(rows),
            **{f"{policy}_logp_T": torch.from_numpy(flat[places]).to(device) for policy, flat in self.logp.items()},
        )

    def mismatch(self, batches: Iterable[Ints]) -> tuple[float, float]:
        """Return mean and largest absolute difference of the engine's and the trainer's log-probabilities, nats."""
        tokens, total, largest = 0, 0.0, 0.0
        engine, behavior = self.logp["engine"], self.logp["behavior"]
        for batch in batches:
            places = self.responses.response_tokens.places(self.selection.active_rows(batch))
            difference_T: Floats = np.abs(behavior[places].astype(np.float64) - engine[places])
            tokens, total = tokens + len(places), total + float(difference_T.sum())
            largest = max(largest, float(difference_T.max(initial=0.0)))
        return total / tokens if tokens else 0.0, largest
