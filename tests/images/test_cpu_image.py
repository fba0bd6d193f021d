"""The cpu image: what is in it, and tasks in it as a pod starts them, against an S3 server."""

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from flyteidl.core import literals_pb2, tasks_pb2
from flytekit import FlyteContextManager
from flytekit.core.type_engine import TypeEngine
from flytekit.models.literals import LiteralMap
from packaging.utils import canonicalize_name

from tasks.artifacts import ArtifactRef, Store
from tasks.optimize.step import optimize_stage
from tasks.optimize.task import optimize
from tasks.prompts.step import prepare_stage
from tasks.rollout.step import generate_shard
from tasks.settings import OperationSettings
from tasks.verify.step import verify_rollouts
from tasks.verify.task import verify
from tests.cache_versions import ROOT
from tests.images.podman import Podman
from tests.platform.serialised import serialise
from tests.s3 import S3
from tests.workflows import test_grpo

learner = test_grpo.learner
pytestmark = pytest.mark.timeout(1200)
# As k8s asks of every pod: no rights, and nothing to write to but /tmp.
LOCKED = ["--read-only", "--read-only-tmpfs=false", "--cap-drop=all", "--security-opt=no-new-privileges"]
SPACE = ["--tmpfs=/tmp:rw,mode=1777,size=1g"]


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Podman:
    return Podman(tmp_path_factory.mktemp("podman"))


@pytest.fixture(scope="module")
def image(podman: Podman) -> str:
    return podman.build("cpu")


def test_labels_say_which_code_it_holds(podman: Podman, image: str) -> None:
    (inspected,) = json.loads(podman("image", "inspect", image).stdout)
    labels = inspected["Config"]["Labels"]
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert labels["org.opencontainers.image.revision"].removesuffix("+") == head.stdout.strip()
    assert labels["org.opencontainers.image.version"] == "test"
    assert inspected["Config"]["User"] == "10001:10001"


def test_it_holds_what_its_role_needs_and_no_more(podman: Podman, image: str) -> None:
    code = """
import importlib.metadata, json, os, shutil, tasks
print(json.dumps({
    "uid": os.getuid(),
    "programs": [name for name in ("gcc", "cc", "g++", "pip", "pip3", "git") if shutil.which(name)],
    "packages": {one.metadata["Name"]: one.version for one in importlib.metadata.distributions()},
    "code": os.path.dirname(tasks.__file__),
}))
"""
    found = json.loads(podman("run", "--rm", *LOCKED, *SPACE, image, "python", "-c", code).stdout)
    assert found["uid"] == 10001
    assert found["programs"] == []
    assert found["code"] == "/opt/mu-grpo/tasks"
    installed = {f"{canonicalize_name(name)}=={version}" for name, version in found["packages"].items()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locks = [(ROOT / name).read_text() for name in ("images/build.lock", "images/cpu/requirements.lock")]
    pins = {line.split()[0] for lock in locks for line in lock.splitlines() if "==" in line}
    gone = {pin for pin in pins if pin.startswith(("pip==", "uv==", "wheel=="))}
    assert installed == pins - gone | {f"mu-grpo=={project['version']}"}
    assert "torch==2.13.0+cpu" in installed
    assert not {"vllm", "deepspeed", "triton", "pytest"} & {pin.partition("==")[0] for pin in installed}


def test_its_command_answers(podman: Podman, image: str) -> None:
    shown = podman("run", "--rm", *LOCKED, *SPACE, image, "mu-grpo", "algorithms")
    assert shown.returncode == 0
    assert "mu_grpo" in shown.stdout


class Pod:
    """Runs a task in the image, as its serialised form says."""

    def __init__(self, podman: Podman, image: str, s3: S3, bucket: str, folder: Path) -> None:
        self._podman, self._image, self._s3, self._bucket = podman, image, s3, bucket
        deployment = folder / "deployment.yaml"
        name, _, tag = image.removeprefix("localhost/").partition(":")
        deployment.write_text(f"{{images: localhost/{name.removesuffix('-cpu')}, tag: {tag}}}")
        self._specs = serialise(folder, deployment).tasks

    def run(self, task: Any, **inputs: Any) -> Any:
        """What the task returns."""
        context = FlyteContextManager.current_context()
        interface = task.python_interface
        literals = TypeEngine.dict_to_literal_map(context, inputs, interface.inputs).to_flyte_idl()
        place = f"{self._bucket}/flyte/{task.name}"
        client, (name, _, key) = self._s3.client(), place.removeprefix("s3://").partition("/")
        client.put_object(Bucket=name, Key=f"{key}/inputs.pb", Body=literals.SerializeToString())
        container: tasks_pb2.Container = self._specs[task.name].template.container
        filled = {
            "{{.input}}": f"{place}/inputs.pb",
            "{{.outputPrefix}}": f"{place}/out",
            "{{.rawOutputDataPrefix}}": f"{place}/raw",
            "{{.checkpointOutputPrefix}}": f"{place}/checkpoint",
            "{{.prevCheckpointPrefix}}": '""',
        }
        environment = {
            **{one.key: one.value for one in container.env},
            **self._s3.environment(Path("/tmp/cache")),
            "FLYTE_INTERNAL_EXECUTION_ID": "e",
            "OMP_NUM_THREADS": "1",
        }
        done = self._podman(
            *("run", "--rm", "--network=host", *LOCKED, *SPACE, "--memory=4g"),
            *(f"--env={name}={value}" for name, value in environment.items()),
            container.image,
            *(filled.get(argument, argument) for argument in container.args),
        )
        keys = self._s3.keys(name)
        assert f"{key}/out/error.pb" not in keys, done.stdout
        assert f"{key}/out/outputs.pb" in keys, done.stdout
        body = client.get_object(Bucket=name, Key=f"{key}/out/outputs.pb")["Body"].read()
        made = LiteralMap.from_flyte_idl(literals_pb2.LiteralMap.FromString(body)).literals["o0"]
        return TypeEngine.to_python_value(context, made, interface.outputs["o0"])


def test_tasks_in_it_make_what_they_make_here(
    podman: Podman, image: str, s3: S3, bucket: str, learner: tuple[Store, ArtifactRef], tmp_path: Path
) -> None:
    """Verification, with its worker processes, and training: on S3, locked down, with the digests of this machine."""
    here, policy = learner
    shards = prepare_stage(here, test_grpo.PROMPTS, "", 0, 0)
    rollouts = [generate_shard(here, test_grpo.ROLLOUT, policy, shard, 0, 0) for shard in shards]
    for file in here.root.rglob("*"):
        if file.is_file():
            key = f"store/{file.relative_to(here.root)}"
            s3.client().upload_file(str(file), bucket.removeprefix("s3://"), key)
    there = Store.open(f"{bucket}/store")
    pod = Pod(podman, image, s3, bucket, tmp_path)
    shared = {"store": there.ref, "rollouts": rollouts, "stage": 0, "seed": 0}
    verdicts = pod.run(verify, settings=test_grpo.VERIFY, **shared)
    assert verdicts == verify_rollouts(here, test_grpo.VERIFY, rollouts, 0, 0)
    policies = {"reference": policy, "policy": policy, "verdicts": verdicts, "operation": OperationSettings()}
    trained = pod.run(optimize, settings=test_grpo.optimize(), **policies, **shared)
    assert trained == optimize_stage(here, test_grpo.optimize(), policy, policy, rollouts, verdicts, 0, 0)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert there.manifest(trained).commit.removesuffix("+") == head.stdout.strip()
