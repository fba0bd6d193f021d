"""Flyte tasks that evaluate a policy."""

from tasks.platform import Artifact, judging, once, step
from tasks.platform.inputs import EvaluationInputs, Keyed, MeanInputs

VERSION = "8"
JUDGING = judging(VERSION)


@step(JUDGING, role="evaluate", mapped=True)
def evaluate(inputs: Keyed[EvaluationInputs], policy: Artifact, prompts: Artifact) -> Artifact:
    """Measure the accuracy of a policy on a benchmark."""
    from tasks.evaluate.step import evaluate_policy

    return once(
        inputs.store,
        "evaluate",
        JUDGING,
        evaluate_policy,
        inputs.settings,
        inputs.verify,
        policy,
        prompts,
        inputs.seed,
        operation=inputs.operation,
    )


@step(VERSION)
def average(inputs: Keyed[MeanInputs], policy: Artifact, evaluations: list[Artifact]) -> Artifact:
    """Average a policy's accuracies over benchmarks."""
    from tasks.evaluate.average import average_evaluations

    return once(inputs.store, "average", VERSION, average_evaluations, policy, evaluations, inputs.seed)
