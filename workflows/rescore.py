"""A new verifier over the rollouts of a stored run. Nothing is generated, and nothing in the run changes.

pyflyte run workflows/rescore.py rescore --store runs/tiny-cpu --verify '{"deadline_seconds": 10}'
"""

from flytekit import workflow
from flytekit.core.workflow import PythonFunctionWorkflow

from tasks.settings import VerifySettings
from tasks.stored.rescored import RescoredRun
from tasks.stored.task import compare_verdicts, find_stage, open_store
from tasks.verify.task import verify as verify_rollouts
from workflows.mu_grpo import STAGES


def staged(stages: int) -> PythonFunctionWorkflow:
    """The workflow for runs of another number of stages; ``rescore`` is for four."""

    def graph(
        verify: VerifySettings = VerifySettings(),  # noqa: B008 - settings are immutable
        store: str = "runs",
        seed: int = 0,
        algorithm: str = "",
    ) -> RescoredRun:
        opened = open_store(store=store)
        before, after = [], []
        for stage in range(stages):
            found = find_stage(store=opened, algorithm=algorithm, seed=seed, stage=stage)
            before.append(found.verdicts)
            after.append(
                verify_rollouts(store=opened, settings=verify, rollouts=found.rollouts, stage=stage, seed=seed)
            )
        return compare_verdicts(store=opened, before=before, after=after)

    graph.__name__ = graph.__qualname__ = "rescore" if stages == STAGES else f"rescore_{stages}"
    graph.__doc__ = f"Verdicts of a new verifier on the {stages} stages of a stored run."
    return workflow(graph)


rescore = staged(STAGES)
rescore_1 = staged(1)
rescore_2 = staged(2)
rescore_8 = staged(8)
