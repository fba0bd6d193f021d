"""The cpu image: what is in it, and tasks in it as a pod starts them, against an S3 server; its base, with programs."""

import json
import signal
import subprocess
import tomllib
from pathlib import Path

import pytest
from flytekit import FlyteContextManager
from flytekit.core.type_engine import TypeEngine
from packaging.utils import canonicalize_name

from tasks.artifacts import Store
from tasks.settings import CodeSettings, RunSettings
from tests.cache_versions import ROOT
from tests.images.podman import BASE, Podman
from tests.images.pods import LOCKED, SPACE, Pods
from tests.platform.propeller import Propeller
from tests.platform.serialised import serialise
from tests.s3 import S3
from tests.workflows.runs import CONFIG, Runner
from workflows.mu_grpo import mu_grpo

pytestmark = pytest.mark.timeout(2400)
CHANGES = (
    "policy.tiny.warm_start.working_updates=40 policy.tiny.warm_start.guessing_updates=20 prompts.prompts_per_stage=32 "
    "prompts.prompts_per_shard=16 rollout.responses_per_prompt=4 optimize.responses_per_update=16 evaluate.problems=10 "
    "evaluate.samples_per_problem=2 operation.updates_per_checkpoint=1"
)
STOPPED = {("optimize", 1): signal.SIGKILL, ("optimize", 2): signal.SIGTERM}


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Podman:
    return Podman(tmp_path_factory.mktemp("podman"))


def test_programs_are_confined_in_a_locked_pod(podman: Podman) -> None:
    """The sandbox loads Python's own modules alone, so that the image's base is enough for it."""
    podman.make_base()
    code = """
import json, sys
sys.path.insert(0, "/code")
from tasks.verify.code.judge import ProgramJudge
judge = ProgramJudge(json.loads(sys.argv[1]))
gold = json.dumps({"inputs": ["2 3\\n"], "outputs": ["5\\n"]})
print(json.dumps([judge(gold, program) for program in sys.argv[2:]]))
judge.close()
"""
    adds = "print(sum(map(int, input().split())))"
    doors = ["import socket; socket.socket()", "import os; os.fork()", "open('/tmp/x', 'w')", "open('/proc/1/environ')"]
    programs = [adds, *(f"try:\n    {door}\nexcept OSError: {adds}" for door in doors), *doors]
    given = [CodeSettings().model_dump_json(), *programs]
    where = ["--user=10001:10001", f"-v={ROOT / 'tasks'}:/code/tasks:ro"]
    done = podman("run", "--rm", *LOCKED, *SPACE, *where, BASE, "python3", "-c", code, *given)
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout) == ["correct"] * 5 + ["wrong"] * 4


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


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of the run on this machine, by the command that a user types."""
    runner = Runner(tmp_path_factory.mktemp("here"))
    done = runner.run("mu_grpo", "--overrides", CHANGES)
    assert done.returncode == 0, done.stdout + done.stderr
    return runner.store


@pytest.mark.long
def test_four_stages_from_their_serialised_form_make_what_the_run_here_makes(
    podman: Podman, image: str, s3: S3, bucket: str, here: Path, tmp_path: Path
) -> None:
    """Every task from its registered command line, in the image, on S3; two trainings are stopped in the middle."""
    deployment = tmp_path / "deployment.yaml"
    name, _, tag = image.removeprefix("localhost/").partition(":")
    deployment.write_text(f"{{images: localhost/{name.removesuffix('-cpu')}, tag: {tag}}}")
    pods = Pods(podman, s3, bucket.removeprefix("s3://"), STOPPED)
    propeller = Propeller(serialise(tmp_path, deployment), s3, bucket.removeprefix("s3://"), pods.start)
    settings = RunSettings.read(CONFIG, CHANGES)
    given = {field: getattr(settings, field) for field in mu_grpo.python_interface.inputs if hasattr(settings, field)}
    literals = TypeEngine.dict_to_literal_map(
        FlyteContextManager.current_context(), {**given, "store": f"{bucket}/store"}, mu_grpo.python_interface.inputs
    )
    propeller.run("workflows.mu_grpo.mu_grpo", dict(literals.to_flyte_idl().literals))

    there = Store.open(f"{bucket}/store")
    for kind in ("prompts", "policy", "rollouts", "verdicts", "evaluation"):
        made = {manifest.ref for manifest in there.manifests(kind)}
        assert made == {manifest.ref for manifest in Store.open(here).manifests(kind)}, kind
        assert made
    assert sorted(Path(key).suffix for key in s3.keys(bucket.removeprefix("s3://")) if "/runs/" in key) == [".json"]
    again = [attempt for attempt in propeller.attempts if attempt.number]
    assert {(attempt.task, attempt.stage) for attempt in again} == STOPPED.keys()
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {one.commit.removesuffix("+") for one in there.manifests("policy")} == {head.stdout.strip()}
