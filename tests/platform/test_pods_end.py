"""The end of a pod: no connection stays open, and a group of processes has the time to save."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Timer

import pytest
from flyteidl.core import literals_pb2
from flytekit import current_context
from flytekit.exceptions.base import FlyteException
from flytekit.exceptions.user import FlyteUserRuntimeException
from flytekit.extend import IgnoreOutputs
from torch.distributed.elastic.multiprocessing.api import SignalException, _terminate_process_handler
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig

from tasks.errors import DeviceError
from tasks.flyte import training
from tasks.flyte.training import SHUTDOWN_SECONDS, relay_errors
from tasks.process.interruption import Interrupted
from tests.platform import own
from tests.platform.propeller import filled, literals
from tests.workflows.test_retry import SETTINGS
from tools import ROOT
from tools.s3 import S3

SHUTDOWN = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"


@pytest.mark.parametrize("given_by_flyte", [True, False])
def test_a_pod_that_used_s3_leaves_no_connection_open(given_by_flyte: bool, s3: S3, tmp_path: Path) -> None:
    """Where Flyte gives no endpoint, as with workload identity, flytekit has a client for every region."""
    name = s3.bucket()
    given = literals_pb2.LiteralMap(literals=literals(own.opens, {"store": f"s3://{name}/store"}))
    s3.put(f"{name}/inputs.pb", given.SerializeToString())
    places = (f"s3://{name}/inputs.pb", f"s3://{name}/outputs", f"s3://{name}")
    program, *arguments = filled(own.opens.get_command(SETTINGS), *places)
    command = [Path(sys.executable).with_name(program), *arguments]
    variables = s3.environment(tmp_path / "cache")
    by_flyte = {f"FLYTE_{name}": variables[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    by_flyte["FLYTE_AWS_ENDPOINT"] = s3.endpoint
    environment = {**os.environ, **variables, **(by_flyte if given_by_flyte else {}), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert "outputs/outputs.pb" in s3.keys(name), done.stdout + done.stderr
    assert "nclosed" not in done.stdout + done.stderr


@pytest.mark.parametrize(("told", "seconds"), [(None, SHUTDOWN_SECONDS), ("5", 5)])
def test_torch_gives_time_for_a_checkpoint(told: str | None, seconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group of processes that is asked to stop saves first; torch kills it after its own time otherwise."""
    monkeypatch.setattr(os, "environ", {SHUTDOWN: told} if told else {})
    with relay_errors():
        assert LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=1).shutdown_timeout == seconds
    assert training.TRAINING.rdzv_configs["read_timeout"] == 900  # seconds until the pod of rank 0 is there


@pytest.mark.parametrize(
    ("cause", "raised"), [(SignalException("", signal.SIGTERM), Interrupted), (None, IgnoreOutputs)]
)
def test_a_signal_before_a_group_can_save_interrupts_it(
    cause: Exception | None, raised: type[Exception], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a signal, the pod of a node without rank 0 ends after that of rank 0 has written the outputs."""
    monkeypatch.setattr(training, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(current_context(), "_output_metadata_prefix", str(tmp_path))
    written, outputs = tmp_path / "outputs.pb", IgnoreOutputs()
    outputs.__context__ = cause
    if cause is None:
        Timer(0.5, written.touch).start()
    with pytest.raises(raised), relay_errors():
        raise outputs
    assert written.exists() == (cause is None)


@pytest.mark.parametrize(
    ("code", "raised", "told"),
    [(-9, DeviceError, "process 1 of the training was killed, as for lack of memory"), (1, FlyteException, "exitcode")],
)
def test_a_killed_process_of_a_group_is_named(code: int, raised: type[Exception], told: str) -> None:
    error = FlyteUserRuntimeException(ChildFailedError("group", {1: ProcessFailure(1, 5, code, "<N/A>")}))
    error.__context__ = error.value
    with pytest.raises(raised, match=told), relay_errors():
        raise error


def test_elastic_leaves_no_handler_of_signals_to_the_next_step() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with training.relay_errors():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _terminate_process_handler)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
