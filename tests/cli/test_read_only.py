"""Commands that only look at a store work where this user may not write to it: a folder, and a bucket."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from filelock import FileLock

from tasks.cli.inspect import Chosen, inspect_stage
from tasks.cli.runs import all_runs, report_of
from tasks.cli.store import lineage_json
from tasks.errors import ArtifactError
from tasks.report.step import write_report
from tasks.store import Store
from tasks.store.layout import LEASES
from tasks.stored.check import check_store
from tasks.stored.garbage import find_garbage
from tests.cli.synthetic import age, finished, folders, names, plain
from tests.faults.guarded import Guarded, act_as
from tests.report.synthetic import make_run
from tools.s3 import server

NOBODY = 65534
HOURS = 48.0


@contextmanager
def only_reading(root: Path) -> Iterator[None]:
    """Nothing below a folder can be written inside the block, by root neither."""
    for path in (root, *root.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        for path in (root, *root.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder that every user can enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_the_page_of_a_run_in_a_folder_that_is_only_read(open_to_all: Path, tmp_path: Path) -> None:
    run = make_run(open_to_all / "store", 1)
    write_report(run.store, run.evaluations, run.seed)
    page = Path(tempfile.mkdtemp()) / "page.html"
    page.parent.chmod(0o777)
    before = {path: path.stat().st_mtime_ns for path in run.store.root.rglob("*")}
    with only_reading(run.store.root):
        summary = report_of(Store.open(run.store.root, create=False), None, None, page)
    assert summary.report == str(page)
    assert run.evaluations[0].digest in page.read_text(encoding="utf-8")
    assert {path: path.stat().st_mtime_ns for path in run.store.root.rglob("*")} == before
    with only_reading(run.store.root), pytest.raises(ArtifactError, match="Permission denied"):
        report_of(Store.open(run.store.root, create=False), None, None, None)


def test_garbage_in_a_folder_that_is_only_read(open_to_all: Path) -> None:
    store = Store.open(open_to_all / "store")
    kept, loose = finished(store), finished(store, seed=1)
    assert kept.report is not None
    assert loose.report is not None
    (store.root / loose.report.folder / "manifest.json").unlink()
    age(store, HOURS)
    (store.root / LEASES).mkdir()
    held, free = (store.root / LEASES / f"{name}.lock" for name in ("held", "free"))
    free.touch()
    os.utime(free, (0, 0))
    with only_reading(store.root):
        found = find_garbage(Store.open(store.root, create=False))
        assert check_store(store).faults == []
        assert "response" in plain(inspect_stage(store, 1, 0, None, Chosen()))
        assert lineage_json(store, str(kept.policies[-1]))
    assert folders(*loose.policies) <= names(found)
    assert f"{LEASES}/free.lock" in names(found)
    assert found.work.keys == []
    with FileLock(held), only_reading(store.root):
        assert find_garbage(Store.open(store.root, create=False)).work.keys == ["held"]


def test_a_bucket_that_is_only_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with server() as running:
        guarded = Guarded(running)
        monkeypatch.setenv("MU_GRPO_S3_PATIENCE", "1")
        for name, value in running.environment(tmp_path / "cache").items():
            monkeypatch.setenv(name, value)
        address = f"s3://{running.bucket()}/store"
        run = make_run(address, 1)  # type: ignore[arg-type]
        write_report(run.store, run.evaluations, run.seed)
        monkeypatch.setenv("MU_GRPO_CACHE", str(tmp_path / "other"))
        reading = {"Effect": "Allow", "Action": ["s3:Get*", "s3:List*"], "Resource": "*"}
        act_as(guarded.user(reading)[1], monkeypatch)
        with guarded.asking():
            store = Store.open(address, create=False)
            page = tmp_path / "page.html"
            assert report_of(store, None, None, page).report == str(page)
            assert find_garbage(store).items == []
            assert len(all_runs(store)) == 1
            assert check_store(store).faults == []
            with pytest.raises(ArtifactError, match="denied"):
                report_of(store, None, None, None)
