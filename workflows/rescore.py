"""Workflow that judges a stored run's rollouts with a new verifier; it generates nothing and leaves the run unchanged.

pyflyte run workflows/rescore.py rescore --store runs/tiny-cpu --verify '{"deadline_seconds": 10}'
"""

from functools import partial

from flytekit import map_task

from tasks.flyte.decorators import named, workflow
from tasks.flyte.tasks import verify as verify_rollouts
from tasks.flyte.uncached import compare_verdicts, open_rescore
from tasks.report.summary import RescoredRun
from tasks.settings import VerifySettings


@workflow
def rescore(
    verify: VerifySettings = VerifySettings(),
    store: str = "runs",
    seed: int = 0,
    algorithm: str = "",
) -> RescoredRun:
    """Judge every stage of the latest finished run of an algorithm (any algorithm when empty) with a new verifier."""
    opened = named(open_rescore(store=store, verify=verify, seed=seed, algorithm=algorithm), "open-rescore")
    verify_stage = partial(verify_rollouts, inputs=opened.verify)
    verdicts = named(map_task(verify_stage)(rollouts=opened.rollouts, stage=opened.stages), "verify")
    return named(compare_verdicts(inputs=opened.verify, before=opened.verdicts, after=verdicts), "compare")
