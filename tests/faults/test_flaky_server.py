"""A store on an S3 server that fails: through a proxy that does faults to its requests, work ends as if it did not."""

import random
import shutil
import time
from functools import partial
from pathlib import Path

import pytest

from tasks.cluster.services import probe_store
from tasks.errors import ArtifactError
from tasks.store import ArtifactRef, Store
from tasks.store.fetch import fetch, fingerprint
from tasks.store.files import check
from tasks.store.s3 import PART_BYTES, Bucket
from tests.cli.synthetic import write
from tests.faults.steps import PARTS, Killed, Step, assert_holds_only
from tests.store.writers import run_at_once
from tools.faults.proxy import FAULTS, Proxy
from tools.s3 import S3

FILES = 20


def small_files(store: Store, number: int) -> ArtifactRef:
    contents = (random.Random(f"{number}/{file}").randbytes(1000 + file) for file in range(FILES))
    return write(store, "rollouts", {f"shard-{file:03d}.bin": content for file, content in enumerate(contents)})


def one_large_file(store: Store) -> ArtifactRef:
    return write(store, "policy", {"model.safetensors": random.Random(0).randbytes(2 * PART_BYTES + 12345)})


def test_artifacts_are_written_and_read_whole(place: str, flaky: Proxy, s3: S3, store: Store) -> None:
    flaky.fail(0.3)
    remote = Store.open(place)
    refs = run_at_once(
        [partial(small_files, remote, 0), partial(small_files, remote, 1), partial(one_large_file, remote)]
    )
    shutil.rmtree(remote.root)
    for ref, folder in zip(refs, remote.paths(refs), strict=True):
        check(folder, remote.manifest(ref).files)
    assert refs == [small_files(store, 0), small_files(store, 1), one_large_file(store)]
    counts = flaky.counts()
    assert all(counts[fault] > 0 for fault in FAULTS)
    assert_holds_only(s3, place, set(refs))


def test_work_survives_faults_and_is_done_once(place: str, flaky: Proxy, s3: S3) -> None:
    flaky.fail(0.2)
    remote, step = Store.open(place), Step(stop_at=PARTS // 2)
    with pytest.raises(Killed):
        step.work(remote)
    before = list(step.made)
    made, anew = step.work_elsewhere(remote)
    assert before + anew == list(range(PARTS))
    assert step.work_elsewhere(remote) == (made, [])
    counts = flaky.counts()
    assert counts["passed"] < counts.total()
    assert_holds_only(s3, place, {made})


@pytest.mark.parametrize(
    ("refused", "parts"),
    [("", 0), (r"^PUT .*/progress/.*part-000001", 1), (r"^PUT .*/rollouts/.*/manifest", PARTS)],
    ids=["everything", "a part", "the manifest"],
)
def test_a_server_that_stays_away_is_named_and_the_work_goes_on(
    refused: str, parts: int, place: str, flaky: Proxy, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MU_GRPO_S3_PATIENCE", "1")
    remote, step = Store.open(place), Step()
    flaky.fail(1, ["slow_down"], where=refused)
    start = time.monotonic()
    message = rf"{place}/.*: failed for 1 s, .*reduce your request rate.*the same command"
    with pytest.raises(ArtifactError, match=message):
        step.work(remote)
    assert time.monotonic() - start > 1
    assert flaky.counts()["slow_down"] > 1
    assert not [key for key in s3.keys(place) if key.startswith("rollouts/") and "manifest" in key]
    flaky.heal()
    assert remote.refs("rollouts") == []
    made, anew = step.work_elsewhere(remote)
    assert anew == list(range(parts, PARTS)), "what was saved was made again"
    assert_holds_only(s3, place, {made})


def test_a_failed_upload_leaves_no_parts_and_no_manifest(
    place: str, flaky: Proxy, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MU_GRPO_S3_PATIENCE", "1")
    remote = Store.open(place)
    flaky.fail(1, ["internal_error"], where=r"^PUT .*partNumber=2")
    with pytest.raises(ArtifactError, match=r"/policy/.*: failed for 1 s, .*internal error"):
        one_large_file(remote)
    assert s3.keys(place) == ["store.json"]
    assert "Uploads" not in s3.client().list_multipart_uploads(Bucket=place.removeprefix("s3://"))
    flaky.heal()
    assert remote.holds(one_large_file(remote))


def test_an_upload_is_complete_although_its_last_answer_was_lost(place: str, flaky: Proxy) -> None:
    remote = Store.open(place)
    flaky.fail(1, ["no_such_upload"], where=r"^POST .*uploadId=")
    ref = one_large_file(remote)
    assert flaky.counts()["no_such_upload"] == 1
    shutil.rmtree(remote.root)
    check(remote.path(ref), remote.manifest(ref).files)


def test_requests_that_fail_at_times_change_no_fingerprint_and_no_copy(
    place: str, flaky: Proxy, s3: S3, tmp_path: Path
) -> None:
    """Policies and prompts are files outside of the store, which a run asks for when it starts, and then copies."""
    s3.put(f"{place}/model/config.json", b"{}")
    places = [f"{place}/model", f"{place}/model/config.json"]
    sound = [fingerprint(one) for one in places]
    flaky.fail(0.5, ["slow_down", "internal_error"])
    for number in range(3):
        assert [fingerprint(one) for one in places] == sound
        for one in places:
            (folder := tmp_path / f"{number}-{len(one)}").mkdir()
            fetch(one, folder, "policy.path")
            assert (folder / "config.json").read_bytes() == b"{}"
    assert flaky.counts().keys() > {"passed"}


def test_the_first_write_wins_when_the_error_names_no_condition(place: str, flaky: Proxy) -> None:
    flaky.fail(1, ["no_condition"], where="^PUT")
    bucket = Bucket(place, 5)
    bucket.write_new("key", b"first")
    bucket.write_new("key", b"second")
    assert bucket.read("key") == b"first"
    assert flaky.counts()["no_condition"] == 2, "a condition that failed was asked for again"
    assert probe_store(place, 5)[0] == "ok"
    remote = Store.open(place)
    assert one_large_file(remote) == one_large_file(remote)
