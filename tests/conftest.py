"""Fixtures that many tests share: an empty store, and a policy that is made in a second.

Torch and the modules that need it are imported in the fixtures: the process that only distributes tests to the others
starts without them.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # Also in the processes that tests start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # As of a program that a script starts in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest
from hypothesis import settings

from tasks.settings import ArithmeticSettings, PolicySettings, RunSettings, TinyPolicySettings, WarmStartSettings
from tasks.store import ArtifactRef, Store
from tools.runs import CONFIG
from tools.s3 import S3, rclone, server, versitygw
from tools.system_programs import find

if TYPE_CHECKING:
    from tests.prepared import Small

settings.register_profile("busy", deadline=None)  # For a busy machine.
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
LONGEST = (
    *("test_driven", "test_reproduce", "test_mu_grpo", "test_laboratory", "test_processes", "test_kills"),
    *("test_backends", "test_measured", "test_answer_forms", "test_alternating_processes", "test_grpo", "test_killed"),
    *("test_stored_runs", "test_retry", "test_decks"),
)
"""Files that take the longest, in this order. They begin first, so that no process waits for one of them at the end."""
WHOLE = {
    *("cli", "cluster", "code", "docs", "faults", "flyte", "gpu", "images", "k8s"),
    *("platform", "preflight", "tracking", "workflows"),
    *("test_alternating_processes", "test_backends", "test_measured", "test_parallel"),
    *("test_figures", "test_hostile", "test_logs", "test_page_in_browser", "test_resident"),
    *("test_verifier",),
}
"""Folders and files whose tests start servers, whole runs or other processes, or draw many figures."""
TOGETHER = ("tests/experiments", "tests/report")
"""Folders whose files share runs and figures."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that are not unit tests, and order all tests."""
    for item in items:
        if WHOLE & {item.path.parent.name, item.path.stem} or "s3" in getattr(item, "fixturenames", ()):
            item.add_marker("whole")
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


@pytest.hookimpl(optionalhook=True)  # The hook is part of pytest-xdist, which may be absent.
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Give each file to one process, or each folder whose files share results that take long to make."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            folder = file.rpartition("/")[0]
            return folder if folder in TOGETHER else file

    return Scheduling(config, log)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store")


@pytest.fixture(scope="session")
def s3(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """An S3 server: the fastest one that is installed, or every make for the tests with ``writers.EVERY_MAKE``."""
    make = getattr(request, "param", "versitygw" if find("versitygw") else "moto")
    folder = tmp_path_factory.mktemp("s3") / "served"
    paged = server({"MOTO_S3_DEFAULT_MAX_KEYS": "4"})  # so that listings have several pages
    with {"versitygw": versitygw(folder), "rclone": rclone(folder)}.get(make, paged) as running:
        yield running


@pytest.fixture
def bucket(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an empty bucket, with the environment of this process set to reach it."""
    for name, value in s3.environment(tmp_path / "cache").items():
        monkeypatch.setenv(name, value)
    return f"s3://{s3.bucket()}"


@pytest.fixture(params=["folder", "s3"])
def any_store(request: pytest.FixtureRequest, bucket: str, tmp_path: Path) -> Store:
    """An empty store in a folder, and one on S3."""
    return Store.open(f"{bucket}/deep/prefix" if request.param == "s3" else tmp_path / "store")


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, ArtifactRef]:
    """A store with a tiny policy. Tests read it and may add artifacts, but must not change existing ones."""
    from tasks.models.step import prepare_policy

    store = Store.open(tmp_path_factory.mktemp("small") / "store")
    return store, prepare_policy(store, PolicySettings(tiny=SMALL), ArithmeticSettings(), "", 0)


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> "Small":
    """A store for one test file, with a policy whose answers are sometimes correct."""
    from tasks.models.step import prepare_policy
    from tests.prepared import made_once

    settings = RunSettings.read(CONFIG, "policy.tiny.warm_start.guessing_updates=10")

    def make(folder: Path) -> None:
        prepare_policy(Store.open(folder / "store"), settings.policy, ArithmeticSettings(levels=[1]), "", 0)

    _, copy = made_once(tmp_path_factory, "learner", make)
    store = Store.open(copy / "store")
    (policy,) = store.manifests("policy")
    return store, policy.ref


@pytest.fixture(scope="session")
def base(small: tuple[Store, ArtifactRef]) -> Path:
    """The folder of the tiny policy."""
    return small[0].path(small[1])


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """One thread, for tests that compare the bits of floats between batches of different shapes."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
