"""A step that makes parts and then an artifact of them, and what must hold of a store that it was disturbed in."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tasks.store import ArtifactRef, Store
from tasks.store.files import check
from tasks.store.progress import Progress
from tasks.store.work import run_once
from tests.faults.guarded import act_as
from tools.s3 import S3

PARTS = 4


class Killed(Exception):
    """The process dies here."""


class Step:
    def __init__(self, stop_at: int | None = None) -> None:
        self.made: list[int] = []
        self._stop_at = stop_at

    def __call__(self, store: Store) -> ArtifactRef:
        tables = [store.progress.table("part", number, lambda n=number: self.make(n)) for number in range(PARTS)]
        with store.write("rollouts", settings={}, parents={}, seed=0) as draft:
            for number, table in enumerate(tables):
                (draft.path / f"{number}.txt").write_text(str(table.to_pydict()))
        return draft.ref

    def make(self, number: int) -> pa.Table:
        if number == self._stop_at:
            self._stop_at = None
            raise Killed
        self.made.append(number)
        return pa.table({"number": [number] * 100})

    def work(self, store: Store) -> ArtifactRef:
        return run_once(store.ref, "step", "1", self)

    def work_elsewhere(self, store: Store) -> tuple[ArtifactRef, list[int]]:
        """Do the step as on another machine; return what it made, and the parts that it did not find."""
        shutil.rmtree(store.root)
        self.made.clear()
        return self.work(store), self.made


@contextmanager
def kill_after(parts: int) -> Iterator[list[int]]:
    """Kill the process when it saves one more part than these; yield a list that grows with every part saved."""
    put, saved = Progress.put, list[int]()

    def counted(self: Progress, name: str, number: int, *rest: Any) -> None:
        if len(saved) == parts:
            raise Killed
        put(self, name, number, *rest)
        saved.append(number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Progress, "put", counted)
        yield saved


def assert_holds_only(s3: S3, address: str, refs: set[ArtifactRef]) -> None:
    """Check that another machine finds these artifacts in a store, each whole, and nothing else."""
    with tempfile.TemporaryDirectory() as cache, pytest.MonkeyPatch.context() as patch:
        act_as(s3.environment(Path(cache)), patch)  # of the server itself, without a local copy
        there = Store.open(address, create=False)
        assert {manifest.ref for kind in ("rollouts", "policy") for manifest in there.manifests(kind)} == refs
        for ref in refs:
            assert there.holds(ref)
            check(there.path(ref), there.manifest(ref).files)
    folders = tuple(ref.folder for ref in refs)
    assert all(key.startswith((*folders, "made/", "store.json")) for key in s3.keys(address))
