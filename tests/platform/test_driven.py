"""Every workflow task by task from its registered command lines, on S3, beside the same commands on this machine."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml
from flyteidl.core import literals_pb2
from flytekit import FlyteContextManager
from flytekit.core.type_engine import TypeEngine
from flytekit.core.workflow import PythonFunctionWorkflow
from flytekit.models.literals import LiteralMap

from tasks.artifacts import Store
from tasks.experiments.arms import QUESTIONS, QUICK_EVALUATIONS, QUICK_UPDATES
from tasks.experiments.result import LaboratoryResult, ReproductionResult
from tasks.experiments.step import load_result
from tasks.run.task import seed_of_week
from tasks.settings import ExperimentSettings, RunSettings, VerifySettings
from tasks.stored.evaluated import EvaluatedPolicy
from tasks.stored.rescored import RescoredRun
from tests.platform.forked import Processes
from tests.platform.propeller import Literals, Propeller
from tests.platform.serialised import function_of, serialise
from tests.s3 import S3
from tests.workflows.experiments import experiment
from tests.workflows.runs import CONFIG, Runner
from workflows.evaluation import evaluation
from workflows.grpo import grpo
from workflows.laboratory import quick_a
from workflows.mu_grpo import mu_grpo_2
from workflows.reproduce import reproduce
from workflows.rescore import rescore
from workflows.retrain import retrain_2

WARM = "policy.tiny.warm_start.working_updates=80 policy.tiny.warm_start.guessing_updates=40 evaluate.problems=10"
CHANGES = (
    f"{WARM} prompts.prompts_per_stage=16 prompts.prompts_per_shard=8 rollout.responses_per_prompt=4 "
    "optimize.responses_per_update=16 evaluate.samples_per_problem=2"
)
STRICT = VerifySettings(workers=1, max_answer_characters=1)


class Cluster:
    """A project as it is registered, its pods, and a store of its own on S3."""

    def __init__(self, s3: S3, folder: Path) -> None:
        deployment = folder / "deployment.yaml"
        deployment.write_text("{}")
        bucket = s3.bucket()
        self.environment = s3.environment(folder / "cache")
        self.store = f"s3://{bucket}/store"
        pods = Processes(folder / "pods", self.environment)
        self.propeller = Propeller(serialise(folder, deployment), s3, bucket, pods.start)
        self._context = FlyteContextManager.current_context()

    def run(self, graph: PythonFunctionWorkflow, **given: Any) -> dict[str, Any]:
        """Runs a workflow; its outputs."""
        types = graph.python_interface.inputs
        named = {**given, "store": self.store}
        inputs = self._literals({name: named[name] for name in types if name in named}, types)
        return self._values(self.propeller.run(graph.name, inputs), graph.python_interface.outputs)

    def task(self, task: Any, **given: Any) -> Any:
        """Runs a task by itself; its output."""
        inputs = self._literals(given, task.python_interface.inputs)
        return self._values(self.propeller.task(task.name, inputs, task.name), task.python_interface.outputs)["o0"]

    def opened(self) -> Store:
        """The store as a client sees it."""
        return Store.open(self.store, create=False)

    def _literals(self, given: dict[str, Any], types: dict[str, Any]) -> Literals:
        return dict(TypeEngine.dict_to_literal_map(self._context, given, types).to_flyte_idl().literals)

    def _values(self, made: Literals, types: dict[str, Any]) -> dict[str, Any]:
        literals = LiteralMap.from_flyte_idl(literals_pb2.LiteralMap(literals=made))
        return TypeEngine.literal_map_to_kwargs(self._context, literals, types)


@pytest.fixture(scope="module")
def cluster(s3: S3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(s3, tmp_path_factory.mktemp("cluster"))
    with patch.dict("os.environ", made.environment):
        yield made


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """Where the same workflows are started by the commands that a user types."""
    return Runner(tmp_path_factory.mktemp("here"))


def settings(changes: str) -> dict[str, Any]:
    """Inputs of a training workflow."""
    read = RunSettings.read(CONFIG, changes)
    return {name: getattr(read, name) for name in RunSettings.model_fields if name != "updates_per_rollout"}


def locally(here: Runner, workflow: str, *options: str) -> str:
    done = here.run(workflow, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def staged(cluster: Cluster, here: Runner) -> None:
    """Mu-GRPO, which the other workflows start from."""
    cluster.run(mu_grpo_2, **settings(CHANGES))
    locally(here, "mu_grpo_2", "--overrides", CHANGES)


@pytest.fixture(scope="module")
def alternated(cluster: Cluster, here: Runner, staged: None) -> None:
    cluster.run(grpo, **settings(f"{CHANGES} optimize.preset=grpo"), updates_per_rollout=2)
    options = ["--overrides", f"{CHANGES} optimize.preset=grpo", "--updates_per_rollout", "2"]
    locally(here, "grpo", *options)


@pytest.fixture(scope="module")
def retrained(cluster: Cluster, here: Runner, staged: None) -> None:
    changes = "optimize.preset=reinforce"
    cluster.run(retrain_2, **settings(f"{CHANGES} {changes}"), algorithm="mu_grpo")
    locally(here, "retrain_2", "--algorithm", "mu_grpo", "--overrides", f"{CHANGES} {changes}")


@pytest.fixture(scope="module")
def rescored(cluster: Cluster, here: Runner, staged: None) -> RescoredRun:
    locally(here, "rescore", "--algorithm", "mu_grpo", "--verify", STRICT.model_dump_json())
    return cluster.run(rescore, verify=STRICT, algorithm="mu_grpo")["o0"]


@pytest.fixture(scope="module")
def evaluated(cluster: Cluster, staged: None) -> tuple[str, EvaluatedPolicy]:
    read = RunSettings.read(CONFIG, CHANGES)
    policy = str(max(cluster.opened().manifests("policy"), key=lambda one: one.facts["stage"]).ref)
    asked = {"policy": policy, "prompts": read.prompts, "evaluate": read.evaluate, "seed": 1}
    return policy, cluster.run(evaluation, **asked)["o0"]


@pytest.fixture(scope="module")
def compared(cluster: Cluster, here: Runner) -> LaboratoryResult:
    """A part of the laboratory, of which every arm is a workflow inside of the workflow."""
    changes = f"{WARM} rollout.responses_per_prompt=4 optimize.responses_per_update=8 prompts.prompts_per_shard=128"
    first = QUESTIONS["a"].arms[0].overrides(QUICK_UPDATES)
    locally(here, "arm", "--arm", first, "--evaluations", str(QUICK_EVALUATIONS), "--overrides", changes)
    return cluster.run(quick_a, **settings(changes))["o0"]


@pytest.fixture(scope="module")
def reproduced(cluster: Cluster, here: Runner) -> ReproductionResult:
    """A part of the laboratory, and runs of two systems, which are workflows inside of a part that is unrolled."""
    asked = experiment(seeds=[0], laboratory=True)
    file = here.folder / "experiment.yaml"
    file.write_text(yaml.safe_dump({"experiment": asked}, sort_keys=False))  # systems have an order
    command = Runner(here.folder, file)
    locally(command, "reproduce", "--store", str(here.folder / "reproduction"))
    return cluster.run(reproduce, experiment=ExperimentSettings.parse(asked), overrides="")["o0"]


def same_artifacts(cluster: Cluster, here: Runner) -> None:
    there, ours = cluster.opened(), Store.open(here.store)
    for kind in ("prompts", "policy", "rollouts", "verdicts", "evaluation", "average"):
        made = {manifest.ref for manifest in there.manifests(kind)}
        assert made == {manifest.ref for manifest in ours.manifests(kind)}, kind


@pytest.mark.usefixtures("staged")
def test_the_stages_make_the_very_artifacts_of_the_command(cluster: Cluster, here: Runner) -> None:
    same_artifacts(cluster, here)


@pytest.mark.usefixtures("staged")
def test_a_second_execution_finds_every_step_in_the_cache(cluster: Cluster) -> None:
    before = len(cluster.propeller.attempts)
    cluster.run(mu_grpo_2, **settings(f"{CHANGES} operation.updates_per_checkpoint=3"))
    again = {function_of(attempt.task) for attempt in cluster.propeller.attempts[before:]}
    assert again == {"open_run", "close_run"}


@pytest.mark.long
@pytest.mark.usefixtures("staged", "alternated", "retrained", "rescored")
def test_the_other_workflows_make_the_very_artifacts_of_the_commands(cluster: Cluster, here: Runner) -> None:
    same_artifacts(cluster, here)
    presets = {one.facts["preset"] for one in cluster.opened().manifests("policy") if one.facts["stage"]}
    assert presets == {"mu_grpo", "grpo", "reinforce"}


@pytest.mark.long
def test_a_new_verifier_is_compared_with_the_old_one(rescored: RescoredRun) -> None:
    assert [stage.responses for stage in rescored.stages] == [64, 64]
    assert any("correct -> no_answer" in stage.changed for stage in rescored.stages)


@pytest.mark.long
def test_a_stored_policy_is_evaluated(evaluated: tuple[str, EvaluatedPolicy]) -> None:
    policy, found = evaluated
    assert found.policy == policy
    assert found.problems == 10


@pytest.mark.long
def test_every_arm_of_the_laboratory_is_compared(cluster: Cluster, here: Runner, compared: LaboratoryResult) -> None:
    assert [arm.name for arm in compared.arms] == [arm.name for arm in QUESTIONS["a"].arms]
    (ours,) = Store.open(here.store).refs("study")
    assert ours in cluster.opened().refs("study")


@pytest.mark.long
def test_a_reproduction_is_that_of_the_command(reproduced: ReproductionResult, here: Runner) -> None:
    store = Store.open(here.folder / "reproduction")
    (ours,) = store.manifests("reproduction")
    found = load_result(store, ours.ref)
    assert (reproduced.cells, reproduced.tests) == (found.cells, found.tests)
    assert not reproduced.missing


@pytest.mark.long
@pytest.mark.usefixtures("alternated", "retrained", "rescored", "evaluated", "compared", "reproduced")
def test_no_task_is_left_out(cluster: Cluster) -> None:
    assert cluster.task(seed_of_week, kickoff=datetime(2026, 11, 22, tzinfo=UTC)) == 202647
    driven = {function_of(attempt.task) for attempt in cluster.propeller.attempts}
    assert driven == {function_of(name) for name in cluster.propeller.found.tasks}
