"""The trainer's loop: behavior log-probabilities once, then one AdamW step per update over packed micro-batches.

Legend of shapes: T response tokens of a micro-batch, R responses.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tasks.errors import GateError
from tasks.optimize import processes
from tasks.optimize.backends import Backend
from tasks.optimize.columns import AT_ONCE, zeros
from tasks.optimize.data import Flags, Selection, check_dropped, finite_responses, select
from tasks.optimize.diagnostics import UpdateStatistics
from tasks.optimize.examples import CloseUp
from tasks.optimize.gate import Bounds, update_bounds
from tasks.optimize.objective import objective
from tasks.optimize.outcome import Outcome, PartOfStage, Row, nothing_to_learn, unseen
from tasks.optimize.responses import Floats, Ints, Responses, mean_reward, micro_batches, shares
from tasks.optimize.resume import Columns, Resume
from tasks.optimize.tokens import TokenBatch, log_ratio
from tasks.policy.scorer import MicroBatch, Scorer, pack_flat
from tasks.progress import bar
from tasks.settings import OptimizeSettings

Phase = Callable[[str], AbstractContextManager[None]]


@dataclass
class _Stage:
    """Responses that the trainer works on, with log-probabilities of their tokens by several policies."""

    responses: Responses
    number: int
    """Counts from 0."""
    engine: Floats
    behavior: Floats
    reference: Floats | None = None
    proximal: Floats | None = None
    scratch: Path | None = None
    """On whose disk log-probabilities are kept."""

    def scored(self) -> Columns:
        """Columns that stay the same throughout the stage."""
        return {"behavior": self.behavior, **({} if self.reference is None else {"reference": self.reference})}

    def moving(self) -> Columns:
        """Columns that change with the weights."""
        return {} if self.proximal is None else {"proximal": self.proximal}

    def adopt(self, columns: Columns) -> None:
        """Takes over columns that were saved."""
        for name, flat in columns.items():
            setattr(self, name, flat)

    def micro_batch(self, rows: Ints) -> MicroBatch:
        prompts, responses = self.responses.prompt_tokens, self.responses.response_tokens
        return pack_flat(prompts.of(rows), prompts.lengths_of(rows), responses.of(rows), responses.lengths_of(rows))

    def columns(self, rows: Ints, device: torch.device) -> dict[str, torch.Tensor]:
        """Log-probabilities of the tokens of some rows, as a ``TokenBatch`` names them."""
        places = self.responses.response_tokens.places(rows)
        flats = {
            "behavior": self.behavior,
            "proximal": self.proximal,
            "reference": self.reference,
            "engine": self.engine,
        }
        return {
            f"{name}_logp_T": torch.from_numpy(flat[places]).to(device)
            for name, flat in flats.items()
            if flat is not None
        }


class Trainer:
    """A policy being optimised; AdamW's moments and the count of updates outlast stages.

    Several processes may hold the policy together: each works on its share of every update's micro-batches.
    """

    def __init__(self, backend: Backend, settings: OptimizeSettings, max_response_tokens: int, seed: int = 0) -> None:
        self.updates = 0
        self.backend = backend
        self._settings = settings
        self._max_response_tokens = max_response_tokens
        self._seed = seed

    def train(
        self,
        responses: Responses,
        batches: Sequence[Ints],
        stage: int,
        phase: Phase,
        reference: Scorer | None = None,
        part: PartOfStage | None = None,
        after_update: Callable[[Row], None] = unseen,
        resume: Resume | None = None,
        noted: Collection[int] = (),
        scratch: Path | None = None,
    ) -> Outcome:
        """Makes ``schedule.updates_per_batch`` updates per element of ``batches``, over the rows that it names.

        Args:
            responses: sampled by the policy as it is now.
            batches: rows of every batch, in order; no row is in two.
            stage: counts from 0, for the diagnostics.
            phase: times the phases logp and optimize.
            reference: the base policy, for an objective with a KL to it.
            part: the stage has other rollouts too, so that zero advantages are no reason to stop yet.
            after_update: called after every update with its diagnostics, and with those before an interruption.
            resume: saves where training stands, and finds where it stood when it was interrupted.
            noted: the staleness of updates that note what they do to the tokens of two responses.
            scratch: on whose disk log-probabilities are kept; None for the system's folder of temporary files.

        Raises:
            NothingToLearnError: every advantage of the stage is zero.
            GateError: the engine's log-probabilities differ too much from the trainer's, too many are not finite, or a
                gradient is not finite.
            Interrupted: a stop was asked for, and ``resume`` saved the state.
        """
        schedule = self._settings.objective.schedule
        total = len(batches) * schedule.updates_per_batch
        work = self._prepared(responses, stage, scratch)
        dropped_R = ~finite_responses(work.engine, responses)
        selection = self._select(work, dropped_R, total, part)
        with phase("logp"):
            known = resume.logp() if resume else {}
            if not known:
                work.behavior = self._scored(work, batches, selection, self.backend, "logp")
            work.adopt(known)
            unusable_R = ~finite_responses(work.behavior, responses)
            if unusable_R.any():
                dropped_R |= unusable_R
                selection = self._select(work, dropped_R, total, part)
            outcome = self._outcome(work, batches, selection, dropped_R)
            if reference is not None and work.reference is None:
                work.reference = self._scored(work, batches, selection, reference, "reference logp")
            if resume and not known:
                resume.keep_logp(work.scored())
        start = saved = 0
        if resume and (state := resume.restore(self.backend)):
            start, self.updates, (outcome,), columns = state
            saved = start
            work.adopt(columns)
            for row in outcome.rows:
                after_update(row)
        with phase("optimize"), bar(f"stage {stage + 1} optimize", total) as progress:
            progress.reach(start)
            for staleness in range(start, total):
                batch = staleness // schedule.updates_per_batch
                if staleness % (schedule.updates_per_batch * schedule.batches_per_proximal) == 0:
                    self._refresh_proximal(work, batches[batch : batch + schedule.batches_per_proximal], selection)
                rows = batches[batch]
                close_up = CloseUp(responses, selection, taken(rows, selection)) if staleness in noted else None
                row = self._update(work, selection, self._parts(responses, rows, selection), close_up)
                reward = mean_reward(responses.reward_R[rows])
                length = float(responses.response_tokens.lengths_of(rows).mean())
                place = {"stage": stage + 1, "update": self.updates, "staleness": staleness}
                outcome.rows.append({**place, "reward": reward, "response_tokens": length, **row})
                outcome.examples += close_up.examples(place) if close_up else []
                progress.advance(note=f"reward {reward:.3f}")
                after_update(outcome.rows[-1])
                if resume and resume.due(staleness + 1, total, saved):
                    saved = staleness + 1
                    resume.save(saved, self.backend, self.updates, [outcome], work.moving())
        return outcome

    def _prepared(self, responses: Responses, stage: int, scratch: Path | None) -> _Stage:
        engine = np.asarray(responses.engine_logp.flat, dtype=np.float32)
        return _Stage(responses, stage, engine, np.zeros_like(engine), scratch=scratch)

    def _select(self, work: _Stage, dropped_R: Flags, updates: int, part: PartOfStage | None) -> Selection:
        whole = part or PartOfStage(len(dropped_R))
        check_dropped(whole.dropped + int(dropped_R.sum()), whole.responses, self._settings.max_dropped_share)
        seed = (self._seed, work.number, self.updates)
        selection = select(work.responses, self._settings, self._max_response_tokens, dropped_R, seed)
        if not selection.advantage_R.any() and part is None:
            found, reward = selection.advantages, mean_reward(work.responses.reward_R)
            raise nothing_to_learn(found.groups, found.zero_variance_groups, updates, reward)
        return selection

    def _parts(self, responses: Responses, batch: Ints, selection: Selection) -> list[Ints]:
        """This process's micro-batches of a batch."""
        rows = taken(batch, selection)
        tokens, budget = responses.sequence_tokens(rows), self._settings.tokens_per_micro_batch
        parts = micro_batches(tokens, np.arange(len(rows)), budget, padded=not self.backend.packed)
        return [rows[part] for part in shares(parts, tokens, processes.count())[processes.rank()]]

    @torch.no_grad()
    def _scored(
        self, work: _Stage, batches: Sequence[Ints], selection: Selection, scorer: Backend | Scorer, what: str
    ) -> Floats:
        """Log-probabilities of all tokens in some batches, 0 elsewhere.

        In the very micro-batches of the updates, so that the first update's ratio is 1 to the last bit.
        """
        flat: Floats = zeros(len(work.engine), np.float32, work.scratch)
        with bar(f"stage {work.number + 1} {what}", len(batches)) as progress:
            for batch in batches:
                for rows in self._parts(work.responses, batch, selection):
                    flat[work.responses.response_tokens.places(rows)] = scorer(work.micro_batch(rows))[0].cpu().numpy()
                progress.advance()
        processes.add_up(torch.from_numpy(flat), AT_ONCE)
        return flat

    def _refresh_proximal(self, work: _Stage, batches: Sequence[Ints], selection: Selection) -> None:
        if self._settings.objective.needs_proximal:
            work.proximal = self._scored(work, batches, selection, self.backend, "proximal logp")

    def _outcome(self, work: _Stage, batches: Sequence[Ints], selection: Selection, dropped_R: Flags) -> Outcome:
        tokens, total, largest = 0, 0.0, 0.0
        for batch in batches:
            places = work.responses.response_tokens.places(taken(batch, selection))
            difference_T = np.abs(work.behavior[places].astype(np.float64) - work.engine[places])
            tokens, total = tokens + len(places), total + float(difference_T.sum())
            largest = max(largest, float(difference_T.max(initial=0.0)))
        outcome = Outcome(
            groups=selection.advantages.groups,
            zero_variance_groups=selection.advantages.zero_variance_groups,
            unscored=selection.advantages.unscored,
            teaches=bool(selection.advantage_R.any()),
            dropped=int(dropped_R.sum()),
            logp_mismatch=total / tokens if tokens else 0.0,
            logp_mismatch_max=largest,
        )
        if not outcome.logp_mismatch <= self._settings.max_logp_mismatch:
            raise GateError(
                f"optimize: engine and trainer log-probabilities differ by {outcome.logp_mismatch:.4f} on average "
                f"(largest {outcome.logp_mismatch_max:.4f}); optimize.max_logp_mismatch allows "
                f"{self._settings.max_logp_mismatch}. Check that the rollouts come from this policy and that the "
                "engine's precision is the trainer's."
            )
        return outcome

    def _bounds(self, work: _Stage, selection: Selection, parts: list[Ints]) -> Bounds:
        """The gate's interval; one that is found anew needs the whole update's log-ratios first."""
        gate = self._settings.objective.gate
        if gate.bounds == "static":
            return Bounds(gate.low, gate.high)
        log_ratios, advantages = [torch.zeros(0)], [torch.zeros(0)]
        with torch.no_grad():
            for rows in parts:
                batch, _ = self._token_batch(work, selection, rows)
                below_T = batch.behavior_logp_T if batch.proximal_logp_T is None else batch.proximal_logp_T
                log_ratios.append(log_ratio(batch.logp_T, below_T, batch.mask_T).cpu())
                advantages.append(batch.advantage_T.cpu())
        return update_bounds(torch.cat(log_ratios), torch.cat(advantages), gate, processes.gather_rows)

    def _token_batch(self, work: _Stage, selection: Selection, rows: Ints) -> tuple[TokenBatch, torch.Tensor]:
        """A micro-batch as the objective takes it, and the entropy of its tokens."""
        packed = work.micro_batch(rows)
        logp_T, entropy_T = self.backend(packed)
        device = logp_T.device
        advantage_r = selection.advantage_R.index_select(0, torch.from_numpy(rows))
        batch = TokenBatch(
            logp_T=logp_T,
            advantage_T=advantage_r.index_select(0, packed.response_T).to(device),
            response_T=packed.response_T.to(device),
            responses=len(rows),
            **work.columns(rows, device),
        )
        return batch, entropy_T

    def _update(
        self, work: _Stage, selection: Selection, parts: list[Ints], close_up: CloseUp | None = None
    ) -> dict[str, Any]:
        statistics = UpdateStatistics()
        bounds = self._bounds(work, selection, parts)
        for place, rows in enumerate(parts):
            batch, entropy_T = self._token_batch(work, selection, rows)
            result = objective(batch, self._settings.objective, self._max_response_tokens, bounds)
            self.backend.backward(result.loss_sum, last=place == len(parts) - 1)
            statistics.add(result, batch, entropy_T)
            if close_up:
                close_up.add(rows, batch, result)
        learning_rate = self._learning_rate()
        norm = self.backend.step(statistics.denominator, learning_rate)
        if not np.isfinite(norm):
            raise GateError(
                f"optimize: the gradient's norm is {norm} at update {self.updates + 1}. Lower optimize.learning_rate."
            )
        self.updates += 1
        interval = {"gate_low": bounds.low, "gate_high": bounds.high}
        return {"learning_rate": learning_rate, "grad_norm": norm, **interval, **statistics.row()}

    def _learning_rate(self) -> float:
        """Of the next update: rises over the first ``warmup_updates``."""
        return self._settings.learning_rate * min(1.0, (self.updates + 1) / (self._settings.warmup_updates + 1))


def taken(batch: Ints, selection: Selection) -> Ints:
    """The rows of a batch that take part."""
    return batch[selection.takes_part_R[batch]]
