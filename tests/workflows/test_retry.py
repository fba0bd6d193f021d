"""A task as a pod runs it: stopped by SIGTERM it asks to be retried, and the retry goes on where it stood."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from flyteidl.core import errors_pb2, literals_pb2
from flytekit import FlyteContextManager
from flytekit.core.type_engine import TypeEngine
from flytekit.core.utils import load_proto_from_file, write_proto_to_file

from tasks.artifacts import ArtifactRef, Store
from tasks.artifacts.provenance import code
from tasks.optimize.task import optimize
from tasks.rollout.step import generate_shard
from tasks.settings import OperationSettings, OptimizeSettings
from tasks.verify.step import verify_rollouts
from tests.prepared import prepare_stage
from tests.workflows import test_grpo
from tests.workflows.test_grpo import PROMPTS, ROLLOUT, VERIFY

learner = test_grpo.learner
ROOT = Path(__file__).parents[2]


@pytest.fixture
def inputs(learner: tuple[Store, ArtifactRef], tmp_path: Path) -> Path:
    """The input of the optimize task, as Flyte writes it: many small updates."""
    store, policy = learner
    prompts = PROMPTS.model_copy(update={"prompts_per_stage": 256, "prompts_per_shard": 256})
    rollouts = [generate_shard(store, ROLLOUT, policy, shard, 0, 0) for shard in prepare_stage(store, prompts, 0, 0)]
    values = {
        "store": store.ref,
        "settings": OptimizeSettings.parse({"preset": "mu_grpo", "responses_per_update": 4, "learning_rate": 1e-4}),
        "reference": policy,
        "policy": policy,
        "rollouts": rollouts,
        "verdicts": verify_rollouts(store, VERIFY, rollouts, 0, 0),
        "stage": 0,
        "seed": 0,
        "operation": OperationSettings(updates_per_checkpoint=8),
    }
    context = FlyteContextManager.current_context()
    types = optimize.python_interface.inputs
    literals = TypeEngine.dict_to_literal_map(context, values, types)
    path = tmp_path / "inputs.pb"
    write_proto_to_file(literals.to_flyte_idl(), str(path))
    return path


def attempt(folder: Path, inputs: Path, number: int, **variables: str) -> subprocess.Popen[str]:
    outputs, checkpoints = folder / f"outputs-{number}", folder / f"checkpoint-{number}"
    outputs.mkdir()
    before = ["--prev-checkpoint", str(folder / f"checkpoint-{number - 1}")] if number else []
    command = [
        str(Path(sys.executable).parent / "pyflyte-execute"),
        *("--inputs", str(inputs), "--output-prefix", str(outputs), "--raw-output-data-prefix", str(folder / "raw")),
        *("--checkpoint-path", str(checkpoints), *before),
        *("--resolver", "flytekit.core.python_auto_container.default_task_resolver", "--"),
        *("task-module", "tasks.optimize.task", "task-name", "optimize"),
    ]
    environment = {**os.environ, "HOME": str(folder), "FLYTE_INTERNAL_EXECUTION_ID": "e", **variables}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_a_stopped_task_asks_for_a_retry_that_goes_on(
    learner: tuple[Store, ArtifactRef], inputs: Path, tmp_path: Path
) -> None:
    store, _ = learner
    with attempt(tmp_path, inputs, 0) as first:
        for _ in range(6000):
            if list(store.root.glob("progress/*/train-*/manifest.json")) or first.poll() is not None:
                break
            time.sleep(0.01)
        first.send_signal(signal.SIGTERM)
        output = first.communicate(timeout=300)[0]
    error = load_proto_from_file(errors_pb2.ErrorDocument, str(tmp_path / "outputs-0/error.pb")).error
    assert error.kind == errors_pb2.ContainerError.RECOVERABLE, output
    assert "stopped by SIGTERM after update" in error.message
    deck = (tmp_path / "outputs-0/deck.html").read_text()
    assert error.message.split("after ")[1].split(".")[0] in deck
    assert "<td>4</td>" in deck.partition("responses_per_update")[2][:40]
    (pointer,) = (tmp_path / "checkpoint-0").iterdir()
    saved = pointer.read_text()
    assert saved.startswith("progress/")
    assert (store.root / saved / "manifest.json").is_file()
    with attempt(tmp_path, inputs, 1) as second:
        output = second.communicate(timeout=300)[0]
    assert second.returncode == 0, output
    assert f"optimize: an earlier attempt saved {saved} in {store.ref.uri}" in output
    assert "logp" not in output.replace(saved, "")
    made = load_proto_from_file(literals_pb2.LiteralMap, str(tmp_path / "outputs-1/outputs.pb"))
    assert made.literals["o0"]
    policy = next(one for one in store.manifests("policy") if one.facts["updates"] == 256)
    assert policy.task == "optimize"
    assert policy.digest in (tmp_path / "outputs-1/deck.html").read_text()
    assert not list(store.root.glob("progress/*"))


def test_a_task_of_other_code_than_its_images_is_refused(inputs: Path, tmp_path: Path) -> None:
    with attempt(tmp_path, inputs, 0, MU_GRPO_CODE="0123456789ab 0.0.9 4711abcd4711") as only:
        output = only.communicate(timeout=300)[0]
    error = load_proto_from_file(errors_pb2.ErrorDocument, str(tmp_path / "outputs-0/error.pb")).error
    assert error.kind == errors_pb2.ContainerError.NON_RECOVERABLE, output
    assert "registered from code 0123456789ab 0.0.9 4711abcd4711" in error.message
    assert f"but runs code {code()}" in error.message
    assert "Push images of the commit that is registered" in error.message
