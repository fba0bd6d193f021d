"""An attempt in a pod with GPUs that CUDA does not find."""

import json
from pathlib import Path

import pytest
import torch
from flytekit.exceptions.user import FlyteRecoverableException

from tasks.errors import DeviceError
from tasks.flyte import attempts


@pytest.mark.parametrize(("usable", "counted"), [(False, 0), (False, 4), (True, 3)])
def test_an_attempt_without_its_gpus_is_repeated(monkeypatch: pytest.MonkeyPatch, usable: bool, counted: int) -> None:
    """The driver's library counts GPUs also where CUDA cannot start."""
    monkeypatch.setenv("MU_GRPO_GPUS", "4")
    monkeypatch.setattr(attempts, "in_pod", lambda: True)
    monkeypatch.setattr(attempts, "end_when_it_hangs", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: usable)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: counted)
    worked, found = [], counted if usable else 0
    with pytest.raises(FlyteRecoverableException, match=f"the pod has 4 GPUs, but CUDA finds {found}"):
        attempts.attempt(lambda: worked.append(1))()
    assert not worked


def test_a_process_of_a_group_tells_its_parent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MU_GRPO_GPUS", str(torch.cuda.device_count() + 1))
    monkeypatch.setenv("MU_GRPO_ERROR_PATH", str(tmp_path / "error.json"))
    with pytest.raises(DeviceError):
        attempts.attempt(lambda: None)()
    assert json.loads((tmp_path / "error.json").read_text())[0] == "tasks.errors:DeviceError"
