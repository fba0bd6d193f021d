"""Flyte task that generates rollouts. Tasks import their logic when they run: a cached run needs none of it."""

from tasks.platform import Artifact, once, step
from tasks.platform.inputs import Keyed, RolloutInputs

VERSION = "5"


@step(VERSION, role="rollout", mapped=True)
def generate(inputs: Keyed[RolloutInputs], policy: Artifact, prompts: Artifact, stage: int) -> Artifact:
    """Responses to the prompts of one shard."""
    from tasks.rollout.step import generate_shard

    return once(inputs.store, "generate", VERSION, generate_shard, inputs.settings, policy, prompts, stage, inputs.seed)
