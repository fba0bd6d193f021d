"""The door of the step that verifies rollouts."""

from tasks.platform import Artifact, StoreHandle, judging, once, step
from tasks.settings import VerifySettings

VERSION = "5"
JUDGING = judging(VERSION)


@step(JUDGING, role="verify")
def verify(store: StoreHandle, settings: VerifySettings, rollouts: list[Artifact], stage: int, seed: int) -> Artifact:
    """A verdict on every response of a stage."""
    from tasks.verify.step import verify_rollouts

    return once(store, "verify", JUDGING, verify_rollouts, settings, rollouts, stage, seed)
