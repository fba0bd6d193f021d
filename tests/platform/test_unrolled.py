"""Tasks inside of a part that is unrolled are compiled in its pod: they must be those that were registered."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from flyteidl.core import dynamic_job_pb2, tasks_pb2
from flytekit import FlyteContextManager
from flytekit.core.type_engine import TypeEngine

from tasks.settings.experiment import read_experiment
from tools import ROOT
from tools.serialised import Serialised, function_of, serialise
from workflows.reproduce import every_run

DEPLOYMENT = ROOT / "configs/deployments/gpu-4.yaml"


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Serialised:
    return serialise(tmp_path_factory.mktemp("package"), DEPLOYMENT)


def unrolled(template: tasks_pb2.TaskTemplate, folder: Path) -> dynamic_job_pb2.DynamicJobSpec:
    """What the registered command line leaves in a pod that has no more than its template's environment."""
    experiment, _ = read_experiment(ROOT / "configs/paper/reproduce.yaml")
    runs = [run.settings for run in experiment.runs("s3://mu-grpo/runs")]
    assert {run.updates_per_rollout is None for run in runs} == {True, False}
    given = {"store": "s3://mu-grpo/runs", "runs": runs}
    context = FlyteContextManager.current_context()
    inputs = TypeEngine.dict_to_literal_map(context, given, every_run.python_interface.inputs).to_flyte_idl()
    (folder / "inputs.pb").write_bytes(inputs.SerializeToString())
    filled = {
        "{{.input}}": str(folder / "inputs.pb"),
        "{{.outputPrefix}}": str(folder / "out"),
        "{{.rawOutputDataPrefix}}": str(folder / "raw"),
        "{{.checkpointOutputPrefix}}": str(folder / "checkpoint"),
        "{{.prevCheckpointPrefix}}": '""',
    }
    own = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder)}
    done = subprocess.run(
        [filled.get(argument, argument) for argument in template.container.args],
        cwd=ROOT,
        env={**own, **{one.key: one.value for one in template.container.env}},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (folder / "out/futures.pb").is_file(), done.stdout + done.stderr
    return dynamic_job_pb2.DynamicJobSpec.FromString((folder / "out/futures.pb").read_bytes())


def test_tasks_of_an_unrolled_part_have_the_pods_that_were_registered(registered: Serialised, tmp_path: Path) -> None:
    found = unrolled(registered.tasks[every_run.name].template, tmp_path)
    assert {"optimize", "alternate", "generate", "prepare_policy"} <= {function_of(one.id.name) for one in found.tasks}
    for task in found.tasks:
        expected = registered.tasks[task.id.name].template
        for part in ("container", "metadata", "security_context", "extended_resources", "custom", "config", "type"):
            assert getattr(task, part) == getattr(expected, part), (task.id.name, part)
