"""The trainer's loop: behavior log-probabilities once, then one AdamW step per update over packed micro-batches.

Legend of shapes: T response tokens of a micro-batch, R responses.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasks.errors import GateError, NothingToLearnError
from tasks.optimize.advantages import Advantages, group_advantages
from tasks.optimize.diagnostics import UpdateStatistics
from tasks.optimize.objective import TokenBatch, objective
from tasks.optimize.responses import Ints, Responses, micro_batches
from tasks.policy.scorer import MicroBatch, Scorer, pack
from tasks.progress import bar
from tasks.settings import OptimizeSettings

Phase = Callable[[str], AbstractContextManager[None]]


@dataclass
class Outcome:
    """What training on a set of rollouts gave."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    """One row of diagnostics per update."""
    groups: int = 0
    zero_variance_groups: int = 0
    unscored: int = 0
    logp_mismatch: float = 0.0
    """Mean absolute difference of the engine's and the trainer's log-probabilities."""
    logp_mismatch_max: float = 0.0


def nothing_to_learn(groups: int, updates: int, reward: float) -> NothingToLearnError:
    """The error of a stage whose groups all got one reward each; ``reward`` is their mean."""
    return NothingToLearnError(
        f"optimize: the {groups} groups of {updates} updates have one reward each (mean {reward:.3f}), so every "
        "advantage is 0. Use prompts that the policy solves sometimes, or more responses per prompt."
    )


class Trainer:
    """A policy being optimised; AdamW's moments and the count of updates outlast stages."""

    def __init__(self, scorer: Scorer, settings: OptimizeSettings, max_response_tokens: int) -> None:
        self.updates = 0
        self.optimizer = torch.optim.AdamW(
            scorer.model.parameters(),
            lr=settings.learning_rate,
            betas=(settings.adam_beta1, settings.adam_beta2),
            weight_decay=settings.weight_decay,
            fused=True,
        )
        self._scorer = scorer
        self._parameters = list(scorer.model.parameters())
        self._settings = settings
        self._max_response_tokens = max_response_tokens

    def train(
        self, responses: Responses, updates: Sequence[Ints], stage: int, phase: Phase, part_of_stage: bool = False
    ) -> Outcome:
        """Makes one update per element of ``updates``, each over the rows that it names.

        Args:
            responses: sampled by the policy as it is now.
            updates: rows of every update, in order.
            stage: counts from 0, for the diagnostics.
            phase: times the phases logp and optimize.
            part_of_stage: more rollouts of this stage follow, so that zero advantages are no reason to stop yet.

        Raises:
            NothingToLearnError: every advantage of the stage is zero.
            GateError: the engine's log-probabilities differ too much from the trainer's, or a gradient is not finite.
        """
        advantages = self._advantages(responses, updates, part_of_stage)
        parts = [
            micro_batches(responses.sequence_tokens_R, rows, self._settings.tokens_per_micro_batch) for rows in updates
        ]
        outcome = Outcome(
            groups=advantages.groups,
            zero_variance_groups=advantages.zero_variance_groups,
            unscored=advantages.unscored,
        )
        with phase("logp"):
            behavior = self._behavior_logp(responses, parts, stage)
            self._measure_mismatch(responses, parts, behavior, outcome)
        with phase("optimize"), bar(f"stage {stage + 1} optimize", len(updates)) as progress:
            for staleness, rows in enumerate(updates):
                row = self._update(responses, advantages.advantage_R, parts[staleness], behavior[staleness])
                reward = float(np.nanmean(responses.reward_R[rows]))
                length = float(responses.response_tokens.lengths[rows].mean())
                place = {"stage": stage + 1, "update": self.updates, "staleness": staleness}
                outcome.rows.append({**place, "reward": reward, "response_tokens": length, **row})
                progress.advance(note=f"reward {reward:.3f}")
        return outcome

    def _advantages(self, responses: Responses, updates: Sequence[Ints], part_of_stage: bool) -> Advantages:
        advantages = group_advantages(
            torch.from_numpy(responses.reward_R),
            torch.from_numpy(responses.group_R),
            self._settings.objective.advantage,
        )
        if not advantages.advantage_R.any() and not part_of_stage:
            raise nothing_to_learn(advantages.groups, len(updates), float(np.nanmean(responses.reward_R)))
        return advantages

    def _behavior_logp(self, responses: Responses, parts: list[list[Ints]], stage: int) -> list[list[Tensor]]:
        # In the very micro-batches of the updates, so that the first update's ratio is 1 to the last bit.
        with bar(f"stage {stage + 1} logp", len(parts)) as progress, torch.no_grad():
            behavior = []
            for update_parts in parts:
                behavior.append([self._scorer(_pack(responses, rows))[0] for rows in update_parts])
                progress.advance()
        return behavior

    def _measure_mismatch(
        self, responses: Responses, parts: list[list[Ints]], behavior: list[list[Tensor]], outcome: Outcome
    ) -> None:
        rows = [row for update_parts in parts for part in update_parts for row in part]
        trainer_T = torch.cat([logp for logps in behavior for logp in logps]).numpy()
        engine_T = np.concatenate([responses.engine_logp[row] for row in rows])
        difference_T = np.abs(trainer_T.astype(np.float64) - engine_T)
        outcome.logp_mismatch, outcome.logp_mismatch_max = float(difference_T.mean()), float(difference_T.max())
        if not outcome.logp_mismatch <= self._settings.max_logp_mismatch:
            raise GateError(
                f"optimize: engine and trainer log-probabilities differ by {outcome.logp_mismatch:.4f} on average "
                f"(largest {outcome.logp_mismatch_max:.4f}); optimize.max_logp_mismatch allows "
                f"{self._settings.max_logp_mismatch}. Check that the rollouts come from this policy and that the "
                "engine's precision is the trainer's."
            )

    def _update(
        self, responses: Responses, advantage_R: Tensor, parts: list[Ints], behavior: list[Tensor]
    ) -> dict[str, Any]:
        statistics = UpdateStatistics()
        denominator = 0.0
        self.optimizer.zero_grad()
        for rows, behavior_logp_T in zip(parts, behavior, strict=True):
            packed = _pack(responses, rows)
            logp_T, entropy_T = self._scorer(packed)
            batch = TokenBatch(
                logp_T=logp_T,
                behavior_logp_T=behavior_logp_T,
                advantage_T=advantage_R[torch.from_numpy(rows)][packed.response_T],
                response_T=packed.response_T,
                responses=len(rows),
            )
            result = objective(batch, self._settings.objective, self._max_response_tokens)
            result.loss_sum.backward()
            denominator += float(result.denominator)
            statistics.add(result, batch, entropy_T)
        learning_rate = self._set_learning_rate()
        grad_norm = self._step(denominator)
        return {"learning_rate": learning_rate, "grad_norm": grad_norm, **statistics.row()}

    def _set_learning_rate(self) -> float:
        warmup = self._settings.warmup_updates
        rate = self._settings.learning_rate * min(1.0, (self.updates + 1) / (warmup + 1))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        return rate

    def _step(self, denominator: float) -> float:
        for parameter in self._parameters:
            if parameter.grad is not None and denominator > 0:
                parameter.grad.div_(denominator)
        norm = float(torch.nn.utils.clip_grad_norm_(self._parameters, self._settings.max_grad_norm))
        if not np.isfinite(norm):
            raise GateError(
                f"optimize: the gradient's norm is {norm} at update {self.updates + 1}. Lower optimize.learning_rate."
            )
        self.optimizer.step()
        self.updates += 1
        return norm


def _pack(responses: Responses, rows: Ints) -> MicroBatch:
    return pack([responses.prompt_tokens[row] for row in rows], [responses.response_tokens[row] for row in rows])
