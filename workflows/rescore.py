"""A new verifier over the rollouts of a stored run. Nothing is generated, and nothing in the run changes.

pyflyte run workflows/rescore.py rescore --store runs/tiny-cpu --verify '{"deadline_seconds": 10}'
"""

from functools import partial

from flytekit import map_task, workflow

from tasks.settings import VerifySettings
from tasks.stored.rescored import RescoredRun
from tasks.stored.task import compare_verdicts, find_stages, open_store
from tasks.verify.task import verify as verify_rollouts


@workflow
def rescore(
    verify: VerifySettings = VerifySettings(),  # noqa: B008 - settings are immutable
    store: str = "runs",
    seed: int = 0,
    algorithm: str = "",
) -> RescoredRun:
    """Verdicts of a new verifier on every stage of a stored run, whatever their number."""
    opened = open_store(store=store)
    found = find_stages(store=opened, algorithm=algorithm, seed=seed)
    verify_each = partial(verify_rollouts, store=opened, settings=verify, seed=seed)
    after = map_task(verify_each)(rollouts=found.rollouts, stage=found.stages)
    return compare_verdicts(store=opened, before=found.verdicts, after=after)
