"""A group of processes that is asked to stop has as long as a checkpoint takes, before torch kills it."""

import os

import pytest
from torch.distributed.launcher.api import LaunchConfig

from tasks.flyte.training import SHUTDOWN_SECONDS, listening

SHUTDOWN = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"


@pytest.mark.parametrize(("told", "seconds"), [(None, SHUTDOWN_SECONDS), ("5", 5)])
def test_torch_waits_for_a_checkpoint_unless_told_otherwise(
    told: str | None, seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ})
    os.environ.pop(SHUTDOWN, None)
    if told:
        os.environ[SHUTDOWN] = told
    with listening():
        assert LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=1).shutdown_timeout == seconds
