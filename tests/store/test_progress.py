"""Unfinished work: parts are complete or not there, on a disk and on S3."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tasks.errors import ArtifactError
from tasks.process.interruption import Interrupted
from tasks.settings import TrackerSettings
from tasks.store import Draft, Store
from tasks.store.lease import Lease
from tasks.store.s3 import Bucket
from tasks.tracking import open_tracker
from tools.s3 import S3

WORK = "w" * 32


def put(store: Store, number: int, text: str, name: str = "train") -> None:
    store.progress.put(name, number, lambda folder: (folder / "state.txt").write_text(text) and None)


def newest(store: Store) -> tuple[int, str] | None:
    """Return number and text of the newest part."""
    found = store.progress.newest("train")
    return (found[0], (found[1] / "state.txt").read_text()) if found else None


def test_parts_are_found_and_cleared(any_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reopen(machine: str) -> Store:
        monkeypatch.setenv("MU_GRPO_CACHE", str(tmp_path / machine))
        return Store(any_store.ref, work=WORK)

    store = reopen("first")
    put(any_store, 1, "of no work")
    assert newest(store) is None
    assert not any_store.original.listing("progress")
    for number in (2, 9, 10):
        put(store, number, "before")
        put(store, number, f"after {number}")
    put(store, 99, "other", "logp")
    store.original.write(f"progress/{WORK}/train-000011/state.txt", b"of a part without its manifest")
    assert newest(reopen("second")) == (10, "after 10")
    store.progress.keep_newest("train", 2)
    again = reopen("third").progress
    found = [again.get("train", number) for number in (2, 9, 10)]
    assert [folder and (folder / "state.txt").read_text() for folder in found] == [None, "after 9", "after 10"]
    with store.progress.hold("train"):
        store.progress.clear()
        assert newest(reopen("fourth")) is None
        put(store, 1, "anew")


def test_a_part_of_a_newer_version_is_refused_and_kept(tmp_path: Path) -> None:
    store = Store(Store.open(tmp_path).ref, work="key")
    put(store, 1, "one")
    manifest = tmp_path / "progress/key/train-000001/manifest.json"
    newer = {**json.loads(manifest.read_text()), "schema_version": 2, "more": 1}
    manifest.write_text(json.dumps(newer))
    with pytest.raises(ArtifactError, match=rf"{manifest}: schema version 2; this code reads 1\. Update the code"):
        newest(store)
    assert json.loads(manifest.read_text()) == newer


@pytest.mark.parametrize("left", [b"erofeb", b""])
def test_damaged_parts_do_not_outlive_sound_ones(bucket: str, s3: S3, left: bytes) -> None:
    """States after 480 and 512 updates are lost on S3, training starts anew, and its states are kept."""
    store = Store(Store.open(bucket).ref, work="key")
    put(store, 480, "before")
    put(store, 512, "before")
    keys = [key for key in s3.keys(bucket) if key.endswith("state.txt")]
    assert len(keys) == 2
    for key in keys:
        s3.put(f"{bucket}/{key}", left)
    shutil.rmtree(store.root)
    assert newest(store) is None
    put(store, 32, "after")
    store.progress.keep_newest("train", 2)
    assert newest(store) == (32, "after")


def test_a_part_whose_lease_is_lost_while_it_is_sent_does_not_replace_that_of_another_machine(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine takes the work over, saves the part and is interrupted, and the first one goes on."""
    first, upload = Store(Store.open(bucket).ref, work=WORK), Bucket.upload

    def lose(remote: Bucket, *given: Any) -> None:
        upload(remote, *given)
        first.delete(f"progress/{WORK}/lease")
        monkeypatch.setenv("MU_GRPO_CACHE", str(tmp_path / "second"))
        Lease(Store(first.ref), f"progress/{WORK}", "train")._acquire()  # Its number is that of the first lease.

    with monkeypatch.context() as patch, first.progress.hold("train"):
        patch.setattr(Bucket, "upload", lose)
        with pytest.raises(ArtifactError, match="was taken over by"):
            put(first, 1, "first")
    assert newest(first) is None
    put(Store(first.ref, work=WORK), 1, "second")
    assert newest(first) == (1, "second")


def test_time_of_earlier_attempts_counts(store: Store) -> None:
    """Three attempts of 0.16 s each, of which the first two end after they have saved a part."""

    def make() -> pa.Table:
        time.sleep(0.1)
        return pa.table({"a": [1]})

    def attempt(parts: int) -> Draft:
        working = Store(store.ref, work=WORK)
        with working.write("rollouts", settings={}, parents={}, seed=0) as draft:
            for _ in range(2):
                with draft.phase("load"):
                    time.sleep(0.03)
            with working.write("verdicts", settings={}, parents={}, seed=0) as inner:
                assert not inner.earlier
            with draft.phase("generate"):
                for number in range(parts):
                    put(working, number, "", "logp")
                    working.progress.table("rollouts", number, make)
                if parts < 3:
                    raise Interrupted("stopped")
        return draft

    for parts in (1, 2):
        with pytest.raises(Interrupted):
            attempt(parts)
    timings = store.manifest(attempt(3).ref).timings
    assert 0.3 < timings.phases["generate"] < timings.seconds + timings.earlier - timings.phases["load"]
    assert timings.phases["load"] > 0.15
    assert timings.earlier > 0.3
    own = timings.phases["generate"] + timings.phases["load"] - timings.earlier
    assert 0.15 < own < timings.seconds


def test_a_follower_finds_what_the_leader_keeps_and_leaves_nothing(store: Store) -> None:
    leader, follower = (Store(store.ref, work="key", follows=follows) for follows in (False, True))
    put(leader, 0, "zero")
    put(leader, 1, "one")
    before = {path for path in store.root.rglob("*") if path.is_file()}
    assert newest(follower) == (1, "one")
    filled: list[str] = []
    follower.progress.put("train", 2, lambda folder: filled.append(str((folder / "state").write_text("two"))))
    follower.progress.keep_newest("train", 1)
    follower.progress.clear()
    with follower.write("policy", settings={}, parents={}, seed=0) as draft:
        (draft.path / "weights").write_text("x")
    assert draft.ref.kind == "policy"
    with open_tracker(TrackerSettings(kind="tensorboard", run="run"), follower, "part", {}) as show:
        show("optimize", {"update": 1, "loss": 0.5})
    assert len(filled) == 1
    assert {path for path in store.root.rglob("*") if path.is_file()} == before
