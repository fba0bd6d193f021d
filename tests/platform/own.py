"""A workflow of somebody else's: the project's tasks evaluate a stored policy, and a task of their own looks at it."""

from flytekit import workflow

from tasks.artifacts import Store
from tasks.flyte.decorators import always
from tasks.flyte.ends import open_evaluation
from tasks.flyte.inputs import Artifact
from tasks.settings import EvaluateSettings, OperationSettings, PromptsSettings, VerifySettings
from workflows.stages import evaluate as evaluate_policy
from workflows.stages import problems


@always
def problems_of(store: str, accuracy: Artifact) -> int:
    """How many problems an accuracy is of."""
    return int(Store.open(store).manifest(accuracy).facts["problems"])


@workflow
def counted(store: str, prompts: PromptsSettings, evaluate: EvaluateSettings) -> int:
    opened = open_evaluation(
        store=store,
        policy="latest",
        prompts=prompts,
        evaluate=evaluate,
        verify=VerifySettings(workers=1),
        operation=OperationSettings(),
        seed=0,
    )
    benchmarks = problems(opened.benchmarks)
    accuracy = evaluate_policy(inputs=opened.evaluations, mean=opened.mean, benchmarks=benchmarks, policy=opened.policy)
    return problems_of(store=store, accuracy=accuracy)
