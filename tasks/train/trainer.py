"""The training loop: behavior log-probabilities once, then an AdamW step per update over packed micro-batches.

Shapes: T response tokens of a micro-batch, R responses.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from tasks.errors import CollapseError
from tasks.models.scorer import Scorer
from tasks.process.logs import bar
from tasks.settings import OptimizeSettings
from tasks.train import distributed
from tasks.train.backend import Backend
from tasks.train.batches import Ints, Responses
from tasks.train.checkpoint import Checkpoints
from tasks.train.diagnostics import UpdateExamples, UpdateStatistics, example_updates
from tasks.train.objective import objective
from tasks.train.results import Row, StageResults
from tasks.train.scoring import ScoredResponses

TimePhase = Callable[[str], AbstractContextManager[None]]


@dataclass
class Trainer:
    """The loop over updates. The policy, AdamW's moments and the count of updates go from one stage to the next.

    Several processes may train the policy together: each works on its share of every update's micro-batches.
    """

    backend: Backend
    settings: OptimizeSettings
    max_response_tokens: int
    seed: int = 0
    """Seed of the run."""
    reference: Scorer | None = None
    """The base policy, for an objective with a KL to it."""
    updates: int = 0
    """Updates of the run so far."""
    phase: TimePhase = lambda _: nullcontext()
    """Times the phases logp and optimize."""
    after_update: Callable[[Row], None] = lambda _: None
    """Called with the diagnostics of every update."""
    checkpoints: Checkpoints | None = None
    """Those of the unfinished stage; None if it is not saved."""
    require_signal: bool = True
    """Raise an error if all advantages of a stage are zero."""

    def train(
        self, responses: Responses, batches: Sequence[Ints], stage: int, results: StageResults | None = None
    ) -> StageResults:
        """Make ``schedule.updates_per_batch`` updates on each batch.

        Args:
            responses: sampled by the policy as it was before the first of these updates.
            batches: the rows of each batch, in order; no row is in two batches. Every call of a stage has as many.
            stage: counts from 0.
            results: those of the stage so far, to which these updates add; None if these responses are all. Updates
                that an interrupted attempt made on these responses are in it, and are not made again.

        Raises:
            NothingToLearnError: every advantage of the stage is zero, and ``require_signal`` is set.
            GateError: the engine's log-probabilities differ too much from the trainer's, too many are not finite, or a
                gradient is not finite.
            Interrupted: SIGTERM came, and a checkpoint is saved.
        """
        schedule = self.settings.objective.schedule
        total = len(batches) * schedule.updates_per_batch
        results = results or StageResults(len(responses.group_R), total)
        done = len(results.rows) % total
        with self.phase("logp"):
            seed = (self.seed, stage, self.updates - done)
            longest = self.max_response_tokens
            scored = ScoredResponses(responses, self.backend, self.settings, longest, stage, seed, batches)
            if self.checkpoints and done:
                scored.add(self.checkpoints.columns)
            else:
                scored.score(len(results.rows), self.reference, self.checkpoints)
                scored.count(results)
                if self.require_signal and len(results.rows) + total == results.updates:
                    results.check_signal()
        with self.phase("optimize"), bar(f"stage {stage + 1} optimize", total) as progress:
            progress.reach(done)
            with_examples = example_updates(results.updates)
            for staleness in range(done, total):
                batch = staleness // schedule.updates_per_batch
                new_proximal = staleness % (schedule.updates_per_batch * schedule.batches_per_proximal) == 0
                if new_proximal and self.settings.objective.needs_proximal:
                    proximal = batches[batch : batch + schedule.batches_per_proximal]
                    known = scored.logp.get("proximal")
                    scored.logp["proximal"] = scored.logp_of(proximal, self.backend, "proximal logp", known)
                has_examples = len(results.rows) in with_examples
                examples = UpdateExamples(responses, scored.selection, batches[batch]) if has_examples else None
                row = self._update(scored, batches[batch], examples)
                labels = {"stage": stage + 1, "update": self.updates, "staleness": staleness}
                results.rows.append({**labels, **row})
                results.examples += examples.rows(labels) if examples else []
                progress.advance(note="" if row["reward"] is None else f"reward {row['reward']:.3f}")
                self.after_update(results.rows[-1])
                stage_ends = len(results.rows) == results.updates
                if self.checkpoints and not stage_ends and self.checkpoints.due(len(results.rows)):
                    self.checkpoints.save(self.backend, self.updates, results, scored.logp)
        return results

    def _update(self, scored: ScoredResponses, rows: Ints, examples: UpdateExamples | None = None) -> Row:
        """Make one update on the rows that take part, and return its diagnostics."""
        micro_rows = scored.micro_rows(rows)
        bounds = scored.bounds(micro_rows)
        statistics, denominator = UpdateStatistics(), torch.zeros((), dtype=torch.int64)
        for index, micro in enumerate(micro_rows):
            tokens, entropy_T = scored.forward(micro)
            result = objective(tokens, self.settings.objective, self.max_response_tokens, bounds)
            self.backend.backward(result.loss_sum, last=index == len(micro_rows) - 1)
            denominator = denominator.to(result.denominator.device) + result.denominator
            statistics.add(result, tokens, entropy_T)
            if examples:
                examples.add(micro, tokens, result)
        learning_rate = self.settings.learning_rate * min(1.0, (self.updates + 1) / (self.settings.warmup_updates + 1))
        grad_norm = self.backend.step(int(distributed.all_reduce_sum(denominator.cpu())), learning_rate)
        if not math.isfinite(grad_norm):
            raise CollapseError(
                f"optimize: the gradient's norm is {grad_norm} at update {self.updates + 1}, with advantages up to "
                f"{scored.selection.advantage_R.abs().max():.3g}. Lower optimize.learning_rate, or the rewards if the "
                "advantages are large."
            )
        self.updates += 1
        return {
            "reward": scored.responses.mean_reward(rows),
            "response_tokens": scored.responses.mean_length(rows),
            "learning_rate": learning_rate,
            "grad_norm": grad_norm,
            "gate_low": bounds.low,
            "gate_high": bounds.high,
            **statistics.row(),
        }
