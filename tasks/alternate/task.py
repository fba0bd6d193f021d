"""The door of the step in which generation and optimization alternate."""

from tasks.platform import Artifact, StoreHandle, judging, once, step
from tasks.settings import OperationSettings, OptimizeSettings, RolloutSettings, VerifySettings

VERSION = "13"
JUDGING = judging(VERSION)


@step(JUDGING, role="train", trains=True, takes_turns=True)
def alternate(
    store: StoreHandle,
    rollout: RolloutSettings,
    verify: VerifySettings,
    optimize: OptimizeSettings,
    updates_per_rollout: int,
    reference: Artifact,
    policy: Artifact,
    prompts: list[Artifact],
    stage: int,
    seed: int,
    operation: OperationSettings,
) -> Artifact:
    """The policy after a stage's updates, with new rollouts every ``updates_per_rollout`` of them."""
    from tasks.alternate.step import train_alternating

    return once(
        store,
        "alternate",
        JUDGING,
        train_alternating,
        rollout,
        verify,
        optimize,
        updates_per_rollout,
        reference,
        policy,
        prompts,
        stage,
        seed,
        operation=operation,
    )
