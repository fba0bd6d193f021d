"""Alternate generation, verification and training on the same devices: any preset at any mu.

With several processes each has an engine, which generates its share of a refresh's responses; all of them together
train on all responses.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.models.loading import load_tokenizer
from tasks.models.lora import merge_adapters
from tasks.process.interruption import save_on_sigterm
from tasks.process.logs import bar
from tasks.process.resident import release
from tasks.rollout.engine import load_engine
from tasks.rollout.step import RolloutCounts, sample
from tasks.settings import OperationSettings, OptimizeSettings, RolloutSettings, VerifySettings
from tasks.store import ArtifactRef, Store
from tasks.store.layout import PROMPTS_FILE, ROLLOUTS_FILE, VERDICTS_FILE
from tasks.store.tables import ROLLOUTS, VERDICTS, read_table, rollouts_schema, save_table, table_writer, to_table
from tasks.tracking import open_tracker
from tasks.train import distributed
from tasks.train.batches import Ints, Responses, collect, group_order
from tasks.train.checkpoint import Checkpoints
from tasks.train.results import Row, StageResults
from tasks.train.stage import base_policy, load_trainer, make_updates, reference_parent, save_stage, start_folder
from tasks.train.trainer import TimePhase
from tasks.verify.pool import check_failures, shared_verifier
from tasks.verify.step import Tally, verdict_table, verifier_input

Prompt = Mapping[str, Any]
"""A row of the prompts table."""
_REFRESH = "refresh"


@save_on_sigterm
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
    operation: OperationSettings = OperationSettings(),
) -> ArtifactRef:
    """Train for a stage, and sample new rollouts every mu updates.

    The prompts are consumed in the same order as by ``optimize_stage``. With mu, ``updates_per_rollout``, equal to the
    stage's updates it makes the same updates as generate, verify and optimize one after the other. Several processes
    may do it together, each with an engine of its own on its own device; the leader writes. ``reference`` is the run's
    base policy, ``prompts`` are the stage's shards, and stages count from 0.

    Returns:
        The next policy; its parents are the rollouts and verdicts of all refreshes.

    Raises:
        DataError: too many responses are missing.
        GateError: the verifier could not judge too many responses, or see ``Trainer.train``.
        Interrupted: SIGTERM came, and the state is saved.
        SettingsError: the engine or the trainer cannot be loaded, or there is not enough memory.
    """
    settings = {
        **optimize.model_dump(mode="json"),
        "updates_per_rollout": updates_per_rollout,
        "rollout": rollout.model_dump(mode="json"),
        "verify": verify.model_dump(mode="json"),
    }
    parents: dict[str, Any] = {"policy": policy, "prompts": prompts, **reference_parent(optimize, reference)}
    title = f"stage {stage + 1} alternate"
    with store.write("policy", settings=settings, parents=parents, seed=seed) as draft:
        with draft.phase("load"):
            inputs = (rollout, verify, optimize, updates_per_rollout, reference, policy, prompts, stage, seed)
            loop = Colocated(store, *inputs, draft.phase, operation)
        with (
            open_tracker(operation.tracker, store, title, settings) as show,
            store.write("verdicts", settings=verify, parents={}, seed=seed) as judged,
            table_writer(judged.path / VERDICTS_FILE, VERDICTS) as add_verdicts,
            closing(loop.engine),
        ):
            with draft.phase("start"):
                loop.verifier.start()
            with (
                store.write("rollouts", settings=rollout, parents=parents, seed=seed) as generated,
                table_writer(generated.path / ROLLOUTS_FILE, rollouts_schema(rollout.max_new_tokens)) as add_rollouts,
                bar(title, len(loop.refreshes)) as progress,
            ):

                def on_refresh(rollouts: pa.Table, verdicts: pa.Table) -> None:
                    add_rollouts(rollouts)
                    add_verdicts(verdicts)
                    progress.advance()

                results = loop.train(partial(show, "optimize"), on_refresh)
                work = distributed.all_gather(loop.engine.work)
                generated.facts.update(loop.counts.facts(title, loop.call_seconds, work))
            judged.parents["rollouts"] = [generated.ref]
            judged.facts.update(loop.tally.facts())
        draft.parents.update(rollouts=[generated.ref], verdicts=judged.ref)
        save_stage(draft, loop.trainer, loop.start, results, stage, updates_per_rollout)
    return draft.ref


@dataclass
class Colocated:
    """An engine, which the caller closes, and a trainer, which alternate on the same devices."""

    store: Store
    rollout: RolloutSettings
    verify: VerifySettings
    optimize: OptimizeSettings
    updates_per_rollout: int
    reference: ArtifactRef
    policy: ArtifactRef
    prompts: Sequence[ArtifactRef]
    stage: int
    seed: int
    phase: TimePhase = lambda _: nullcontext()
    """Times the phases of a refresh and of training."""
    operation: OperationSettings | None = None
    """Settings of checkpoints; with None nothing is saved, and an interrupted stage starts anew."""

    def __post_init__(self) -> None:
        """Plan the refreshes, and load the engine and the trainer. The workers of the verifier do not start yet."""
        rollout, optimize = self.rollout, self.optimize
        shards = self.store.paths(self.prompts)
        rows = [row for shard in shards for row in read_table(shard / PROMPTS_FILE).to_pylist()]
        self.refreshes = self._plan(rows)
        """The prompts of every refresh, in the order in which their groups are consumed."""
        folder, base = self.store.path(self.policy), base_policy(self.store, optimize, self.reference)
        self.start = start_folder(optimize, folder, base)
        """The folder whose weights are loaded."""
        release()
        self.tokenizer = load_tokenizer(folder)
        # First the engine: vLLM looks at how much of a GPU's memory is free.
        self.engine = load_engine(folder, rollout.engine, colocated=True)
        with ExitStack() as stack:
            stack.callback(self.engine.close)
            self.engine.rest()
            self.trainer = load_trainer(folder, optimize, rollout.max_new_tokens, self.seed, base)
            self.trainer.phase = self.phase
            if self.operation is not None:
                self.trainer.checkpoints = Checkpoints(self.store.progress, self.operation)
            workers = -(-self.verify.workers // distributed.world_size())
            self.verifier = shared_verifier(self.verify.model_copy(update={"workers": workers}))
            self.call_seconds: list[float | None] = []
            """Seconds of generation of every refresh; None where its responses were found."""
            self.tally = Tally()
            self.counts = RolloutCounts(self.tokenizer, folder, rollout, rows, self.engine.context_tokens)
            stack.pop_all()

    def _plan(self, rows: Sequence[Prompt]) -> list[list[Prompt]]:
        batches = self.updates_per_rollout // self.optimize.objective.schedule.updates_per_batch
        groups = self.optimize.responses_per_update * batches // self.rollout.responses_per_prompt
        ordered = [rows[index] for index in group_order(len(rows), (self.seed, self.stage))]
        return [ordered[start : start + groups] for start in range(0, len(rows), groups)]

    def train(
        self,
        after_update: Callable[[Row], None],
        on_refresh: Callable[[pa.Table, pa.Table], None] = lambda _rollouts, _verdicts: None,
    ) -> StageResults:
        """Make all updates of the stage, and pass ``on_refresh`` rollouts and verdicts before the updates on them."""

        def next_refresh(number: int) -> tuple[Responses, Sequence[Ints]]:
            rollouts, verdicts = self.refresh(number)
            on_refresh(rollouts, verdicts)
            with self.phase("switch"):
                responses = collect([rollouts], [verdicts], self.rollout.responses_per_prompt)
            return responses, list(np.arange(rollouts.num_rows).reshape(-1, self.optimize.responses_per_update))

        def rollouts_are_stored(refreshes: int) -> bool:
            return all(self._find(number) is not None for number in range(refreshes))

        self.trainer.after_update = after_update
        count, mu = len(self.refreshes), self.updates_per_rollout
        return make_updates(self.trainer, self.stage, next_refresh, count, mu, self.counts.total, rollouts_are_stored)

    def to_generation(self) -> None:
        """Wake the engine, and give it the weights of the current policy."""
        with self.phase("switch"):
            weights, frozen = self.trainer.backend.weights(), self.trainer.backend.frozen()
            lora = self.optimize.lora
            named = merge_adapters(frozen, dict(weights), lora) if lora is not None else chain(weights, frozen)
            self.engine.update_weights(named)

    def to_training(self) -> None:
        """Let the engine rest, so that the trainer has the memory."""
        with self.phase("switch"):
            self.engine.rest()

    def refresh(self, number: int) -> tuple[pa.Table, pa.Table]:
        """Return the rollouts and verdicts of a refresh, by the current policy; see ``count`` for errors."""
        if (folder := self._find(number)) is not None:
            rollouts, verdicts = read_table(folder / ROLLOUTS_FILE), read_table(folder / VERDICTS_FILE)
            self.call_seconds.append(None)
        else:
            rollouts, verdicts = self._generate(self.refreshes[number])
        self.count(rollouts, verdicts)
        if self.operation is not None and folder is None:

            def fill(into: Path) -> None:
                save_table(into / ROLLOUTS_FILE, rollouts)
                save_table(into / VERDICTS_FILE, verdicts)

            self.store.progress.put(_REFRESH, number, fill)
        return rollouts, verdicts

    def _generate(self, prompts: Sequence[Prompt]) -> tuple[pa.Table, pa.Table]:
        self.to_generation()
        with self.phase("generate"):
            began = time.perf_counter()
            name = f"{self.policy.digest}+{self.trainer.updates}"
            indices = np.array_split(np.arange(len(prompts)), distributed.world_size())[distributed.rank()]
            own = [prompts[index] for index in indices]
            ids = self.counts.token_ids
            sampled = sample(self.engine, self.tokenizer, self.rollout, own, ids, name, self.stage, self.seed)
            rollouts = _gather_table(to_table(sampled, ROLLOUTS))
            self.call_seconds.append(time.perf_counter() - began)
        with self.phase("verify"):
            judged = self.verifier.verify([verifier_input(row) for row in sampled])
            verdicts = _gather_table(verdict_table(sampled, judged))
        self.to_training()
        return rollouts, verdicts

    def count(self, rollouts: pa.Table, verdicts: pa.Table) -> None:
        """Count the tables of a refresh, and check the limits of the stage.

        Raises:
            DataError: too many of the stage's responses are missing.
            GateError: the verifier could not judge too many.
        """
        self.tally.add_rollouts(rollouts)
        self.tally.add_verdicts(verdicts)
        check_failures(self.tally.failed, self.verify, self.counts.total)
        self.counts.add(rollouts)

    def _find(self, number: int) -> Path | None:
        if self.operation is None:
            return None
        return distributed.find_on_all_ranks(_REFRESH, number, lambda: self.store.progress.get(_REFRESH, number))


def _gather_table(table: pa.Table) -> pa.Table:
    return pa.concat_tables(distributed.all_gather(table)).combine_chunks()
