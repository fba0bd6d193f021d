"""Generate, verify and train in one process, or in each of several, on the same devices: any preset at any mu.

Each of several processes has an engine, which generates its share of a refresh's responses, and all of them train on
all responses together.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from torch import Tensor

from tasks.errors import SettingsError
from tasks.interruption import heeding
from tasks.models.loading import load_tokenizer
from tasks.models.lora import merged
from tasks.progress import bar
from tasks.resident import release
from tasks.rollout.engine import load_engine
from tasks.rollout.step import RolloutCounts, sample, timed_calls
from tasks.settings import OperationSettings, OptimizeSettings, RolloutSettings, VerifySettings
from tasks.store import ArtifactRef, Store
from tasks.store.layout import PROMPTS_FILE, ROLLOUTS_FILE, VERDICTS_FILE
from tasks.store.progress import Progress
from tasks.store.tables import (
    ROLLOUTS,
    VERDICTS,
    read_table,
    rollouts_schema,
    save_table,
    table_writer,
    to_table,
)
from tasks.tracking import shown
from tasks.train import distributed
from tasks.train.batches import Ints, Responses, collect, group_order
from tasks.train.checkpoint import Resume
from tasks.train.stage import base_policy, load_trainer, make_updates, reference_parent, save, start_of
from tasks.train.trainer import Phase
from tasks.verify.pool import check_failures, shared_verifier
from tasks.verify.step import Tally, pair, verdict_table

Prompt = Mapping[str, Any]
"""A row of the prompts table."""
_REFRESH = "refresh"


@heeding
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
    operation: OperationSettings = OperationSettings(),  # noqa: B008 - settings are immutable
) -> ArtifactRef:
    """Consume a stage's prompts in the order in which ``optimize_stage`` does, with a refresh every mu updates.

    With mu, ``updates_per_rollout``, equal to the stage's updates it makes the same updates as generate, verify and
    optimize one after the other. Several processes may do it together, each with an engine of its own on its own
    device; the leader writes. ``reference`` is the run's base policy, ``prompts`` are the stage's shards, and stages
    count from 0.

    Returns:
        The next policy; its parents are the rollouts and verdicts of all refreshes.

    Raises:
        DataError: too many responses are missing.
        GateError: the verifier could not tell too often, or see ``Trainer.train``.
        Interrupted: SIGTERM came, and the state is saved.
    """
    settings = {
        **optimize.model_dump(mode="json"),
        "updates_per_rollout": updates_per_rollout,
        "rollout": rollout.model_dump(mode="json"),
        "verify": verify.model_dump(mode="json"),
    }
    parents: dict[str, Any] = {"policy": policy, "prompts": prompts, **reference_parent(optimize, reference)}
    part = f"stage {stage + 1} alternate"
    with store.write("policy", settings=settings, parents=parents, seed=seed) as draft:
        with draft.phase("load"):
            sources = (reference, policy, prompts, stage, seed)
            loop = Colocated(
                store, rollout, verify, optimize, updates_per_rollout, *sources, draft.phase, store.progress
            )
        with (
            shown(operation.tracker, store, part, settings) as show,
            store.write("verdicts", settings=verify, parents={}, seed=seed) as judged,
            table_writer(judged.path / VERDICTS_FILE, VERDICTS) as add_verdicts,
            closing(loop),
        ):
            with (
                store.write("rollouts", settings=rollout, parents=parents, seed=seed) as rolled,
                table_writer(rolled.path / ROLLOUTS_FILE, rollouts_schema(rollout.max_new_tokens)) as add_rollouts,
                bar(part, len(loop.refreshes)) as progress,
            ):

                def refresh(number: int) -> tuple[Responses, Sequence[Ints]]:
                    progress.reach(number)
                    rollouts, verdicts = loop.refresh(number)
                    add_rollouts(rollouts)
                    add_verdicts(verdicts)
                    return loop.batches(rollouts, verdicts)

                outcome = make_updates(
                    loop.trainer,
                    refresh,
                    refreshes=len(loop.refreshes),
                    updates_per_rollout=updates_per_rollout,
                    responses=loop.responses,
                    stage=stage,
                    phase=draft.phase,
                    after_update=partial(show, "optimize"),
                    resume=Resume(store.progress, operation),
                    kept=loop.kept,
                )
                rolled.facts.update(
                    **timed_calls(loop.call_seconds, distributed.gather(loop.engine.work)),
                    **loop.counts.facts(part),
                )
            judged.parents["rollouts"] = [rolled.ref]
            judged.facts.update(loop.tally.facts())
        draft.parents.update(rollouts=[rolled.ref], verdicts=judged.ref)
        save(draft, loop.trainer, loop.start, outcome, stage, updates_per_rollout)
    return draft.ref


class Colocated:
    """An engine that generates and a trainer that learns, in turn, on the same devices, until it is closed.

    The arguments are those of ``train_alternating``; ``phase`` times the phases of a refresh, and ``progress`` keeps
    its rollouts and verdicts.

    Raises:
        SettingsError: refreshes do not divide the prompts.
    """

    def __init__(
        self,
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
        phase: Phase,
        progress: Progress | None = None,
    ) -> None:
        rows = [row for path in store.paths(prompts) for row in read_table(path / PROMPTS_FILE).to_pylist()]
        self.refreshes = plan_refreshes(rows, rollout, optimize, updates_per_rollout, (seed, stage))
        """The prompts of every refresh."""
        self.responses = len(rows) * rollout.responses_per_prompt
        """Responses of the whole stage."""
        folder, base = store.path(policy), base_policy(store, optimize, reference)
        self.start = start_of(optimize, folder, base)
        """The folder whose weights are loaded."""
        release()
        self.tokenizer = load_tokenizer(folder)
        # First the engine: vLLM looks at how much of a GPU's memory is free.
        self.engine = load_engine(folder, rollout.engine, takes_turns=True)
        with ExitStack() as stack:
            stack.callback(self.engine.close)
            self.engine.rest()
            self.trainer = load_trainer(folder, optimize, rollout.max_new_tokens, seed, base)
            workers = -(-verify.workers // distributed.world_size())
            self.verifier = shared_verifier(verify.model_copy(update={"workers": workers}))
            self.call_seconds: list[float | None] = []
            """Seconds of generation of every refresh; None where its responses were found."""
            self.tally = Tally()
            self.counts = RolloutCounts(self.tokenizer, folder, rollout, rows, self.engine.context_tokens)
            self._rollout, self._verify, self._optimize = rollout, verify, optimize
            self._policy_digest, self._stage, self._seed, self._phase = policy.digest, stage, seed, phase
            self._progress = progress
            stack.pop_all()

    def close(self) -> None:
        """Release the engine."""
        self.engine.close()

    def to_generation(self) -> None:
        """Wake the engine, with the weights as they are now."""
        with self._phase("switch"):
            backend, lora = self.trainer.backend, self._optimize.lora
            weights: Iterable[tuple[str, Tensor]] = backend.weights()
            if lora is not None:
                weights = merged(backend.frozen(), dict(weights), lora)
            self.engine.update_weights(weights)

    def to_training(self) -> None:
        """Let the engine rest, so that the trainer has the memory."""
        with self._phase("switch"):
            self.engine.rest()

    def kept(self, refreshes: int) -> bool:
        """Return whether the tables of the first refreshes were kept."""
        return all(self._find(number) is not None for number in range(refreshes))

    def refresh(self, number: int) -> tuple[pa.Table, pa.Table]:
        """Return rollouts and verdicts of a refresh, which are made unless they were kept.

        Raises:
            DataError: more responses of the stage are missing than ``rollout.max_missing_share`` allows.
            GateError: the verifier could not tell too often.
        """
        if (folder := self._find(number)) is not None:
            rollouts, verdicts = read_table(folder / ROLLOUTS_FILE), read_table(folder / VERDICTS_FILE)
            self.call_seconds.append(None)
        else:
            rollouts, verdicts = self._generate(self.refreshes[number])
        self.count(rollouts, verdicts)
        if self._progress is not None and folder is None:

            def fill(into: Path) -> None:
                save_table(into / ROLLOUTS_FILE, rollouts)
                save_table(into / VERDICTS_FILE, verdicts)

            self._progress.put(_REFRESH, number, fill)
        return rollouts, verdicts

    def _generate(self, prompts: Sequence[Prompt]) -> tuple[pa.Table, pa.Table]:
        self.to_generation()
        with self._phase("generate"):
            began = time.perf_counter()
            name = f"{self._policy_digest}+{self.trainer.updates}"
            places = np.array_split(np.arange(len(prompts)), distributed.world_size())[distributed.rank()]
            own = [prompts[place] for place in places]
            sampled = sample(
                self.engine, self.tokenizer, self._rollout, own, name, self._stage, self._seed, unfit=self.counts.unfit
            )
            rollouts = _gathered(to_table(sampled, ROLLOUTS))
            self.call_seconds.append(time.perf_counter() - began)
        with self._phase("verify"):
            judged = self.verifier.verify([pair(row) for row in sampled])
            verdicts = _gathered(verdict_table(sampled, judged))
        self.to_training()
        return rollouts, verdicts

    def batches(self, rollouts: pa.Table, verdicts: pa.Table) -> tuple[Responses, Sequence[Ints]]:
        """Return the responses of a refresh and the rows of its batches, which follow each other."""
        with self._phase("switch"):
            responses = collect([rollouts], [verdicts], self._rollout.responses_per_prompt)
        return responses, list(np.arange(rollouts.num_rows).reshape(-1, self._optimize.responses_per_update))

    def count(self, rollouts: pa.Table, verdicts: pa.Table) -> None:
        """Count the tables of a refresh, and check the limits of the stage.

        Raises:
            DataError: too many of the stage's responses are missing.
            GateError: the verifier could not tell of too many.
        """
        self.tally.add_rollouts(rollouts)
        self.tally.add_verdicts(verdicts)
        check_failures(self.tally.failed, self._verify, self.responses)
        self.counts.add(rollouts)

    def _find(self, number: int) -> Path | None:
        progress = self._progress
        if progress is None:
            return None
        return distributed.find_on_all_ranks(_REFRESH, number, lambda: progress.get(_REFRESH, number))


def plan_refreshes(
    rows: Sequence[Prompt],
    rollout: RolloutSettings,
    optimize: OptimizeSettings,
    updates_per_rollout: int,
    seed: Sequence[int],
) -> list[list[Prompt]]:
    """Return the prompts of every refresh, in the order in which their groups are consumed.

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


def _gathered(table: pa.Table) -> pa.Table:
    return pa.concat_tables(distributed.gather(table)).combine_chunks()
