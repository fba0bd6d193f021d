"""A stage's worth of updates with new rollouts every few of them: GRPO at mu = 4, or any preset at any mu."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from tasks.alternate.gather import gathered_work
from tasks.alternate.loop import Loop, plan_refreshes
from tasks.alternate.states import States
from tasks.artifacts import ArtifactRef, Store
from tasks.artifacts.tables import VERDICTS, read_table, rollouts_schema, table_writer
from tasks.interruption import heeding
from tasks.optimize.examples import noted_updates
from tasks.optimize.outcome import nothing_to_learn
from tasks.optimize.resume import Resume
from tasks.optimize.step import load_reference, reference_parent, save, start_of
from tasks.progress import bar
from tasks.rollout.step import timed_calls
from tasks.settings import OperationSettings, OptimizeSettings, RolloutSettings, VerifySettings
from tasks.tracking.journal import shown


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
    """Consumes a stage's prompts in the order that ``optimize_stage`` would, with a refresh every mu updates.

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
            loop = Loop(folder, rollout, verify, optimize, policy.digest, rows, stage, seed, draft.phase, start, base)
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
