"""The cached tasks: each declares its inputs, its cache version and its pod, and returns the step's function.

The body of a declaration runs with the task, so that its imports are loaded only in the task's pod.
"""

from tasks.flyte.decorators import Logic, step
from tasks.flyte.inputs import (
    AlternateInputs,
    Artifact,
    BenchmarkInputs,
    EvaluationInputs,
    Keyed,
    MeanInputs,
    OptimizeInputs,
    PolicyInputs,
    PromptsInputs,
    ReportInputs,
    RolloutInputs,
    StudyInputs,
    TrainingSetInputs,
    VerifyInputs,
)


@step("5", role="prefetch")
def prepare_policy(inputs: Keyed[PolicyInputs]) -> Logic[Artifact]:
    """Import or create the base policy."""
    from tasks.models.step import prepare_policy as prepare

    return prepare


@step("19", role="prefetch", judges=True, mapped=True)
def prepare_benchmark(inputs: Keyed[BenchmarkInputs]) -> Logic[Artifact]:
    """Read the problems of a benchmark."""
    from tasks.data.benchmarks import prepare_benchmark as prepare

    return prepare


@step("20", role="prefetch", judges=True)
def prepare_training_set(inputs: Keyed[TrainingSetInputs], benchmarks: list[Artifact]) -> Logic[Artifact]:
    """Read the rows that a run trains on, without the problems of its benchmarks."""
    from tasks.data.training import prepare_training_set as prepare

    return prepare


@step("4")
def prepare_prompts(inputs: Keyed[PromptsInputs], training: Artifact, stage: int) -> Logic[list[Artifact]]:
    """Choose the prompts of a stage, as a list of shards."""
    from tasks.data.training import prepare_prompts

    return prepare_prompts


@step("11", role="rollout", mapped=True)
def generate(inputs: Keyed[RolloutInputs], policy: Artifact, prompts: Artifact, stage: int) -> Logic[Artifact]:
    """Generate responses to the prompts of one shard."""
    from tasks.rollout.step import generate_shard

    return generate_shard


@step("22", role="verify", judges=True, mapped=True)
def verify(inputs: Keyed[VerifyInputs], rollouts: list[Artifact], stage: int) -> Logic[Artifact]:
    """Judge every response of a stage."""
    from tasks.verify.step import verify_rollouts

    return verify_rollouts


@step("18", role="train", trains=True)
def optimize(
    inputs: Keyed[OptimizeInputs],
    reference: Artifact,
    policy: Artifact,
    rollouts: list[Artifact],
    verdicts: Artifact,
    stage: int,
) -> Logic[Artifact]:
    """Train the policy on the rollouts of a stage."""
    from tasks.train.stage import optimize_stage

    return optimize_stage


@step("35", role="train", judges=True, trains=True, colocated=True)
def alternate(
    inputs: Keyed[AlternateInputs], reference: Artifact, policy: Artifact, prompts: list[Artifact], stage: int
) -> Logic[Artifact]:
    """Train the policy for a stage, with new rollouts every ``inputs.updates_per_rollout`` updates."""
    from tasks.train.colocated import train_alternating

    return train_alternating


@step("32", role="train", judges=True)
def study(
    inputs: Keyed[StudyInputs], evaluations: int, policy: Artifact, prompts: list[Artifact], held_out: list[Artifact]
) -> Logic[Artifact]:
    """Train on all prompts, with new rollouts every ``inputs.updates_per_rollout`` updates, and evaluate on the way."""
    from tasks.train.study import run_study

    return run_study


@step("28", role="evaluate", judges=True, mapped=True)
def evaluate(inputs: Keyed[EvaluationInputs], policy: Artifact, prompts: Artifact) -> Logic[Artifact]:
    """Measure the accuracy of a policy on a benchmark."""
    from tasks.evaluate.step import evaluate_policy

    return evaluate_policy


@step("11")
def average(inputs: Keyed[MeanInputs], policy: Artifact, evaluations: list[Artifact]) -> Logic[Artifact]:
    """Average a policy's accuracies over benchmarks."""
    from tasks.evaluate.metrics import average_evaluations

    return average_evaluations


@step("26")
def report(inputs: Keyed[ReportInputs], evaluations: list[Artifact]) -> Logic[Artifact]:
    """Write an HTML page about a run, which is also the task's deck.

    The run's settings are an input, because two runs with different settings are two runs even if their results agree.
    """
    from tasks.report.step import write_report

    return write_report
