"""Train a policy for a stage: load it, make the updates, save the next policy."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa

from tasks.errors import DataError
from tasks.models.fitting import fitting_scorer
from tasks.models.loading import OPTIMIZER, enough_memory, load_model, weight_names
from tasks.models.lora import ADAPTER, add_adapters, check_merges, load_adapters
from tasks.process.interruption import save_on_sigterm
from tasks.process.resident import release
from tasks.settings import OperationSettings, OptimizeSettings
from tasks.store import ArtifactRef, Draft, Parents, Store
from tasks.store.files import staging_folder
from tasks.store.layout import EXAMPLES_FILE, METRICS_FILE, ROLLOUTS_FILE, VERDICTS_FILE
from tasks.store.tables import EXAMPLES, RESPONSE, stream_table, write_table
from tasks.tracking import open_tracker
from tasks.train import distributed
from tasks.train.backend import convert_parameters, open_backend, trainable
from tasks.train.batches import Ints, Responses, collect, plan_batches
from tasks.train.checkpoint import Checkpoints, load_optimizer, save_optimizer, save_policy
from tasks.train.results import StageResults, metrics_schema
from tasks.train.trainer import Trainer

_OUT_OF_MEMORY_FIX = (
    "Lower optimize.tokens_per_micro_batch or optimize.logp_chunk_tokens, set optimize.backend.gradient_checkpointing, "
    "or share the state over more processes (optimize.backend)."
)
_SAMPLED = [*RESPONSE, "prompt_token_ids", "response_token_ids", "engine_logp", "finish_reason", "policy"]
NextRefresh = Callable[[int], tuple[Responses, Sequence[Ints]]]
"""A function from the number of a refresh, from 0, to its responses and the rows of its batches."""


@save_on_sigterm
def optimize_stage(
    store: Store,
    settings: OptimizeSettings,
    reference: ArtifactRef,
    policy: ArtifactRef,
    rollouts: Sequence[ArtifactRef],
    verdicts: ArtifactRef,
    stage: int,
    seed: int,
    operation: OperationSettings = OperationSettings(),
) -> ArtifactRef:
    """Train on all responses of a stage, in batches of ``responses_per_update``.

    The rollouts are shards that the policy sampled, with verdicts in their order. The run's base policy is the
    reference of a KL to it. The order of the updates depends on the seed and the stage, which counts from 0.

    Returns:
        The next policy: a Hugging Face folder with the optimizer's state, metrics.parquet with a row per update, and
        examples.parquet with the tokens of some responses.

    Raises:
        DataError: the rollouts are not of this policy, or do not fit the verdicts or the batch size.
        GateError: see ``Trainer.train``.
        Interrupted: SIGTERM came, and the state is saved.
        SettingsError: the trainer cannot be loaded (see ``load_trainer``), or there is not enough memory.
    """
    base_parent = reference_parent(settings, reference)
    parents: Parents = {"policy": policy, "rollouts": rollouts, "verdicts": verdicts, **base_parent}
    title = f"stage {stage + 1} optimize"
    with (
        staging_folder(store.root) as scratch,
        store.write("policy", settings=settings, parents=parents, seed=seed) as draft,
        open_tracker(operation.tracker, store, title, settings.model_dump(mode="json")) as show,
    ):
        with draft.phase("load"):
            max_new_tokens = store.manifest(rollouts[0]).settings["max_new_tokens"]
            responses = stage_responses(store, policy, rollouts, verdicts, scratch)
            folder, base = store.path(policy), base_policy(store, settings, reference)
            trainer = load_trainer(folder, settings, max_new_tokens, seed, base)
        trainer.phase, trainer.after_update = draft.phase, partial(show, "optimize")
        trainer.checkpoints = Checkpoints(store.progress, operation)
        batches = plan_batches(responses, settings.responses_per_update, (seed, stage))
        updates = len(batches) * settings.objective.schedule.updates_per_batch
        results = make_updates(trainer, stage, lambda _: (responses, batches), 1, updates, len(responses.group_R))
        save_stage(draft, trainer, start_folder(settings, folder, base), results, stage, updates)
    return draft.ref


def make_updates(
    trainer: Trainer,
    stage: int,
    next_refresh: NextRefresh,
    refreshes: int,
    updates_per_rollout: int,
    responses_per_stage: int,
    rollouts_are_stored: Callable[[int], bool] = lambda _: True,
) -> StageResults:
    """Make all updates of a stage, with new rollouts every ``updates_per_rollout`` updates.

    The staged workflow has one refresh; GRPO at mu = 4 has one for every four updates. ``next_refresh`` is called for
    each refresh after the updates on the one before. An interrupted stage continues from the newest checkpoint, if
    ``rollouts_are_stored`` still finds the rollouts of the first n refreshes, which it used.

    Raises:
        SettingsError: there is not enough memory. See ``Trainer.train`` for the others.
    """
    results = StageResults(responses_per_stage, refreshes * updates_per_rollout)

    def can_continue(done: int) -> bool:
        return rollouts_are_stored(-(-done // updates_per_rollout))

    if trainer.checkpoints and (state := trainer.checkpoints.restore(trainer.backend, can_continue)):
        trainer.updates, results = state
        for row in results.rows:
            trainer.after_update(row)
    for number in range(refreshes):
        responses, batches = next_refresh(number)
        if len(results.rows) < (number + 1) * updates_per_rollout:
            with enough_memory("optimize", _OUT_OF_MEMORY_FIX):
                trainer.train(responses, batches, stage, results)
    return results


def stage_responses(
    store: Store, policy: ArtifactRef, rollouts: Sequence[ArtifactRef], verdicts: ArtifactRef, scratch: Path
) -> Responses:
    """Read a stage's responses, with columns on the disk of ``scratch``; see ``optimize_stage`` for errors."""

    def sampled() -> Iterator[pa.Table]:
        for shard, folder in zip(rollouts, store.paths(rollouts), strict=True):
            for table in stream_table(folder / ROLLOUTS_FILE, _SAMPLED):
                for other in set(table["policy"].unique().to_pylist()) - {policy.digest}:
                    raise DataError(
                        f"{shard}: sampled by policy {other[:16]}, but policy {policy.digest[:16]} is to be optimised. "
                        "Generate again."
                    )
                yield table

    judged = stream_table(store.path(verdicts) / VERDICTS_FILE, [*RESPONSE, "reward"])
    return collect(sampled(), judged, store.manifest(rollouts[0]).settings["responses_per_prompt"], scratch)


def reference_parent(settings: OptimizeSettings, reference: ArtifactRef) -> dict[str, ArtifactRef]:
    """Return the base policy as a parent, where the objective or adapters need it."""
    return {"reference": reference} if settings.objective.needs_reference or settings.lora else {}


def base_policy(store: Store, settings: OptimizeSettings, reference: ArtifactRef) -> Path | None:
    """Return the folder of the base policy, where it is a parent; see ``reference_parent``."""
    return store.path(reference, without=OPTIMIZER) if reference_parent(settings, reference) else None


def start_folder(settings: OptimizeSettings, folder: Path, base: Path | None) -> Path:
    """Return the folder whose weights are loaded: the policy's own, or the base policy's where adapters are trained."""
    return base if base and settings.lora else folder


def load_trainer(
    folder: Path, settings: OptimizeSettings, max_response_tokens: int, seed: int, base: Path | None = None
) -> Trainer:
    """Make the trainer of a policy folder, with the optimizer's state when the policy has one.

    An engine that this process still holds is closed, because its memory is needed. ``base`` is the base policy, for
    an objective with a KL to it, and for adapters, which are trained beside its weights.

    Raises:
        ArtifactError: the policy's adapters or moments do not fit the settings or the model.
        DataError: adapters do not fit the policy (see ``check_merges`` too), or the model cannot be scored.
        SettingsError: see ``load_model``, ``add_adapters`` and ``open_backend``.
    """
    release()
    # DeepSpeed moves to its GPU only what stays there: in bfloat16 its own partition of the fp32 weights.
    to_device = "cpu" if settings.backend.kind == "deepspeed" else None
    start = start_folder(settings, folder, base)
    model = load_model(start, to_device=to_device)
    if settings.lora is not None:
        add_adapters(model, settings.lora, seed)
        check_merges(trainable(model), weight_names(start))
        if (folder / ADAPTER).is_dir():
            load_adapters(folder / ADAPTER, model, settings.lora)
        elif (folder / OPTIMIZER).is_dir():
            raise DataError(
                f"{folder}: all weights of this policy were trained, so optimize.lora cannot go on from it. Start from "
                "the base policy, or leave optimize.lora out."
            )
    elif (folder / ADAPTER).is_dir():
        raise DataError(
            f"{folder}: only adapters of this policy were trained, so training of all its weights cannot go on from "
            "it. Start from the base policy, or keep its optimize.lora."
        )
    with enough_memory("optimize", _OUT_OF_MEMORY_FIX):
        backend = open_backend(fitting_scorer(model, settings.logp_chunk_tokens), settings)
        updates = load_optimizer(folder, backend)
    reference = None
    if base and settings.objective.needs_reference:
        reference = fitting_scorer(load_model(base), settings.logp_chunk_tokens)
        # As the policy computes: otherwise equal weights would have a KL.
        convert_parameters(reference.model, settings.backend.dtype)
    return Trainer(backend, settings, max_response_tokens, seed, reference, updates)


def save_stage(
    draft: Draft, trainer: Trainer, previous: Path, results: StageResults, stage: int, updates_per_rollout: int
) -> None:
    """Write the policy, the optimizer's state, the diagnostics and the facts of a stage."""
    with draft.phase("save"):
        save_policy(draft.path, trainer.backend, previous, trainer.settings.lora)
        save_optimizer(draft.path, trainer.backend, trainer.updates)
        write_table(draft.path / METRICS_FILE, results.rows, metrics_schema(list(results.rows[0])))
        write_table(draft.path / EXAMPLES_FILE, results.examples, EXAMPLES)
    draft.facts.update(stage=stage + 1, updates=trainer.updates, preset=trainer.settings.preset)
    draft.facts.update(updates_per_rollout=updates_per_rollout, processes=distributed.world_size(), **results.facts())
