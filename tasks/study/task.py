"""Flyte task that is a whole training run."""

from tasks.platform import Artifact, judging, once, step
from tasks.platform.inputs import Keyed, StudyInputs

VERSION = "9"
JUDGING = judging(VERSION)


@step(JUDGING, role="train")
def study(
    inputs: Keyed[StudyInputs], evaluations: int, policy: Artifact, prompts: list[Artifact], held_out: list[Artifact]
) -> Artifact:
    """Trains on all prompts, refreshes rollouts every ``inputs.updates_per_rollout`` updates, evaluates on the way."""
    from tasks.train.study import run_study

    return once(
        inputs.store,
        "study",
        JUDGING,
        run_study,
        inputs.rollout,
        inputs.verify,
        inputs.optimize,
        inputs.evaluate,
        inputs.updates_per_rollout,
        evaluations,
        policy,
        prompts,
        held_out,
        inputs.seed,
    )
