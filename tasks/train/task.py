"""Flyte task that trains a policy on a stage's rollouts."""

from tasks.platform import Artifact, once, step
from tasks.platform.inputs import Keyed, OptimizeInputs

VERSION = "8"


@step(VERSION, role="train", trains=True)
def optimize(
    inputs: Keyed[OptimizeInputs],
    reference: Artifact,
    policy: Artifact,
    rollouts: list[Artifact],
    verdicts: Artifact,
    stage: int,
) -> Artifact:
    """The policy after a stage's updates."""
    from tasks.train.stage import optimize_stage

    return once(
        inputs.store,
        "optimize",
        VERSION,
        optimize_stage,
        inputs.optimize,
        reference,
        policy,
        rollouts,
        verdicts,
        stage,
        inputs.seed,
        operation=inputs.operation,
    )
