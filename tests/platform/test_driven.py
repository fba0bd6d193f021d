"""Two workflows task by task from their registered command lines, on S3, beside the same commands on this machine."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from flytekit import FlyteContextManager
from flytekit.core.type_engine import TypeEngine
from flytekit.core.workflow import PythonFunctionWorkflow

from tasks.artifacts import Store
from tasks.settings import RunSettings
from tests.platform.forked import Processes
from tests.platform.propeller import Propeller
from tools.runs import CONFIG, Runner
from tools.s3 import S3
from tools.serialised import function_of, serialise
from workflows.mu_grpo import mu_grpo_2
from workflows.retrain import retrain_2

CHANGES = (
    "policy.tiny.warm_start.working_updates=80 policy.tiny.warm_start.guessing_updates=40 evaluate.problems=10 "
    "prompts.prompts_per_stage=16 prompts.prompts_per_shard=8 rollout.responses_per_prompt=4 "
    "optimize.responses_per_update=16 evaluate.samples_per_problem=2"
)


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

    def run(self, graph: PythonFunctionWorkflow, changes: str, **given: Any) -> set[str]:
        """Runs a workflow of training; the tasks that had pods."""
        types, read = graph.python_interface.inputs, RunSettings.read(CONFIG, changes)
        values = {name: getattr(read, name) for name in types if hasattr(read, name)} | given | {"store": self.store}
        literals = TypeEngine.dict_to_literal_map(FlyteContextManager.current_context(), values, types)
        before = len(self.propeller.attempts)
        self.propeller.run(graph.name, dict(literals.to_flyte_idl().literals))
        return {function_of(attempt.task) for attempt in self.propeller.attempts[before:]}


@pytest.fixture(scope="module")
def cluster(s3: S3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(s3, tmp_path_factory.mktemp("cluster"))
    with patch.dict("os.environ", made.environment):
        yield made


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """Where the same workflows are started by the commands that a user types."""
    return Runner(tmp_path_factory.mktemp("here"))


@pytest.fixture(scope="module")
def staged(cluster: Cluster, here: Runner) -> set[str]:
    """Mu-GRPO, in two stages."""
    locally(here, "mu_grpo_2", "--overrides", CHANGES)
    return cluster.run(mu_grpo_2, CHANGES)


def locally(here: Runner, workflow: str, *options: str) -> None:
    done = here.run(workflow, *options)
    assert done.returncode == 0, done.stdout + done.stderr


def same_artifacts(cluster: Cluster, here: Runner) -> None:
    there, ours = Store.open(cluster.store, create=False), Store.open(here.store)
    for kind in ("prompts", "policy", "rollouts", "verdicts", "evaluation", "average"):
        made = {manifest.ref for manifest in there.manifests(kind)}
        assert made == {manifest.ref for manifest in ours.manifests(kind)}, kind
        assert made


def test_the_stages_make_the_very_artifacts_of_the_command(cluster: Cluster, here: Runner, staged: set[str]) -> None:
    assert {"open_run", "prepare_policy", "generate", "verify", "optimize", "evaluate", "close_run"} <= staged
    same_artifacts(cluster, here)


@pytest.mark.usefixtures("staged")
def test_a_second_execution_finds_every_step_in_the_cache(cluster: Cluster) -> None:
    again = cluster.run(mu_grpo_2, f"{CHANGES} operation.updates_per_checkpoint=3")
    assert again == {"open_run", "close_run"}


@pytest.mark.usefixtures("staged")
def test_a_part_that_is_unrolled_makes_the_very_artifacts_of_the_command(cluster: Cluster, here: Runner) -> None:
    """The last stage of the stored run, trained anew with another objective."""
    changes = f"{CHANGES} optimize.preset=reinforce"
    locally(here, "retrain_2", "--from_stage", "1", "--overrides", changes)
    done = cluster.run(retrain_2, changes, from_stage=1)
    assert {"stages_from", "optimize", "evaluate"} <= done
    assert not {"generate", "prepare_policy"} & done
    same_artifacts(cluster, here)
