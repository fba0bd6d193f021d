"""A store that others are at work in, died in, or reach on S3: what they may still need stays."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tasks.cli.store import garbage_tables
from tasks.store import Store
from tasks.store import lease as leases
from tasks.stored.check import check_store
from tasks.stored.garbage import delete_garbage, find_garbage
from tests.cli.synthetic import (
    DAYS,
    ROOT,
    folders,
    make_finished_run,
    make_older,
    make_unfinished_run,
    names,
    on_disk,
    plain,
)
from tests.store.writers import run_until_killed
from tools.s3 import S3

SLOW = """
import sys, time
from tasks.store import Store, lease
from tasks.store.work import run_once
from tasks.process.interruption import save_on_sigterm
lease.BEAT = 0.5
def slow(store, text):
    store.progress.put("part", 0, lambda folder: (folder / "state.txt").write_text(text) and None)
    print(*store.root.glob("progress/*/*"), flush=True)
    time.sleep(600)
run_once(Store.open(sys.argv[1]).ref, "t", "1", save_on_sigterm(slow) if sys.argv[2:] else slow, "half")
"""


@contextmanager
def at_work(address: str, *leased: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another process that has saved a part of its work, and the work's key."""
    command, own = [sys.executable, "-c", SLOW, address, *leased], {**os.environ, **environment}
    with subprocess.Popen(command, cwd=ROOT, env=own, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = next(line for line in process.stdout if "progress/" in line)
            yield process, line.partition("progress/")[2].split("/")[0]
        finally:
            process.kill()


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def test_unfinished_work_stays_while_its_process_lives(store: Store) -> None:
    run = make_unfinished_run(store, stages=1)
    with at_work(str(store.root)) as (process, key):
        make_older(store, DAYS)
        garbage = find_garbage(store, hours=0)
        assert not garbage.items
        assert garbage.work.keys == [key]
        assert garbage.spared == len(run.artifacts)
        assert f"read by running steps (leases {key})" in plain(garbage_tables(garbage, 0))
        delete_garbage(store, garbage)
        assert (store.root / "progress" / key / "part-000000/state.txt").read_text() == "half"
        kill(process)
    garbage = find_garbage(store)
    work = {f"progress/{key}", f"leases/{key}.lock"}
    assert names(garbage) == folders(*run.artifacts) | work
    assert [item.kind for item in garbage.items if item.name in work] == ["unfinished work", "leases"]
    delete_garbage(store, garbage)
    assert [path.name for path in store.root.rglob("*") if path.is_file()] == ["store.json"]


def test_work_that_begins_during_gc_stays_with_its_artifacts(store: Store) -> None:
    run = make_unfinished_run(store, stages=0)
    with at_work(str(store.root)) as (process, key):
        kill(process)
    assert not find_garbage(store).items, "all is young"
    make_older(store, DAYS)
    garbage = find_garbage(store)
    assert names(garbage) == {f"progress/{key}", f"leases/{key}.lock"} | folders(*run.artifacts)
    with at_work(str(store.root)) as (_, same):
        assert same == key
        assert not delete_garbage(store, garbage).items
        assert (store.root / "progress" / key / "part-000000/state.txt").is_file()
        assert (store.root / "leases" / f"{key}.lock").is_file()
        assert on_disk(store) == folders(*run.artifacts)


def test_a_killed_gc_leaves_no_partial_artifact(store: Store) -> None:
    run = make_unfinished_run(store)
    make_older(store, DAYS)
    code = f"""
import os, signal
from pathlib import Path
from tasks.store import Store
from tasks.stored.garbage import delete_garbage, find_garbage
unlink = Path.unlink
def until_data(path, missing_ok=False):
    if path.name != "manifest.json":
        os.kill(os.getpid(), signal.SIGKILL)
    unlink(path, missing_ok)
Path.unlink = until_data
store = Store.open({str(store.root)!r})
delete_garbage(store, find_garbage(store))
"""
    run_until_killed(code)
    assert len(on_disk(store)) == len(run.artifacts) - 1
    assert not check_store(store, None).faults, "an artifact was deleted before one that descends from it"
    garbage = find_garbage(store)
    assert [item.kind for item in garbage.items].count("data without manifest") == 1
    delete_garbage(store, garbage)
    assert not list(store.root.glob("*/*/*"))


def test_on_s3_objects_and_local_copies_go_and_a_finished_run_stays(bucket: str, s3: S3) -> None:
    store = Store.open(f"{bucket}/prefix")
    done, left = make_finished_run(store, stages=1), make_unfinished_run(store, stages=1, preset="relaxed")
    run_until_killed(f"""
import os, signal
from tasks.store import Store
store = Store.open("{bucket}/prefix")
store.remote.write_new = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
with store.write("policy", settings={{}}, parents={{}}, seed=0) as draft:
    (draft.path / "deep").mkdir()
    (draft.path / "deep/data.txt").write_text("x" * 1000)
""")
    before = s3.keys(bucket.removeprefix("s3://"))
    assert not find_garbage(store).items
    garbage = find_garbage(store, hours=0)
    (data,) = (item for item in garbage.items if item.kind == "data without manifest")
    own = folders(*left.policies[1:], *left.evaluations[1:])
    assert names(garbage) == own | {data.name}
    assert data.bytes == 1000
    assert s3.keys(bucket.removeprefix("s3://")) == before
    delete_garbage(store, garbage)
    keys = [key.removeprefix("prefix/") for key in s3.keys(bucket.removeprefix("s3://"))]
    assert {"/".join(key.split("/")[:2]) for key in keys} == {"store.json", *folders(*done.artifacts)}
    assert {path.relative_to(store.root).as_posix() for path in store.root.glob("*/*/")} == folders(*done.artifacts)
    assert not check_store(store, None).faults


def test_on_s3_another_machine_clears_unfinished_work_by_its_age(bucket: str, s3: S3) -> None:
    store = Store.open(f"{bucket}/prefix")
    with at_work(f"{bucket}/prefix") as (process, key):
        kill(process)
    shutil.rmtree(store.root)
    assert not find_garbage(store).items
    garbage = find_garbage(store, hours=0)
    assert names(garbage) == {f"progress/{key}"}
    assert delete_garbage(store, garbage).items == garbage.items
    assert s3.keys(bucket.removeprefix("s3://")) == ["prefix/store.json"]
    assert not [path for path in store.root.rglob("*") if path.is_file()]


def test_on_s3_all_stays_while_a_step_on_another_machine_is_at_work(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LOOK", 0.2)
    monkeypatch.setattr(leases, "TAKEN_OVER_AFTER", 4.0)
    store = Store.open(bucket)
    run = make_unfinished_run(store, stages=0)
    garbage = find_garbage(store, hours=0)
    assert names(garbage) == folders(*run.artifacts)
    with at_work(bucket, "leased", MU_GRPO_CACHE=str(tmp_path / "another machine")) as (process, key):
        assert not delete_garbage(store, garbage).items, "work that began after the look needs its artifacts"
        found = find_garbage(store, hours=0)
        assert (found.items, found.work.keys, found.spared) == ([], [key], len(run.artifacts))
        kill(process)
    garbage = find_garbage(store, hours=0)
    assert names(garbage) == folders(*run.artifacts) | {f"progress/{key}"}
    assert delete_garbage(store, garbage).items
    assert not find_garbage(store, hours=0).items
