"""The advantages that a stored policy learned from, computed again from its rollouts and verdicts."""

from itertools import groupby

import numpy as np
import pyarrow as pa

from tasks.errors import DataError, SettingsError
from tasks.settings import OptimizeSettings
from tasks.store.records import Manifest

_NAMES = ["prompt_id", "sample_index"]


def stored_settings(policy: Manifest) -> OptimizeSettings | None:
    """Return the settings of the updates that made a policy; None when this code does not know them."""
    own = {name: value for name, value in policy.settings.items() if name in OptimizeSettings.model_fields}
    try:
        return OptimizeSettings.parse(own)
    except SettingsError:
        return None


def over_batch(settings: OptimizeSettings) -> bool:
    """Return True if an advantage depends on more than its own group."""
    return settings.objective.advantage.scale == "batch_std" or settings.objective.data.balance_negatives


def check_order(rollouts: pa.Table, verdicts: pa.Table) -> None:
    """Raise DataError if two tables name different responses, or in another order."""
    names, judged = (table.select(_NAMES).to_pylist() for table in (rollouts, verdicts))
    if names != judged:
        raise DataError(
            f"verdicts name {len(judged)} responses and rollouts {len(names)}, or in another order: verify again."
        )


def advantages(
    rollouts: pa.Table,
    verdicts: pa.Table,
    settings: OptimizeSettings,
    policy: Manifest,
    made: Manifest,
    updates: int,
) -> list[float | None]:
    """Return the advantage of every response; None for a response that takes no part in the updates.

    The trainer may leave out more: responses whose log-probabilities by the trainer are not finite.

    Args:
        rollouts: rows of a stage, or of whole groups of it.
        verdicts: verdicts on these rows, in the same order.
        settings: settings of the updates.
        policy: manifest of the policy that learned from them.
        made: manifest of a shard.
        updates: number of updates before the stage.

    Raises:
        DataError: the tables name different responses, or a group is not whole.
    """
    from tasks.train.advantages import select  # torch takes seconds to load.
    from tasks.train.batches import collect
    from tasks.train.scoring import finite_responses

    found: list[float | None] = []
    start = 0
    # An alternating stage has a policy for every refresh, named "digest+updates", and each learns by itself.
    for sampler, rows in groupby(rollouts["policy"].to_pylist()):
        count = sum(1 for _ in rows)
        part = rollouts.slice(start, count)
        judged = verdicts.slice(start, count)
        start += count
        responses = collect([part], [judged], made.settings["responses_per_prompt"])
        before = int(sampler.partition("+")[2] or updates)
        selection = select(
            responses,
            settings,
            made.settings["max_new_tokens"],
            ~finite_responses(np.asarray(responses.engine_logp.flat, dtype=np.float32), responses),
            (policy.seed, policy.facts["stage"] - 1, before),
        )
        pairs = zip(selection.advantage_R.tolist(), selection.takes_part_R.tolist(), strict=True)
        found += [advantage if takes_part else None for advantage, takes_part in pairs]
    return found
