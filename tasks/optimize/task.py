"""The door of the step that optimises the policy."""

from tasks.artifacts import Store
from tasks.platform import Artifact, StoreHandle, step
from tasks.settings import OptimizeSettings

VERSION = "2"


@step(VERSION, role="compute")
def optimize(
    store: StoreHandle,
    settings: OptimizeSettings,
    reference: Artifact,
    policy: Artifact,
    rollouts: list[Artifact],
    verdicts: Artifact,
    stage: int,
    seed: int,
) -> Artifact:
    """The policy after a stage's updates."""
    from tasks.optimize.step import optimize_stage

    return optimize_stage(
        Store(store, "optimize", VERSION), settings, reference, policy, rollouts, verdicts, stage, seed
    )
