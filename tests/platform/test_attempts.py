"""An attempt of a task: what is checked before it, and what Flyte is told of its end."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from flytekit.exceptions.user import FlyteRecoverableException
from flytekit.extend import IgnoreOutputs

from tasks.errors import DataError, DeviceError, SettingsError
from tasks.flyte import attempts, uncached
from tasks.process import logs
from tasks.process.interruption import Interrupted
from tasks.process.provenance import code
from tasks.store.lease import RunningWork


@pytest.mark.parametrize(("usable", "counted"), [(False, 0), (False, 4), (True, 3), (True, 4)])
def test_an_attempt_without_its_gpus_is_repeated(monkeypatch: pytest.MonkeyPatch, usable: bool, counted: int) -> None:
    """The driver's library counts GPUs also where CUDA cannot start."""
    monkeypatch.setenv("MU_GRPO_GPUS", "4")
    monkeypatch.setenv("MU_GRPO_CODE", f"{code().split()[0]} 0.0.9 4711abcd4711")  # The digests alone must be equal.
    monkeypatch.setattr(attempts, "in_pod", lambda: True)
    monkeypatch.setattr(logs, "_limit_seconds", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: usable)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: counted)
    worked, found = [], counted if usable else 0
    refused = pytest.raises(FlyteRecoverableException, match=f"the pod has 4 GPUs, but CUDA finds {found}")
    with nullcontext() if found == 4 else refused:
        attempts.attempt(lambda: worked.append(1))()
    assert len(worked) == (found == 4)
    assert logs._limit_seconds, "an attempt that hangs would never end"


def test_a_group_of_processes_tells_its_parent_its_first_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MU_GRPO_GPUS", str(torch.cuda.device_count() + 1))
    monkeypatch.setenv("MU_GRPO_ERROR_PATH", str(tmp_path / "error.json"))
    with pytest.raises(DeviceError):
        attempts.attempt(lambda: None)()
    attempts.write_error(DataError("that follows from it"))
    assert json.loads((tmp_path / "error.json").read_text())[0] == "tasks.errors:DeviceError"


def test_flyte_chooses_among_the_errors_of_several_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_F_DES", "1")
    monkeypatch.setattr(attempts, "in_pod", lambda: True)
    assert isinstance(attempts.to_flyte_error(Interrupted("stopped")), FlyteRecoverableException)
    assert attempts.to_flyte_error(of_other_node := IgnoreOutputs()) is of_other_node


@pytest.mark.parametrize("in_pod", [False, True])
def test_a_pod_opens_no_folder_as_a_runs_store(in_pod: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(uncached, "in_pod", lambda: in_pod)
    refused = pytest.raises(SettingsError, match="no other pod reaches; allowed: s3://bucket/prefix")
    with refused if in_pod else nullcontext():
        assert RunningWork(uncached.open_store(str(tmp_path))).keys == [uncached.process().name]
