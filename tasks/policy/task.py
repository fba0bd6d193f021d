"""Flyte task that provides the base policy."""

from tasks.platform import Artifact, once, step
from tasks.platform.inputs import Keyed, PolicyInputs

VERSION = "3"


@step(VERSION, role="prefetch")
def prepare_policy(inputs: Keyed[PolicyInputs]) -> Artifact:
    """The base policy."""
    from tasks.policy.step import prepare_policy as prepare

    return once(
        inputs.store,
        "prepare_policy",
        VERSION,
        prepare,
        inputs.settings,
        inputs.arithmetic,
        inputs.source,
        inputs.seed,
    )
