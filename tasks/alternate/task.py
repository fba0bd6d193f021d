"""Flyte task in which generation and optimization alternate."""

from tasks.platform import Artifact, judging, once, step
from tasks.platform.inputs import AlternateInputs, Keyed

VERSION = "13"
JUDGING = judging(VERSION)


@step(JUDGING, role="train", trains=True, takes_turns=True)
def alternate(
    inputs: Keyed[AlternateInputs], reference: Artifact, policy: Artifact, prompts: list[Artifact], stage: int
) -> Artifact:
    """The policy after a stage's updates, with new rollouts every ``inputs.updates_per_rollout`` of them."""
    from tasks.train.alternating import train_alternating

    return once(
        inputs.store,
        "alternate",
        JUDGING,
        train_alternating,
        inputs.rollout,
        inputs.verify,
        inputs.optimize,
        inputs.updates_per_rollout,
        reference,
        policy,
        prompts,
        stage,
        inputs.seed,
        operation=inputs.operation,
    )
