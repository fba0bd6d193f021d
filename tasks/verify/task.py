"""Flyte task that verifies rollouts."""

from tasks.platform import Artifact, judging, once, step
from tasks.platform.inputs import Keyed, VerifyInputs

VERSION = "5"
JUDGING = judging(VERSION)


@step(JUDGING, role="verify", mapped=True)
def verify(inputs: Keyed[VerifyInputs], rollouts: list[Artifact], stage: int) -> Artifact:
    """Judge every response of a stage."""
    from tasks.verify.step import verify_rollouts

    return once(inputs.store, "verify", JUDGING, verify_rollouts, inputs.settings, rollouts, stage, inputs.seed)
