"""What many tests share: an empty store, and a policy that is small enough to be made in a second."""

import os
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of tests side by side, and of the processes they start

import pytest
import torch
from hypothesis import settings

from tasks.models.step import prepare_policy
from tasks.settings import ArithmeticSettings, PolicySettings, TinyPolicySettings, WarmStartSettings
from tasks.store import ArtifactRef, Store
from tools.s3 import S3, server

settings.register_profile("busy", deadline=None)  # for a machine that does much else
settings.load_profile("busy")
SMALL = TinyPolicySettings(
    hidden_size=32,
    layers=2,
    heads=2,
    key_value_heads=1,
    intermediate_size=48,
    context_tokens=64,
    warm_start=WarmStartSettings(working_updates=6, guessing_updates=6, examples_per_update=16),
)


FIRST = ("platform", "images", "workflows", "faults")
"""Folders with the longest files: with files side by side, these must not be the last to begin."""
WHOLE = {
    *FIRST,
    *("cli", "cluster", "code", "docs", "flyte", "gpu", "k8s", "preflight", "tracking"),
    *("test_alternating_processes", "test_backends", "test_batch_statistics", "test_measured", "test_spread"),
    *("test_figures", "test_hostile", "test_page_in_browser"),
}
"""Folders and files whose tests start servers, whole runs or programs, or draw many figures."""
TOGETHER = ("tests/experiments", "tests/report")
"""Folders whose files share runs and figures."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that are no unit tests, and order them."""
    for item in items:
        if WHOLE & {item.path.parent.name, item.path.stem} or "s3" in getattr(item, "fixturenames", ()):
            item.add_marker("whole")
    items.sort(key=lambda item: item.path.parent.name not in FIRST)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist, without which tests follow each other
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """A file to a process, and a folder where files share what takes long to make."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            folder = file.rpartition("/")[0]
            return folder if folder in TOGETHER else file

    return Scheduling(config, log)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store.open(tmp_path / "store")


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    """An S3 server."""
    with server() as running:
        yield running


@pytest.fixture
def bucket(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an empty bucket, which this process can reach."""
    for name, value in s3.environment(tmp_path / "cache").items():
        monkeypatch.setenv(name, value)
    return f"s3://{s3.bucket()}"


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, ArtifactRef]:
    """A store with a tiny policy in it. Tests read it and may add to the store, never change what is there."""
    store = Store.open(tmp_path_factory.mktemp("small") / "store")
    return store, prepare_policy(store, PolicySettings(tiny=SMALL), ArithmeticSettings(), "", 0)


@pytest.fixture
def threads() -> Iterator[None]:
    """One thread, for tests that compare floats bit by bit across differently shaped work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
