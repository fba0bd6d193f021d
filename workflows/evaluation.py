r"""The accuracy of a policy that a store holds, on problems of your choice.

pyflyte run workflows/evaluation.py evaluation --store runs/tiny-cpu \
  --evaluate '{"max_new_tokens": 32}' --prompts '{"arithmetic": {"levels": [2]}, "prompts_per_stage": 512}'
"""

from flytekit import workflow

from tasks.evaluate.task import evaluate as evaluate_policy
from tasks.prompts.task import prepare_held_out
from tasks.settings import EvaluateSettings, OperationSettings, PromptsSettings, VerifySettings
from tasks.stored.evaluated import EvaluatedPolicy
from tasks.stored.task import close_evaluation, open_evaluation


@workflow
def evaluation(
    prompts: PromptsSettings,
    evaluate: EvaluateSettings,
    verify: VerifySettings = VerifySettings(),  # noqa: B008 - settings are immutable
    operation: OperationSettings = OperationSettings(),  # noqa: B008
    store: str = "runs",
    policy: str = "latest",
    seed: int = 0,
) -> EvaluatedPolicy:
    """Evaluates a policy: ``policy/0123abcd``, or the last one of the latest finished run."""
    opened = open_evaluation(store=store, policy=policy, prompts=prompts)
    held_out = prepare_held_out(store=opened.store, settings=prompts, evaluate=evaluate, source=opened.prompts_source)
    measured = evaluate_policy(
        store=opened.store,
        settings=evaluate,
        verify=verify,
        policy=opened.policy,
        prompts=held_out,
        seed=seed,
        operation=operation,
    )
    return close_evaluation(store=opened.store, evaluation=measured)
