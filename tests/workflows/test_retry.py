"""A task as a pod runs it: stopped by SIGTERM it asks to be retried, and the retry goes on where it stood."""

import os
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from flyteidl.core import errors_pb2, execution_pb2, literals_pb2
from flytekit import PythonFunctionTask, map_task
from flytekit.configuration import ImageConfig, SerializationSettings
from flytekit.core.array_node_map_task import ArrayNodeMapTask
from flytekit.core.utils import load_proto_from_file

from tasks.flyte.inputs import OptimizeInputs, RolloutInputs
from tasks.flyte.tasks import generate, optimize
from tasks.process.provenance import code
from tasks.settings import BackendSettings, OperationSettings
from tasks.store import ArtifactRef
from tests.platform.propeller import filled, literals
from tests.prepared import IN_PARTS, OPTIMIZE, PROMPTS, Small, prepare_prompts, prepare_verdicts
from tests.report.pages import words
from tests.train.small import zero
from tests.workflows.failing import fail
from tests.workflows.runs import assert_succeeded
from tools.forked import Program

SETTINGS = SerializationSettings(image_config=ImageConfig.auto(img_name="image:tag"))
MANY = PROMPTS.model_copy(update={"prompts_per_stage": 256, "prompts_per_shard": 256})
OTHER = "0123456789ab 0.0.9 4711abcd4711"
"""The identity of other code."""
Pod = Callable[..., Program]
"""Starts an attempt of a task, by its number, with these variables."""


def pod_of(task: PythonFunctionTask | ArrayNodeMapTask, values: Mapping[str, Any], folder: Path) -> Pod:
    """How Flyte starts a task with these inputs; an attempt's data are in folders that end with its number."""
    inputs = literals_pb2.LiteralMap(literals=literals(task, values))
    (folder / "inputs.pb").write_bytes(inputs.SerializeToString())

    def start(number: int, **variables: str) -> Program:
        outputs, earlier = folder / f"outputs-{number}", f"{folder}/{number - 1}/checkpoint" if number else '""'
        outputs.mkdir()
        data = (str(folder / "inputs.pb"), str(outputs), f"{folder}/{number}", earlier)
        command = filled(task.get_command(SETTINGS), *data)
        environment = {**os.environ, "HOME": str(folder), "FLYTE_INTERNAL_EXECUTION_ID": "e", **variables}
        return Program(command, environment, together=True)

    return start


def training_values(
    inputs: OptimizeInputs, policy: ArtifactRef, rollouts: list[ArtifactRef], verdicts: ArtifactRef
) -> dict[str, Any]:
    """The inputs of the task that trains in a first stage."""
    same = {"inputs": inputs, "reference": policy, "policy": policy}
    return {**same, "rollouts": rollouts, "verdicts": verdicts, "stage": 0}


def stopped(first: Program, saved: Callable[[], bool], folder: Path) -> errors_pb2.ContainerError:
    """What an attempt tells Flyte that gets SIGTERM once it has saved something."""
    while not saved() and first.returncode is None:
        time.sleep(0.01)
    first.send(signal.SIGTERM)
    output = first.end().stdout
    error = load_proto_from_file(errors_pb2.ErrorDocument, str(folder / "outputs-0/error.pb")).error
    assert error.kind == errors_pb2.ContainerError.RECOVERABLE, output
    assert error.origin == execution_pb2.ExecutionError.SYSTEM  # It counts against no retries.
    assert abs(error.timestamp.seconds - time.time()) < 300
    assert not (folder / "outputs-0/outputs.pb").exists()
    assert error.message.split("after ")[1].split(".")[0] in (folder / "outputs-0/deck.html").read_text()
    return error


@pytest.mark.parametrize("backend", [{}, pytest.param(zero("3"), marks=pytest.mark.long)], ids=["torch", "deepspeed"])
def test_a_stopped_task_asks_for_a_retry_that_goes_on(learner: Small, backend: Any, tmp_path: Path) -> None:
    """The task trains with many small updates."""
    store, policy = learner
    rollouts, verdicts = prepare_verdicts(store, policy, MANY)
    settings = OPTIMIZE.model_copy(update={"responses_per_update": 4, "backend": BackendSettings.parse(backend)})
    often = OperationSettings(updates_per_checkpoint=8)
    inputs = OptimizeInputs(store=store.ref, seed=0, settings=settings, operation=often)
    start = pod_of(optimize, training_values(inputs, policy, rollouts, verdicts), tmp_path)
    error = stopped(start(0), lambda: any(store.root.glob("progress/*/train-*/manifest.json")), tmp_path)
    assert "stopped by SIGTERM after update" in error.message
    assert "<td>4</td>" in (tmp_path / "outputs-0/deck.html").read_text().partition("responses_per_update")[2][:40]
    states = [int(one.parent.name.rpartition("-")[2]) for one in store.root.glob("progress/*/train-*/manifest.json")]
    second = assert_succeeded(start(1).end())
    assert max(states) > 0
    assert "logp" not in second.stdout  # Log-probabilities of the behavior policy are looked at before update 0 alone.
    made = load_proto_from_file(literals_pb2.LiteralMap, str(tmp_path / "outputs-1/outputs.pb"))
    assert made.literals["o0"]
    trained = next(one for one in store.manifests("policy") if one.facts["updates"] == 256)
    assert trained.task == "optimize"
    assert trained.digest in (tmp_path / "outputs-1/deck.html").read_text()
    assert not list(store.root.glob("progress/*"))


def test_a_stopped_shard_of_a_map_task_asks_for_a_retry_that_leaves_a_deck(learner: Small, tmp_path: Path) -> None:
    """A map task by itself writes no deck."""
    store, policy = learner
    inputs = RolloutInputs(store=store.ref, seed=1, settings=IN_PARTS)
    mapped = map_task(partial(generate, inputs=inputs, policy=policy, stage=0))
    shards = prepare_prompts(store, MANY.model_copy(update={"prompts_per_shard": 128}), 0, 1)
    values = {"inputs": inputs, "policy": policy, "prompts": shards, "stage": 0}
    index = {"BATCH_JOB_ARRAY_INDEX_VAR_NAME": "FLYTE_K8S_ARRAY_INDEX", "FLYTE_K8S_ARRAY_INDEX": "1"}
    start = pod_of(mapped, values, tmp_path)
    error = stopped(start(0, **index), lambda: len(list(store.root.glob("progress/*/rollouts-*"))) > 4, tmp_path)
    assert " of rollouts. Start the same command again" in error.message
    assert_succeeded(start(1, **index).end())
    assert (tmp_path / "outputs-1/outputs.pb").is_file()
    assert not list(store.root.glob("progress/*"))
    (made,) = (one for one in store.manifests("rollouts") if one.parents["prompts"] == [shards[1]])
    deck = words((tmp_path / "outputs-1/deck.html").read_text())
    for text in (made.digest, "First rows of rollouts.parquet prompt_id prompt answer", "responses_per_prompt 4"):
        assert text in deck


@pytest.mark.parametrize(
    ("kind", "registered", "recoverable", "message"),
    [
        ("RuntimeError", None, True, "RuntimeError: what went wrong"),
        ("StorageError", None, True, "StorageError: what went wrong"),
        ("DamagedError", None, False, "DamagedError: what went wrong"),
        ("ok", OTHER, False, f"registered from code {OTHER}, but runs code {code()} (digest, version, commit). Push"),
    ],
    ids=["any other", "of a store", "of a file", "of other code"],
)
def test_errors_that_a_retry_can_fix_are_recoverable(
    kind: str, registered: str | None, recoverable: bool, message: str, tmp_path: Path
) -> None:
    variables = {"MU_GRPO_CODE": registered} if registered else {}
    output = pod_of(fail, {"kind": kind}, tmp_path)(0, **variables).end().stdout
    error = load_proto_from_file(errors_pb2.ErrorDocument, str(tmp_path / "outputs-0/error.pb")).error
    assert (error.kind == errors_pb2.ContainerError.RECOVERABLE) is recoverable, output
    assert error.origin == execution_pb2.ExecutionError.USER
    assert message in error.message
