"""The door of the step that is a whole training run."""

from tasks.platform import Artifact, StoreHandle, judging, once, step
from tasks.settings import EvaluationSettings, OptimizeSettings, RolloutSettings, VerifySettings

VERSION = "9"
JUDGING = judging(VERSION)


@step(JUDGING, role="train")
def study(
    store: StoreHandle,
    rollout: RolloutSettings,
    verify: VerifySettings,
    optimize: OptimizeSettings,
    evaluate: list[EvaluationSettings],
    updates_per_rollout: int,
    evaluations: int,
    policy: Artifact,
    prompts: list[Artifact],
    held_out: list[Artifact],
    seed: int,
) -> Artifact:
    """Trains on all prompts, with new rollouts every ``updates_per_rollout`` updates, and evaluates along the way."""
    from tasks.study.step import run_study

    return once(
        store,
        "study",
        JUDGING,
        run_study,
        rollout,
        verify,
        optimize,
        evaluate,
        updates_per_rollout,
        evaluations,
        policy,
        prompts,
        held_out,
        seed,
    )
