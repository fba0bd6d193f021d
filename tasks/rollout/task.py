"""The door of the step that generates rollouts. Doors import what they open only when used: a cached run needs none."""

from tasks.platform import Artifact, StoreHandle, once, step
from tasks.settings import RolloutSettings

VERSION = "6"


@step(VERSION, role="rollout")
def generate(
    store: StoreHandle, settings: RolloutSettings, policy: Artifact, prompts: Artifact, stage: int, seed: int
) -> Artifact:
    """Responses to the prompts of one shard."""
    from tasks.rollout.step import generate_shard

    return once(store, "generate", VERSION, generate_shard, settings, policy, prompts, stage, seed)
