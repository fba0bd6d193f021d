"""The cpu image: what is in it, and tasks in it as a pod starts them, against an S3 server; its base, with programs.

What runs in an image before its packages come is the same in every image, and tried in each.
"""

import json
import signal
import subprocess
import threading
import time
import tomllib
import uuid
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tasks.settings import CodeSettings
from tests.images.podman import BASE, Podman, torch_for_cpus_is_reached
from tests.platform.four_stages import drive, has_saved_a_part, run_here, signal_for
from tests.platform.propeller import Attempt
from tests.waiting import until
from tools import ROOT
from tools.s3 import S3
from tools.serialised import serialise

pytestmark = pytest.mark.timeout(2400)
GPU_IMAGES = ("rollout", "train", "alternate")
# As k8s asks of every pod: no rights, and nothing to write to but /tmp.
LOCKED = ["--read-only", "--read-only-tmpfs=false", "--cap-drop=all", "--security-opt=no-new-privileges"]
SPACE = ["--tmpfs=/tmp:rw,mode=1777,size=1g"]


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Podman:
    return Podman(tmp_path_factory.mktemp("podman"))


def test_programs_are_confined_in_a_locked_pod(podman: Podman) -> None:
    """The sandbox loads Python's own modules alone, so that the image's base is enough for it."""
    podman.make_base()
    code = """
import json, sys
sys.path.insert(0, "/code")
from tasks.verify.code.judge import Sandbox, judge_program
sandbox = Sandbox(json.loads(sys.argv[1]))
gold = json.dumps({"inputs": ["2 3\\n"], "outputs": ["5\\n"]})
print(json.dumps([judge_program(sandbox, gold, program) for program in sys.argv[2:]]))
sandbox.close()
"""
    adds = "print(sum(map(int, input().split())))"
    doors = [
        "import socket; socket.socket()",
        "import os; os.fork()",
        "open('/tmp/file', 'w')",
        "open('/proc/1/environ')",
    ]
    programs = [adds, *(f"try:\n    {door}\nexcept OSError: {adds}" for door in doors), *doors]
    given = [CodeSettings().model_dump_json(), *programs]
    where = ["--user=10001:10001", f"-v={ROOT / 'tasks'}:/code/tasks:ro"]
    done = podman("run", "--rm", *LOCKED, *SPACE, *where, BASE, "python3", "-c", code, *given)
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout) == ["correct"] * 5 + ["wrong"] * 4


@pytest.mark.parametrize("role", ["cpu", *(pytest.param(role, marks=pytest.mark.long) for role in GPU_IMAGES)])
@pytest.mark.parametrize(
    ("handler", "status"), [("", 128 + signal.SIGTERM), ("signal.signal(15, lambda *_: exit(7))", 7)]
)
def test_sigterm_ends_a_process_or_reaches_its_handler(podman: Podman, role: str, handler: str, status: int) -> None:
    name = f"mu-grpo-test-{uuid.uuid4().hex[:8]}"
    code = f"import signal, time\n{handler}\nprint('ready', flush=True)\ntime.sleep(600)"
    where = (f"--name={name}", *LOCKED, *SPACE, podman.build(role, "runtime"))
    started = podman("run", "-d", *where, "python3", "-c", code)
    assert started.returncode == 0, started.stdout
    try:
        until(lambda: "ready" in podman("logs", name).stdout, seconds=60)
        before = time.monotonic()
        podman("stop", "--time=60", name)
        assert time.monotonic() - before < 30
        assert podman("inspect", "--format={{.State.ExitCode}}", name).stdout.strip() == str(status)
    finally:
        podman("rm", "--force", "--time=0", name)


@pytest.fixture(scope="module")
def image(podman: Podman) -> str:
    if not torch_for_cpus_is_reached():
        pytest.skip("the CPU wheel of torch is not reached: set PIP_FIND_LINKS to a folder that has it")
    return podman.build("cpu")


def test_labels_name_the_commit_of_the_image(podman: Podman, image: str) -> None:
    (inspected,) = json.loads(podman("image", "inspect", image).stdout)
    labels = inspected["Config"]["Labels"]
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert labels["org.opencontainers.image.revision"].removesuffix("+") == head.stdout.strip()
    assert labels["org.opencontainers.image.version"] == "test"
    assert inspected["Config"]["User"] == "10001:10001"


def test_the_image_has_the_packages_of_its_role_alone(podman: Podman, image: str) -> None:
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


def test_the_command_runs_in_the_image(podman: Podman, image: str) -> None:
    shown = podman("run", "--rm", *LOCKED, *SPACE, image, "mu-grpo", "algorithms")
    assert shown.returncode == 0
    assert "mu_grpo" in shown.stdout


class Pods:
    def __init__(self, podman: Podman, s3: S3, bucket: str) -> None:
        self._podman, self._s3, self._bucket = podman, s3, bucket

    def start(self, attempt: Attempt) -> str:
        environment = {**attempt.environment, **self._s3.environment(Path("/tmp/cache")), "OMP_NUM_THREADS": "1"}
        name = f"mu-grpo-test-{uuid.uuid4().hex[:8]}"
        wanted, ended = signal_for(attempt), threading.Event()
        killer = threading.Thread(target=self._kill, args=(name, wanted, ended))
        if wanted:
            killer.start()
        done = self._podman(
            *("run", "--rm", f"--name={name}", "--network=host", *LOCKED, *SPACE, "--memory=4g"),
            *(f"--env={key}={value}" for key, value in environment.items()),
            attempt.image,
            *attempt.arguments,
        )
        ended.set()
        if wanted:
            killer.join()
            # 128 and more: ended by the signal; the step ends after SIGTERM and says so in error.pb.
            assert wanted != signal.SIGKILL or done.returncode == 128 + wanted, done.stdout
        return done.stdout

    def _kill(self, name: str, how: signal.Signals, ended: threading.Event) -> None:
        while not ended.is_set():
            if has_saved_a_part(self._s3, self._bucket):
                self._podman("kill", f"--signal={how.name}", name)
                return
            time.sleep(0.05)


@pytest.mark.parametrize(("stages", "workflow"), [(1, "mu_grpo_1"), pytest.param(4, "mu_grpo", marks=pytest.mark.long)])
def test_stages_from_their_serialised_form_make_what_the_run_here_makes(
    podman: Podman, image: str, s3: S3, bucket: str, tmp_path: Path, stages: int, workflow: str
) -> None:
    """Every task from its registered command line, in the image, on S3; trainings are stopped in the middle."""
    name, here = bucket.removeprefix("s3://"), run_here(tmp_path / "here", workflow)
    images, _, tag = image.partition("-cpu:")
    deployment = tmp_path / "deployment.yaml"
    deployment.write_text(f"images: {images}\ntag: {tag}\n")
    drive(serialise(tmp_path, deployment), s3, name, Pods(podman, s3, name).start, here, stages)
