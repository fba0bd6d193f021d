"""The doors of the steps that evaluate a policy."""

from tasks.platform import Artifact, StoreHandle, judging, once, step
from tasks.settings import EvaluationSettings, OperationSettings, VerifySettings

VERSION = "8"
JUDGING = judging(VERSION)


@step(JUDGING, role="evaluate")
def evaluate(
    store: StoreHandle,
    settings: EvaluationSettings,
    verify: VerifySettings,
    policy: Artifact,
    prompts: Artifact,
    seed: int,
    operation: OperationSettings,
) -> Artifact:
    """The accuracy of a policy on a benchmark."""
    from tasks.evaluate.step import evaluate_policy

    return once(
        store, "evaluate", JUDGING, evaluate_policy, settings, verify, policy, prompts, seed, operation=operation
    )


@step(VERSION)
def average(store: StoreHandle, policy: Artifact, evaluations: list[Artifact], seed: int) -> Artifact:
    """The mean of a policy's accuracies over benchmarks."""
    from tasks.evaluate.average import average_evaluations

    return once(store, "average", VERSION, average_evaluations, policy, evaluations, seed)
