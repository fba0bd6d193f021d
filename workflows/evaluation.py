r"""Workflow that evaluates a stored policy on any benchmarks.

pyflyte run workflows/evaluation.py evaluation --store runs/tiny-cpu \
  --evaluate '{"max_new_tokens": 32}' --prompts '{"arithmetic": {"levels": [2]}, "prompts_per_stage": 512}'
pyflyte run workflows/evaluation.py evaluation --store runs/qwen --evaluate '{"max_new_tokens": 2560,
  "benchmarks": ["aime25", "math500"]}' --prompts '{"path": "problems.jsonl", "prompts_per_stage": 512}'
"""

from tasks.flyte.decorators import named, workflow
from tasks.flyte.uncached import close_evaluation, open_evaluation
from tasks.report.summary import PolicyAccuracies
from tasks.settings import EvaluateSettings, Given, OperationSettings, PromptsSettings, VerifySettings
from workflows.stages import evaluate as evaluate_policy
from workflows.stages import prepare_benchmarks


@workflow
def evaluation(
    prompts: Given[PromptsSettings] = Given[PromptsSettings](),
    evaluate: Given[EvaluateSettings] = Given[EvaluateSettings](),
    verify: VerifySettings = VerifySettings(),
    operation: OperationSettings = OperationSettings(),
    store: str = "runs",
    policy: str = "latest",
    seed: int = 0,
) -> PolicyAccuracies:
    """Evaluate a stored policy: ``policy/0123abcd``, or ``latest``, the last policy of the latest finished run.

    ``prompts`` gives the problems of the benchmark ``held_out``, and ``template``, ``chat`` and ``date`` of benchmarks
    that do not set them.
    """
    opened = open_evaluation(
        store=store, policy=policy, prompts=prompts, evaluate=evaluate, verify=verify, operation=operation, seed=seed
    )
    opened = named(opened, "open-evaluation")
    benchmarks = prepare_benchmarks(opened.benchmarks)
    accuracy = evaluate_policy(inputs=opened.evaluations, mean=opened.mean, benchmarks=benchmarks, policy=opened.policy)
    return named(close_evaluation(inputs=opened.mean, average=named(accuracy, "evaluate")), "close-evaluation")
