"""Writers of artifacts: one, several at once, and one that is killed."""

import signal
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from tasks.store import ArtifactRef, Store
from tests.prepared import run_python

Made = TypeVar("Made")
EVERY_MAKE = pytest.mark.parametrize("s3", ["moto", "versitygw", "rclone"], indirect=True)
"""Runs a test on every make of S3 server, because it depends on what the server does."""


def write(
    store: Store,
    text: str = "hello",
    parents: Mapping[str, ArtifactRef] | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 3,
) -> ArtifactRef:
    """Write an artifact of two files, one of them in a folder."""
    with store.write("prompts", settings=settings or {"a": 1}, parents=parents or {}, seed=seed) as draft:
        (draft.path / "sub").mkdir()
        (draft.path / "sub" / "data.txt").write_text(text)
        (draft.path / "other.txt").write_text("other")
        with draft.phase("load"):
            draft.facts["rows"] = 1
    return draft.ref


def run_at_once(calls: list[Callable[[], Made]]) -> list[Made]:
    """Make calls in threads of their own; return their results."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [made.result() for made in [pool.submit(call) for call in calls]]


def run_until_killed(store: Store, code: str) -> None:
    """Run code with a store in a process that kills itself by ``die``."""
    begin = "import os, signal, sys\nfrom tasks.store import Store\nstore = Store.open(sys.argv[1])\n"
    die = "def die(*_, **__): os.kill(os.getpid(), signal.SIGKILL)\n"
    done = run_python(begin + die + code, store.ref.uri)
    assert done.returncode == -signal.SIGKILL, done.stderr
