"""A user's own workflow: the project's tasks evaluate a policy, and the user's task reads the accuracy."""

from flytekit import workflow

from tasks.flyte.decorators import uncached
from tasks.flyte.inputs import Artifact
from tasks.flyte.uncached import open_evaluation
from tasks.settings import EvaluateSettings, OperationSettings, PromptsSettings, VerifySettings
from tasks.store import Store
from workflows.stages import evaluate as evaluate_policy
from workflows.stages import prepare_benchmarks


@uncached
def value_of(store: str, accuracy: Artifact) -> float:
    return float(Store.open(store).manifest(accuracy).facts["accuracy"])


@uncached
def opens(store: str) -> str:
    return Store.open(store).ref.id


@workflow
def measured(store: str, prompts: PromptsSettings, evaluate: EvaluateSettings) -> float:
    same = {"policy": "latest", "verify": VerifySettings(workers=1), "operation": OperationSettings(), "seed": 0}
    opened = open_evaluation(store=store, prompts=prompts, evaluate=evaluate, **same)
    benchmarks = prepare_benchmarks(opened.benchmarks)
    accuracy = evaluate_policy(inputs=opened.evaluations, mean=opened.mean, benchmarks=benchmarks, policy=opened.policy)
    return value_of(store=store, accuracy=accuracy)
