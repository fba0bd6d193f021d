"""One model that generates and learns in turn."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.artifacts.tables import ROLLOUTS, VERDICTS, to_table
from tasks.errors import SettingsError
from tasks.optimize.outcome import Outcome, Row, unseen
from tasks.optimize.responses import collect, group_order
from tasks.optimize.step import MEND, load_trainer
from tasks.optimize.trainer import Phase
from tasks.policy.loading import load_tokenizer, stop_token_ids
from tasks.policy.memory import enough_memory
from tasks.policy.packing import PACKED_ATTENTION
from tasks.policy.scorer import Scorer
from tasks.rollout.step import sample
from tasks.rollout.transformers_engine import TransformersEngine
from tasks.settings import OptimizeSettings, RolloutSettings, VerifySettings
from tasks.verify.step import Tally, pair, verdict_rows
from tasks.verify.verifier import Verifier, check_failures


class Loop:
    """Generation and updates in one process, on one copy of the weights."""

    def __init__(
        self,
        folder: Path,
        rollout: RolloutSettings,
        verify: VerifySettings,
        optimize: OptimizeSettings,
        policy_digest: str,
        stage: int,
        seed: int,
        phase: Phase,
        reference: Scorer | None,
        start: Path | None = None,
    ) -> None:
        self.trainer = load_trainer(folder, optimize, rollout.max_new_tokens, seed, start)
        self.verifier = Verifier(verify)
        self.tokenizer = load_tokenizer(folder)
        self.model = self.trainer.backend.model
        self.engine = TransformersEngine(self.model, stop_token_ids(folder), rollout.engine.batch_size)
        self.outcomes: list[Outcome] = []
        self.tally = Tally()
        self._rollout, self._verify, self._optimize = rollout, verify, optimize
        self._policy_digest, self._stage, self._seed = policy_digest, stage, seed
        self._phase, self._reference = phase, reference

    def generating(self) -> None:
        """Readies the model for the engine."""
        with self._phase("switch"):
            self.model.set_attn_implementation("sdpa")

    def learning(self) -> None:
        """Readies the model for the trainer."""
        with self._phase("switch"):
            self.model.set_attn_implementation(PACKED_ATTENTION)

    def refresh(
        self, prompts: list[dict[str, Any]], after_update: Callable[[Row], None] = unseen
    ) -> tuple[pa.Table, pa.Table]:
        """Generates, verifies, and makes the updates of one refresh; returns its rollouts and verdicts."""
        self.generating()
        with self._phase("generate"):
            name = f"{self._policy_digest}+{self.trainer.updates}"
            sampled = sample(self.engine, self.tokenizer, self._rollout, prompts, name, self._stage, self._seed)
            rollouts = to_table(sampled, ROLLOUTS)
        with self._phase("verify"):
            verdicts = self.verifier.verify([pair(row) for row in sampled])
            check_failures(verdicts, self._verify, [row["prompt_id"] for row in sampled])
            judged = to_table(verdict_rows(sampled, verdicts), VERDICTS)
            self.tally.add(sampled, verdicts)
        self.learning()
        with self._phase("switch"):
            responses = collect([rollouts], judged, self._rollout.responses_per_prompt)
        rows = np.arange(len(sampled)).reshape(-1, self._optimize.responses_per_update)
        with enough_memory("optimize", MEND):
            outcome = self.trainer.train(
                responses,
                list(rows),
                self._stage,
                self._phase,
                self._reference,
                part_of_stage=True,
                after_update=after_update,
            )
        self.outcomes.append(outcome)
        return rollouts, judged


def plan_refreshes(
    rows: list[dict[str, Any]],
    rollout: RolloutSettings,
    optimize: OptimizeSettings,
    updates_per_rollout: int,
    seed: Sequence[int],
) -> list[list[dict[str, Any]]]:
    """The prompts of every refresh, in the order in which their groups are consumed.

    Raises:
        SettingsError: refreshes do not divide the prompts.
    """
    batches = updates_per_rollout // optimize.objective.schedule.updates_per_batch
    groups = optimize.responses_per_update * batches // rollout.responses_per_prompt
    if not groups or len(rows) % groups:
        raise SettingsError(
            f"updates_per_rollout: {updates_per_rollout} takes {groups} prompts per refresh, which does not divide the "
            f"{len(rows)} prompts of a stage."
        )
    ordered = [rows[place] for place in group_order(len(rows), seed)]
    return [ordered[start : start + groups] for start in range(0, len(rows), groups)]
