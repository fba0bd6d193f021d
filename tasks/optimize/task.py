"""The door of the step that optimises the policy."""

from tasks.platform import Artifact, StoreHandle, once, step
from tasks.settings import OperationSettings, OptimizeSettings

VERSION = "8"


@step(VERSION, role="train", trains=True)
def optimize(
    store: StoreHandle,
    settings: OptimizeSettings,
    reference: Artifact,
    policy: Artifact,
    rollouts: list[Artifact],
    verdicts: Artifact,
    stage: int,
    seed: int,
    operation: OperationSettings,
) -> Artifact:
    """The policy after a stage's updates."""
    from tasks.optimize.step import optimize_stage

    return once(
        store,
        "optimize",
        VERSION,
        optimize_stage,
        settings,
        reference,
        policy,
        rollouts,
        verdicts,
        stage,
        seed,
        operation=operation,
    )
