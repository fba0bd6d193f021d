"""A stage's worth of updates with new rollouts every few of them: GRPO at mu = 4, or any preset at any mu."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.artifacts import ArtifactRef, Draft, Store
from tasks.artifacts.tables import ROLLOUTS, VERDICTS, read_table, table_writer, to_table
from tasks.errors import SettingsError
from tasks.optimize.responses import collect, group_order
from tasks.optimize.step import load_reference, load_trainer, reference_parent, save
from tasks.optimize.trainer import Outcome, nothing_to_learn
from tasks.policy.loading import load_tokenizer, stop_token_ids
from tasks.policy.packing import PACKED_ATTENTION
from tasks.policy.scorer import Scorer
from tasks.progress import bar
from tasks.rollout.step import sample
from tasks.rollout.transformers_engine import TransformersEngine
from tasks.settings import OptimizeSettings, RolloutSettings, VerifySettings
from tasks.verify.step import Tally, verdict_rows
from tasks.verify.verifier import Verifier, check_failures


def train_alternating(
    store: Store,
    rollout: RolloutSettings,
    verify: VerifySettings,
    optimize: OptimizeSettings,
    updates_per_rollout: int,
    reference: ArtifactRef,
    policy: ArtifactRef,
    prompts: Sequence[ArtifactRef],
    stage: int,
    seed: int,
) -> ArtifactRef:
    """Consumes a stage's prompts in the order that ``optimize_stage`` would, with a refresh every mu updates.

    With mu equal to the stage's updates it makes the same updates as generate, verify and optimize one after the other.

    Args:
        store: of all artifacts.
        rollout: how to sample.
        verify: the verifier's.
        optimize: of the updates.
        updates_per_rollout: mu; divides the updates of the stage.
        reference: the run's base policy; read by an objective with a KL to it.
        policy: to start from.
        prompts: the stage's shards.
        stage: counts from 0.
        seed: the run's.

    Returns:
        The next policy; its parents are the rollouts and verdicts of all refreshes.
    """
    settings = {
        **optimize.model_dump(mode="json"),
        "updates_per_rollout": updates_per_rollout,
        "rollout": rollout.model_dump(mode="json"),
        "verify": verify.model_dump(mode="json"),
    }
    parents: Mapping[str, Any] = {"policy": policy, "prompts": prompts, **reference_parent(optimize, reference)}
    with store.write("policy", settings=settings, parents=parents, seed=seed) as draft:
        with draft.phase("load"):
            folder = store.path(policy)
            rows = [row for shard in prompts for row in read_table(store.path(shard) / "prompts.parquet").to_pylist()]
            refreshes = _refreshes(rows, rollout, optimize, updates_per_rollout, (seed, stage))
            loop = _Loop(folder, rollout, verify, optimize, policy.digest, stage, seed, draft)
            loop.reference = load_reference(store, optimize, reference)
        with (
            store.write("verdicts", settings=verify, parents={}, seed=seed) as judged,
            table_writer(judged.path / "verdicts.parquet", VERDICTS) as add_verdicts,
            loop.verifier,
        ):
            with (
                store.write("rollouts", settings=rollout, parents=parents, seed=seed) as rolled,
                table_writer(rolled.path / "rollouts.parquet", ROLLOUTS) as add_rollouts,
                bar(f"stage {stage + 1} alternate", len(refreshes)) as progress,
            ):
                for refresh in refreshes:
                    rollouts, verdicts = loop.refresh(refresh)
                    add_rollouts(rollouts)
                    add_verdicts(verdicts)
                    progress.advance(note=f"reward {loop.outcomes[-1].rows[-1]['reward']:.3f}")
            judged.parents["rollouts"] = [rolled.ref]
            if not any(outcome.teaches for outcome in loop.outcomes):
                groups = sum(outcome.groups for outcome in loop.outcomes)
                raise nothing_to_learn(
                    groups, len(refreshes) * updates_per_rollout, loop.tally.facts()["reward"] or 0.0
                )
            judged.facts.update(loop.tally.facts())
        draft.parents.update(rollouts=[rolled.ref], verdicts=judged.ref)
        save(draft, loop.trainer, loop.scorer, folder, optimize, loop.outcomes, stage, updates_per_rollout)
    return draft.ref


class _Loop:
    """One model that generates and learns in turn."""

    def __init__(
        self,
        folder: Path,
        rollout: RolloutSettings,
        verify: VerifySettings,
        optimize: OptimizeSettings,
        policy_digest: str,
        stage: int,
        seed: int,
        draft: Draft,
    ) -> None:
        self.trainer, self.scorer = load_trainer(folder, optimize, rollout.max_new_tokens, seed)
        self.verifier = Verifier(verify)
        self.outcomes: list[Outcome] = []
        self.tally = Tally()
        self.reference: Scorer | None = None
        self._tokenizer = load_tokenizer(folder)
        self._engine = TransformersEngine(self.scorer.model, stop_token_ids(folder), rollout.batch_size)
        self._rollout, self._verify, self._optimize = rollout, verify, optimize
        self._policy_digest, self._stage, self._seed, self._draft = policy_digest, stage, seed, draft

    def refresh(self, prompts: list[dict[str, Any]]) -> tuple[pa.Table, pa.Table]:
        """Generates, verifies, and makes the updates of one refresh; returns its rollouts and verdicts."""
        with self._draft.phase("switch"):
            self.scorer.model.set_attn_implementation("sdpa")
        with self._draft.phase("generate"):
            name = f"{self._policy_digest}+{self.trainer.updates}"
            sampled = sample(self._engine, self._tokenizer, self._rollout, prompts, name, self._stage, self._seed)
            rollouts = to_table(sampled, ROLLOUTS)
        with self._draft.phase("verify"):
            verdicts = self.verifier.verify([(row["answer"], row["response"]) for row in sampled])
            check_failures(verdicts, self._verify, [row["prompt_id"] for row in sampled])
            judged = to_table(verdict_rows(sampled, verdicts), VERDICTS)
            self.tally.add(sampled, verdicts)
        with self._draft.phase("switch"):
            self.scorer.model.set_attn_implementation(PACKED_ATTENTION)
            responses = collect([rollouts], judged, self._rollout.responses_per_prompt)
        rows = np.arange(len(sampled)).reshape(-1, self._optimize.responses_per_update)
        self.outcomes.append(
            self.trainer.train(
                responses, list(rows), self._stage, self._draft.phase, self.reference, part_of_stage=True
            )
        )
        return rollouts, judged


def _refreshes(
    rows: list[dict[str, Any]],
    rollout: RolloutSettings,
    optimize: OptimizeSettings,
    updates_per_rollout: int,
    seed: Sequence[int],
) -> list[list[dict[str, Any]]]:
    """The prompts of every refresh, in the order in which their groups are consumed."""
    batches = updates_per_rollout // optimize.objective.schedule.updates_per_batch
    groups = optimize.responses_per_update * batches // rollout.responses_per_prompt
    if not groups or len(rows) % groups:
        raise SettingsError(
            f"updates_per_rollout: {updates_per_rollout} takes {groups} prompts per refresh, which does not divide the "
            f"{len(rows)} prompts of a stage."
        )
    ordered = [rows[place] for place in group_order(len(rows), seed)]
    return [ordered[start : start + groups] for start in range(0, len(rows), groups)]
