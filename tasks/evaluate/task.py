"""The door of the step that evaluates a policy."""

from tasks.artifacts import Store
from tasks.platform import Artifact, StoreHandle, step
from tasks.settings import EvaluateSettings, VerifySettings

VERSION = "1"


@step(VERSION, role="compute")
def evaluate(
    store: StoreHandle,
    settings: EvaluateSettings,
    verify: VerifySettings,
    policy: Artifact,
    prompts: Artifact,
    seed: int,
) -> Artifact:
    """The accuracy of a policy on held-out problems."""
    from tasks.evaluate.step import evaluate_policy

    return evaluate_policy(Store(store, "evaluate", VERSION), settings, verify, policy, prompts, seed)
