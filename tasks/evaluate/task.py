"""The door of the step that evaluates a policy."""

from tasks.platform import Artifact, StoreHandle, once, step
from tasks.settings import EvaluateSettings, OperationSettings, VerifySettings

VERSION = "3"


@step(VERSION, role="evaluate")
def evaluate(
    store: StoreHandle,
    settings: EvaluateSettings,
    verify: VerifySettings,
    policy: Artifact,
    prompts: Artifact,
    seed: int,
    operation: OperationSettings,
) -> Artifact:
    """The accuracy of a policy on held-out problems."""
    from tasks.evaluate.step import evaluate_policy

    return once(
        store, "evaluate", VERSION, evaluate_policy, settings, verify, policy, prompts, seed, operation=operation
    )
