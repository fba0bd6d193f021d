"""Chooses the responses of a stage that take part, and computes log-probabilities of their tokens by several policies.

Shapes: T response tokens of a micro-batch, R responses.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tasks.errors import GateError
from tasks.policy.scorer import MicroBatch, Scorer, pack_flat
from tasks.progress import bar
from tasks.settings import OptimizeSettings
from tasks.train import distributed
from tasks.train.advantages import Flags, Selection, select
from tasks.train.backends import Backend
from tasks.train.batches import AT_ONCE, Floats, Ints, Responses, mean_reward, micro_batches, shares, zeros
from tasks.train.checkpoint import Columns, Resume
from tasks.train.outcome import Outcome, PartOfStage, nothing_to_learn
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

    @classmethod
    def of(cls, responses: Responses, number: int, scratch: Path | None = None) -> "StageTokens":
        """Start with the engine's log-probabilities; see ``Scoring.prepare`` for the rest."""
        engine = np.asarray(responses.engine_logp.flat, dtype=np.float32)
        return cls(responses, number, scratch, Selection.of_all(len(responses.group_R)), {"engine": engine})

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


@dataclass(frozen=True)
class Scoring:
    """The part of a trainer that comes before its updates."""

    backend: Backend
    settings: OptimizeSettings
    max_response_tokens: int
    seed: int

    def prepare(
        self,
        work: StageTokens,
        batches: Sequence[Ints],
        updates: int,
        reference: Scorer | None,
        part: PartOfStage | None,
        resume: Resume | None,
    ) -> Outcome:
        """Choose who takes part, and compute log-probabilities by the policy as it is now and by the base policy.

        Args:
            work: gets the selection and the columns.
            batches: rows of every batch.
            updates: of the run before this stage.
            reference: see ``Trainer.train``, as for the others.
            part: likewise.
            resume: likewise.

        Returns:
            The outcome of a training without any update so far.
        """
        not_finite_R = ~finite_responses(work.logp["engine"], work.responses)
        self._select(work, not_finite_R, batches, updates, part)
        known = resume.logp() if resume else {}
        work.logp |= known or {"behavior": self.logp(work, batches, self.backend, "logp")}
        unusable_R = ~finite_responses(work.logp["behavior"], work.responses)
        if unusable_R.any():
            not_finite_R |= unusable_R
            self._select(work, not_finite_R, batches, updates, part)
        mean, largest = work.mismatch(batches)
        if not mean <= self.settings.max_logp_mismatch:
            raise GateError(
                f"optimize: engine and trainer log-probabilities differ by {mean:.4f} on average (largest "
                f"{largest:.4f}); optimize.max_logp_mismatch allows {self.settings.max_logp_mismatch}. Check that the "
                "rollouts come from this policy and that the engine's precision is the trainer's."
            )
        if reference is not None and "reference" not in work.logp:
            work.logp["reference"] = self.logp(work, batches, reference, "reference logp")
        if resume and not known:
            resume.keep_logp({name: column for name, column in work.logp.items() if name != "engine"})
        found = work.selection.advantages
        return Outcome(
            groups=found.groups,
            zero_variance_groups=found.zero_variance_groups,
            unscored=found.unscored,
            teaches=bool(work.selection.advantage_R.any()),
            dropped=int(not_finite_R.sum()),
            logp_mismatch=mean,
            logp_mismatch_max=largest,
        )

    @torch.no_grad()
    def logp(self, work: StageTokens, batches: Sequence[Ints], scorer: Backend | Scorer, what: str) -> Floats:
        """Compute log-probabilities of all tokens in some batches, 0 elsewhere.

        The micro-batches are those of the updates, so that the first update's ratio is 1 to the last bit.
        """
        flat: Floats = zeros(len(work.logp["engine"]), np.float32, work.scratch)
        with bar(f"stage {work.number + 1} {what}", len(batches)) as progress:
            for batch in batches:
                for rows in self.micro_rows(work, batch):
                    flat[work.responses.response_tokens.places(rows)] = scorer(work.micro_batch(rows))[0].cpu().numpy()
                progress.advance()
        distributed.all_reduce_in_place(torch.from_numpy(flat), AT_ONCE)
        return flat

    def micro_rows(self, work: StageTokens, rows: Ints) -> list[Ints]:
        """Return the rows of this process's micro-batches in an update over some rows."""
        active = work.selection.active_rows(rows)
        tokens, budget = work.responses.sequence_tokens(active), self.settings.tokens_per_micro_batch
        parts = micro_batches(tokens, np.arange(len(active)), budget, padded=not self.backend.packed)
        return [active[part] for part in shares(parts, tokens, distributed.world_size())[distributed.rank()]]

    def _select(
        self,
        work: StageTokens,
        not_finite_R: Flags,
        batches: Sequence[Ints],
        updates: int,
        part: PartOfStage | None,
    ) -> None:
        """Choose who takes part; stop a stage that teaches nothing or has too many numbers that are not finite."""
        whole = part or PartOfStage(len(not_finite_R))
        count = whole.dropped + int(not_finite_R.sum())
        if count > self.settings.max_dropped_share * whole.responses:
            raise GateError(
                f"optimize: {count} of {whole.responses} responses ({count / whole.responses:.1%}) have "
                "log-probabilities that are not finite; optimize.max_dropped_share allows "
                f"{self.settings.max_dropped_share:.1%}. Look at the engine's precision."
            )
        seed = (self.seed, work.number, updates)
        work.selection = select(work.responses, self.settings, self.max_response_tokens, not_finite_R, seed)
        if part is None and not work.selection.advantage_R.any():
            found, reward = work.selection.advantages, mean_reward(work.responses.reward_R)
            due = len(batches) * self.settings.objective.schedule.updates_per_batch
            raise nothing_to_learn(found.groups, found.zero_variance_groups, due, reward)


def finite_responses(logp: Floats, responses: Responses) -> Flags:
    """Return which responses have only finite values in a column of response tokens, bool [R]."""
    finite_R = np.ones(len(responses.group_R), dtype=bool)
    for start in range(0, len(logp), AT_ONCE):
        bad = start + np.flatnonzero(~np.isfinite(logp[start : start + AT_ONCE]))
        finite_R[np.searchsorted(responses.response_tokens.offsets, bad, side="right") - 1] = False
    return finite_R
