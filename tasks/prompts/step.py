"""Which prompts a stage takes."""

from typing import Any

import numpy as np
import pyarrow as pa

from tasks.artifacts import ArtifactRef, Store
from tasks.artifacts.tables import read_table
from tasks.errors import DataError
from tasks.prompts.benchmarks import with_template, write_prompts
from tasks.settings import PromptsSettings


def prepare_stage(
    store: Store, settings: PromptsSettings, training: ArtifactRef, stage: int, seed: int
) -> list[ArtifactRef]:
    """The prompts of a stage, as one artifact per shard.

    Every pass over the training set is shuffled by ``seed`` and cut into whole stages, so that no prompt comes twice in
    a stage.

    Args:
        store: where the artifacts are.
        settings: the number of prompts per stage and shard, and what is written around each.
        training: the training set.
        stage: counts from 0.
        seed: the run's.

    Raises:
        DataError: the training set has fewer prompts than a stage takes.
    """
    table = _training_set(store, settings, training)
    count, there = settings.prompts_per_stage, table.num_rows
    epoch, place = divmod(stage, there // count)
    order = np.random.default_rng([seed, epoch]).permutation(there)[place * count : (place + 1) * count]
    chosen = with_template(table.take(order).to_pylist(), settings)
    size = settings.prompts_per_shard
    return [
        _write(store, settings, training, chosen[start : start + size], stage, seed) for start in range(0, count, size)
    ]


def check_stages(store: Store, settings: PromptsSettings, training: ArtifactRef) -> None:
    """Finds what keeps a training set from giving stages, before the steps in front of the first stage run.

    Raises:
        DataError: it has fewer prompts than a stage takes, or its prompts do not go with the template.
    """
    with_template(_training_set(store, settings, training).to_pylist(), settings)


def _training_set(store: Store, settings: PromptsSettings, training: ArtifactRef) -> pa.Table:
    table = read_table(store.path(training) / "training.parquet")
    count, there = settings.prompts_per_stage, table.num_rows
    if there < count:
        raise DataError(
            f"prompts.prompts_per_stage: {count}, but there are {there} training prompts; allowed: 1 to {there}."
        )
    return table


def _write(
    store: Store, settings: PromptsSettings, training: ArtifactRef, rows: list[dict[str, Any]], stage: int, seed: int
) -> ArtifactRef:
    with store.write("prompts", settings=settings, parents={"training_set": training}, seed=seed) as draft:
        write_prompts(draft.path, rows)
        draft.facts.update(stage=stage, prompts=len(rows))
    return draft.ref
