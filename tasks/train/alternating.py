"""Train a stage with new rollouts every mu updates, in one task: GRPO at mu = 4, or any preset at any mu."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.artifacts import ArtifactRef, Store
from tasks.artifacts.tables import ROLLOUTS, VERDICTS, read_table, rollouts_schema, table_writer
from tasks.interruption import heeding
from tasks.progress import bar
from tasks.rollout.step import timed_calls
from tasks.settings import OperationSettings, OptimizeSettings, RolloutSettings, VerifySettings
from tasks.tracking.journal import shown
from tasks.train import distributed
from tasks.train.checkpoint import Resume
from tasks.train.colocated import Colocated, gathered_work, plan_refreshes
from tasks.train.examples import noted_updates
from tasks.train.outcome import nothing_to_learn
from tasks.train.stage import load_reference, reference_parent, save, start_of


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

    With mu equal to the stage's updates it makes the same updates as generate, verify and optimize one after the other.
    Several processes may do it together, each with an engine of its own on its own device; the leader writes.

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
        operation: how often the state is saved (at refreshes), and where numbers are shown.

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
    parents: Mapping[str, Any] = {"policy": policy, "prompts": prompts, **reference_parent(optimize, reference)}
    with store.write("policy", settings=settings, parents=parents, seed=seed) as draft:
        with draft.phase("load"):
            folder = store.path(policy)
            shards = store.paths(prompts)
            rows = [row for shard in shards for row in read_table(shard / "prompts.parquet").to_pylist()]
            refreshes = plan_refreshes(rows, rollout, optimize, updates_per_rollout, (seed, stage))
            start = start_of(store, optimize, reference, folder)
            base = partial(load_reference, store, optimize, reference)
            loop = Colocated(
                folder, rollout, verify, optimize, policy.digest, rows, stage, seed, draft.phase, start, base
            )
        part = f"stage {stage + 1} alternate"
        with (
            shown(operation.tracker, store, part, settings) as show,
            store.write("verdicts", settings=verify, parents={}, seed=seed) as judged,
            table_writer(judged.path / "verdicts.parquet", VERDICTS) as add_verdicts,
            loop,
        ):
            with (
                store.write("rollouts", settings=rollout, parents=parents, seed=seed) as rolled,
                table_writer(rolled.path / "rollouts.parquet", rollouts_schema(rollout.max_new_tokens)) as add_rollouts,
                bar(f"stage {stage + 1} alternate", len(refreshes)) as progress,
            ):
                states = States(Resume(store.progress, operation), loop, len(refreshes), updates_per_rollout)
                for rollouts, verdicts in states.restored():
                    add_rollouts(rollouts)
                    add_verdicts(verdicts)
                    progress.advance()
                for row in [row for outcome in loop.outcomes for row in outcome.rows]:
                    show("optimize", row)
                noted = noted_updates(len(refreshes) * updates_per_rollout)
                for number in range(states.refreshes, len(refreshes)):
                    own = [update - number * updates_per_rollout for update in noted]
                    rollouts, verdicts = loop.refresh(refreshes[number], partial(show, "optimize"), own)
                    add_rollouts(rollouts)
                    add_verdicts(verdicts)
                    progress.advance(note=f"reward {loop.outcomes[-1].rows[-1]['reward']:.3f}")
                    states.add(rollouts, verdicts)
                rolled.facts.update(
                    missing=loop.missing.responses,
                    missing_prompts=loop.missing.prompts,
                    **timed_calls(loop.call_seconds, gathered_work(loop.engine.work)),
                    **loop.limit.facts(part),
                )
            judged.parents["rollouts"] = [rolled.ref]
            if not any(outcome.teaches for outcome in loop.outcomes):
                groups = sum(outcome.groups for outcome in loop.outcomes)
                uniform = sum(outcome.zero_variance_groups for outcome in loop.outcomes)
                updates, reward = len(refreshes) * updates_per_rollout, loop.tally.facts()["reward"] or 0.0
                raise nothing_to_learn(groups, uniform, updates, reward)
            judged.facts.update(loop.tally.facts())
        draft.parents.update(rollouts=[rolled.ref], verdicts=judged.ref)
        save(draft, loop.trainer, start, optimize, loop.outcomes, stage, updates_per_rollout)
    return draft.ref


Tables = tuple[pa.Table, pa.Table]
_REFRESHES = "refreshes"
_ROLLOUTS, _VERDICTS = "rollouts.parquet", "verdicts.parquet"


class States:
    """Saves and restores a stage at refreshes: the trainer's state, and tables of the refreshes between two states."""

    def __init__(self, resume: Resume, loop: Colocated, refreshes: int, updates_per_rollout: int) -> None:
        self.refreshes = 0
        """Refreshes that the newest state includes."""
        self._resume, self._loop = resume, loop
        self._updates, self._total = updates_per_rollout, refreshes * updates_per_rollout
        self._unsaved: list[Tables] = []

    def restored(self) -> Iterator[Tables]:
        """Load the newest state, and give the tables of its refreshes, one after the other."""
        done = distributed.broadcast_int(self._resume.done() if distributed.rank() == 0 else 0) // self._updates
        folders = self._resume.load_on_all_ranks("tables of refresh", done, lambda: self._folders(done))
        if folders is None:
            self._resume.progress.clear()  # Some tables are damaged: the stage starts anew.
            return
        trainer = self._loop.trainer
        if state := self._resume.restore(trainer.backend):
            done, trainer.updates, self._loop.outcomes[:], _ = state
            self.refreshes = done // self._updates
        for folder in folders:
            rollouts, verdicts = pq.ParquetFile(folder / _ROLLOUTS), pq.ParquetFile(folder / _VERDICTS)
            for group in range(rollouts.num_row_groups):
                tables = rollouts.read_row_group(group), verdicts.read_row_group(group)
                self._loop.count(*tables)
                self._loop.call_seconds.append(None)
                yield tables

    def add(self, rollouts: pa.Table, verdicts: pa.Table) -> None:
        """Add the tables of a refresh, and save the state when that is due.

        Raises:
            Interrupted: a stop was asked for, and the state is saved.
        """
        self._unsaved.append((rollouts, verdicts))
        refreshes = self.refreshes + len(self._unsaved)
        if not self._resume.due(refreshes * self._updates, self._total, self.refreshes * self._updates):
            return

        def fill(folder: Path) -> None:
            with (
                table_writer(folder / _ROLLOUTS, ROLLOUTS) as add_rollouts,
                table_writer(folder / _VERDICTS, VERDICTS) as add_verdicts,
            ):
                for made, judged in self._unsaved:
                    add_rollouts(made)
                    add_verdicts(judged)

        self._resume.progress.put(_REFRESHES, self.refreshes, fill)
        self.refreshes, self._unsaved = refreshes, []
        trainer = self._loop.trainer
        self._resume.save(
            refreshes * self._updates,
            trainer.backend,
            trainer.updates,
            self._loop.outcomes,
            {},
        )

    def _folders(self, refreshes: int) -> list[Path] | None:
        """Return the parts with the tables of the first refreshes, a row group each; None when one is not whole."""
        folders, first = [], 0
        while first < refreshes:
            folder = self._resume.progress.get(_REFRESHES, first)
            if folder is None:
                return None
            folders.append(folder)
            first += int(pq.read_metadata(folder / _ROLLOUTS).num_row_groups)
        return folders
