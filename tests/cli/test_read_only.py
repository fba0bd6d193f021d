"""Commands that only look at a store work where this user may not write to it: a folder, and a bucket."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from filelock import FileLock

from tasks.cli.inspect import ResponseFilter, inspect_stage
from tasks.cli.runs import all_runs, report_of
from tasks.cli.store import lineage_json
from tasks.errors import ArtifactError
from tasks.report.step import write_report
from tasks.store import Store
from tasks.store.layout import LEASES
from tasks.stored.check import check_store
from tasks.stored.garbage import find_garbage
from tests.cli.synthetic import folders, make_older, make_unfinished_run, names, plain
from tests.faults.guarded import Guarded, act_as
from tests.report.synthetic import make_run
from tools.s3 import server

NOBODY = 65534


@contextmanager
def only_reading(root: Path) -> Iterator[None]:
    """Nothing below a folder can be written inside the block, by root neither."""
    subprocess.run(["chmod", "-R", "a=rX", root], check=True)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        if not os.access(__file__, os.R_OK, effective_ids=True):
            pytest.skip(f"only root can enter the folder of this checkout, {Path(__file__).parents[2]}")
        yield
    finally:
        if is_root:
            os.seteuid(0)
        subprocess.run(["chmod", "-R", "u+w", root], check=True)


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder that every user can enter and write to, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def test_a_read_only_folder(open_to_all: Path) -> None:
    run = make_run(open_to_all / "store", 1)
    write_report(run.store, run.evaluations, run.seed)
    loose = make_unfinished_run(run.store, seed=1)
    make_older(run.store)
    leases = run.store.root / LEASES
    leases.mkdir(exist_ok=True)
    (leases / "free.lock").touch()
    os.utime(leases / "free.lock", (0, 0))
    page = open_to_all / "page.html"
    responses = plain(inspect_stage(run.store, 1, 1, None, ResponseFilter()))
    before = {path: path.stat().st_mtime_ns for path in run.store.root.rglob("*")}
    with only_reading(run.store.root):
        store = Store.open(run.store.root, create=False)
        assert report_of(store, run.seed, None, page).report == str(page)
        found = find_garbage(store)
        assert check_store(store).faults == []
        assert plain(inspect_stage(store, 1, 1, None, ResponseFilter())) == responses
        assert lineage_json(store, str(loose.policies[-1]))
        with pytest.raises(ArtifactError, match="Permission denied"):
            report_of(store, run.seed, None, None)
    assert run.evaluations[0].digest in page.read_text(encoding="utf-8")
    assert {path: path.stat().st_mtime_ns for path in run.store.root.rglob("*")} == before
    assert folders(*loose.policies) | {f"{LEASES}/free.lock"} <= names(found)
    assert found.work.keys == []
    with FileLock(leases / "held.lock"), only_reading(run.store.root):
        assert find_garbage(Store.open(run.store.root, create=False)).work.keys == ["held"]


def test_a_read_only_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with server() as running:
        guarded = Guarded(running)
        monkeypatch.setenv("MU_GRPO_S3_PATIENCE", "1")
        act_as(running.environment(tmp_path / "cache"), monkeypatch)
        address = f"s3://{running.bucket()}/store"
        run = make_run(address, 1)
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
