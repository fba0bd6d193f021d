"""Train on a stage's rollouts and verdicts: load, train, save the next policy."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from tasks.artifacts import ArtifactRef, Draft, Parents, Store
from tasks.artifacts.files import staged
from tasks.artifacts.tables import EXAMPLES, metrics_schema, stream_table, write_table
from tasks.errors import DataError
from tasks.interruption import heeding
from tasks.policy.fitting import fitting_scorer
from tasks.policy.loading import OPTIMIZER, load_model
from tasks.policy.lora import ADAPTER, add_adapters, load_adapters
from tasks.policy.memory import enough_memory
from tasks.policy.scorer import Scorer
from tasks.resident import release
from tasks.settings import OperationSettings, OptimizeSettings
from tasks.tracking.journal import shown
from tasks.train.backends import open_backend
from tasks.train.batches import Responses, collect, plan_batches
from tasks.train.checkpoint import Resume, load_optimizer, save_optimizer, save_policy
from tasks.train.examples import noted_updates
from tasks.train.outcome import Outcome
from tasks.train.trainer import Trainer

OUT_OF_MEMORY_FIX = (
    "Lower optimize.tokens_per_micro_batch or optimize.logp_chunk_tokens, set optimize.backend.gradient_checkpointing, "
    "or share the state over more processes (optimize.backend)."
)
_COLUMNS = [
    "prompt_id",
    "sample_index",
    "prompt_token_ids",
    "response_token_ids",
    "engine_logp",
    "finish_reason",
    "policy",
]
_JUDGED = ["prompt_id", "sample_index", "reward"]


@heeding
def optimize_stage(
    store: Store,
    settings: OptimizeSettings,
    reference: ArtifactRef,
    policy: ArtifactRef,
    rollouts: Sequence[ArtifactRef],
    verdicts: ArtifactRef,
    stage: int,
    seed: int,
    operation: OperationSettings = OperationSettings(),  # noqa: B008 - settings are immutable
) -> ArtifactRef:
    """Train on every response of a stage once, in updates of ``responses_per_update``.

    Args:
        store: of all artifacts.
        settings: of the step.
        reference: the run's base policy; read by an objective with a KL to it.
        policy: the one that sampled the rollouts.
        rollouts: the stage's shards.
        verdicts: on all of them, in their order.
        stage: counts from 0.
        seed: the run's; with the stage it determines the order of updates.
        operation: how often the state is saved, and where numbers are shown.

    Returns:
        The next policy: a Hugging Face folder with the optimizer's state, metrics.parquet with a row per update, and
        examples.parquet with the tokens of some responses.

    Raises:
        DataError: the rollouts are not of this policy, or do not fit the verdicts or the batch size.
        GateError: see ``Trainer.train``.
        Interrupted: SIGTERM came, and the state is saved.
    """
    used = reference_parent(settings, reference)
    parents: Parents = {"policy": policy, "rollouts": rollouts, "verdicts": verdicts, **used}
    part = f"stage {stage + 1} optimize"
    with (
        staged(store.root) as scratch,
        store.write("policy", settings=settings, parents=parents, seed=seed) as draft,
        shown(operation.tracker, store, part, settings.model_dump(mode="json")) as show,
    ):
        with draft.phase("load"):
            made = store.manifest(rollouts[0]).settings
            responses = stage_responses(store, policy, rollouts, verdicts, scratch)
            folder = store.path(policy)
            start = start_of(store, settings, reference, folder)
            trainer = load_trainer(folder, settings, made["max_new_tokens"], seed, start)
            base = load_reference(store, settings, reference)
        batches = plan_batches(responses, settings.responses_per_update, (seed, stage))
        resume = Resume(store.progress, operation)
        with enough_memory("optimize", OUT_OF_MEMORY_FIX):
            outcome = trainer.train(
                responses,
                batches,
                stage,
                draft.phase,
                base,
                after_update=partial(show, "optimize"),
                resume=resume,
                noted=noted_updates(len(batches) * settings.objective.schedule.updates_per_batch),
                scratch=scratch,
            )
        save(draft, trainer, start, settings, [outcome], stage, len(outcome.rows))
    return draft.ref


def stage_responses(
    store: Store, policy: ArtifactRef, rollouts: Sequence[ArtifactRef], verdicts: ArtifactRef, scratch: Path
) -> Responses:
    """Read a stage's responses; their columns are kept on the disk of ``scratch``.

    Raises:
        DataError: the rollouts are not of this policy, or do not fit the verdicts.
    """
    shards = zip(rollouts, store.paths(rollouts), strict=True)
    sampled = (table for shard, path in shards for table in _own(shard, path, policy))
    judged = stream_table(store.path(verdicts) / "verdicts.parquet", _JUDGED)
    return collect(sampled, judged, store.manifest(rollouts[0]).settings["responses_per_prompt"], scratch)


def reference_parent(settings: OptimizeSettings, reference: ArtifactRef) -> dict[str, ArtifactRef]:
    """Return the base policy as a parent, where the objective or adapters need it."""
    return {"reference": reference} if settings.objective.needs_reference or settings.lora else {}


def start_of(store: Store, settings: OptimizeSettings, reference: ArtifactRef, folder: Path) -> Path:
    """Return the folder whose weights are loaded: the policy's own, or the base policy's where adapters are trained."""
    return folder if settings.lora is None else store.path(reference, without=OPTIMIZER)


def load_reference(store: Store, settings: OptimizeSettings, reference: ArtifactRef) -> Scorer | None:
    """Load the base policy, where the objective needs it."""
    if not settings.objective.needs_reference:
        return None
    return fitting_scorer(load_model(store.path(reference, without=OPTIMIZER)), settings.logp_chunk_tokens)


def load_trainer(
    folder: Path, settings: OptimizeSettings, max_response_tokens: int, seed: int, start: Path | None = None
) -> Trainer:
    """Make the trainer of a policy folder, with the optimizer's state when the policy has one.

    Whatever this process still holds for generation is closed: its memory is needed.

    Args:
        folder: of the policy.
        settings: of the step.
        max_response_tokens: most tokens that a response can have.
        seed: the run's.
        start: the base policy, beside whose weights adapters are trained.

    Raises:
        DataError: adapters are to be trained beside weights that were trained themselves, or the model is of a kind
            that cannot be scored.
    """
    release()
    start = start or folder
    # DeepSpeed takes to its GPU what stays there: in bfloat16 its part alone of the fp32 weights.
    place = "cpu" if settings.backend.kind == "deepspeed" else None
    model = load_model(start, place=place)
    if settings.lora is not None:
        add_adapters(model, settings.lora, seed)
        if (folder / ADAPTER).is_dir():
            load_adapters(folder / ADAPTER, model)
        elif (folder / OPTIMIZER).is_dir():
            raise DataError(
                f"{folder}: all weights of this policy were trained, so optimize.lora cannot go on from it. Start from "
                "the base policy, or leave optimize.lora out."
            )
    scorer = fitting_scorer(model, settings.logp_chunk_tokens)
    trainer = Trainer(open_backend(scorer, settings), settings, max_response_tokens, seed)
    trainer.updates = load_optimizer(folder, trainer.backend)
    return trainer


def save(
    draft: Draft,
    trainer: Trainer,
    previous: Path,
    settings: OptimizeSettings,
    outcomes: Sequence[Outcome],
    stage: int,
    updates_per_rollout: int,
) -> None:
    """Write the policy, the optimizer's state, the diagnostics and the facts of a stage."""
    with draft.phase("save"):
        save_policy(draft.path, trainer.backend, previous, settings.lora)
        save_optimizer(draft.path, trainer.backend, trainer.updates)
        rows: list[dict[str, Any]] = [row for outcome in outcomes for row in outcome.rows]
        write_table(draft.path / "metrics.parquet", rows, metrics_schema(list(rows[0])))
        examples = [row for outcome in outcomes for row in outcome.examples]
        write_table(draft.path / "examples.parquet", examples, EXAMPLES)
    draft.facts.update(
        stage=stage + 1,
        updates=trainer.updates,
        preset=settings.preset,
        updates_per_rollout=updates_per_rollout,
        groups=sum(outcome.groups for outcome in outcomes),
        zero_variance_groups=sum(outcome.zero_variance_groups for outcome in outcomes),
        unscored=sum(outcome.unscored for outcome in outcomes),
        dropped=sum(outcome.dropped for outcome in outcomes),
        logp_mismatch=sum(outcome.logp_mismatch for outcome in outcomes) / len(outcomes),
        logp_mismatch_max=max(outcome.logp_mismatch_max for outcome in outcomes),
    )


def _own(shard: ArtifactRef, folder: Path, policy: ArtifactRef) -> Iterator[pa.Table]:
    for table in stream_table(folder / "rollouts.parquet", _COLUMNS):
        for digest in table["policy"].unique().to_pylist():
            if digest != policy.digest:
                raise DataError(
                    f"{shard}: sampled by policy {digest[:16]}, but policy {policy.digest[:16]} is to be optimised. "
                    "Generate again."
                )
        yield table
