"""A store that does not let everybody do everything: object and fix are named, and the work goes on after it."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.errors import ArtifactError
from tasks.store import ArtifactRef, Store
from tasks.stored.garbage import delete_garbage, find_garbage
from tests.faults.guarded import Guarded, act_as
from tests.faults.steps import PARTS, Killed, Step, assert_holds_only
from tools import ROOT
from tools.faults.proxy import Proxy
from tools.s3 import S3, server
from tools.system_programs import require

EVERYTHING = {"Effect": "Allow", "Action": "*", "Resource": "*"}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    with server() as running:
        yield Guarded(running)


@pytest.fixture
def own(guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an empty store on the server that asks."""
    monkeypatch.setenv("MU_GRPO_S3_PATIENCE", "1")
    act_as(guarded.s3.environment(tmp_path / "cache"), monkeypatch)
    address = f"s3://{guarded.s3.bucket()}"
    Store.open(address)
    return address


def act_denied(action: str, objects: str, guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> str:
    """Act as a new user who may do everything but one action on some objects; return the user's name."""
    denied = {"Effect": "Deny", "Action": f"s3:{action}", "Resource": f"arn:aws:s3:::{objects.removeprefix('s3://')}"}
    name, environment = guarded.user(EVERYTHING, denied)
    act_as(environment, monkeypatch)
    return name


@pytest.mark.parametrize(
    ("denied", "object_named", "parts"),
    [
        ("progress/*/part-000002*", r"progress/.*part-000002.*", 2),
        ("rollouts/*/manifest.json", r"rollouts/.*/manifest\.json", PARTS),
        ("made/*", r"made/.*\.json", PARTS),
    ],
)
def test_a_store_that_denies_writes_is_named_and_the_work_goes_on(
    denied: str, object_named: str, parts: int, own: str, guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = act_denied("PutObject", f"{own}/{denied}", guarded, monkeypatch)
    monkeypatch.setenv("MU_GRPO_S3_PATIENCE", "60")
    remote, step = Store.open(own), Step()
    start = time.monotonic()
    error = rf"{own}/{object_named}: denied .*Allow listing, reading"
    with guarded.asking(), pytest.raises(ArtifactError, match=error):
        step.work(remote)
    assert time.monotonic() - start < 30, "a denial was tried again and again"
    assert step.made == list(range(min(parts + 1, PARTS)))
    committed = [key for key in guarded.s3.keys(own) if key.startswith("rollouts/") and key.endswith("/manifest.json")]
    assert bool(committed) == denied.startswith("made/")
    guarded.allow(name, EVERYTHING)
    with guarded.asking():
        made, anew = step.work_elsewhere(remote)
    assert anew == list(range(parts, PARTS)), "what was saved was made again"
    assert_holds_only(guarded.s3, own, {made})


def test_unreadable_parts_are_named_and_not_lost(own: str, guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    remote, step = Store.open(own), Step(stop_at=3)
    with pytest.raises(Killed):
        step.work(remote)
    before = guarded.s3.keys(own)
    shutil.rmtree(remote.root)
    name = act_denied("GetObject", f"{own}/progress/*/part-000002/part.parquet", guarded, monkeypatch)
    step.made.clear()
    with guarded.asking(), pytest.raises(ArtifactError, match=r"part-000002/part\.parquet: denied .*Allow listing"):
        step.work(remote)
    assert guarded.s3.keys(own) == before
    guarded.allow(name, EVERYTHING)
    with guarded.asking():
        made = step.work(remote)
    assert step.made == [3]
    assert_holds_only(guarded.s3, own, {made})


def test_a_refused_deletion_stops_no_step_and_is_named_by_gc(own: str, guarded: Guarded) -> None:
    name, remote = own.removeprefix("s3://"), Store.open(own)
    deny = {"Effect": "Deny", "Principal": "*", "Action": "s3:DeleteObject"}
    made: ArtifactRef | None = None
    for objects in ("*", "rollouts/*/manifest.json"):
        policy = {"Statement": [{**deny, "Resource": f"arn:aws:s3:::{name}/{objects}"}]}
        guarded.s3.client().put_bucket_policy(Bucket=name, Policy=json.dumps(policy))
        made = made or Step().work(remote)
        with pytest.raises(ArtifactError, match=rf"{own}/.*\(AccessDenied\): still there after its deletion"):
            delete_garbage(remote, find_garbage(remote, hours=0))
        assert remote.holds(made), "of an artifact whose manifest stays, data was deleted"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "not it"}, "the secret key is not that of the access key. Check AWS_ACCESS_KEY_ID"),
        ({"AWS_ACCESS_KEY_ID": "nobody"}, "the server does not know the access key. Check AWS_ACCESS_KEY_ID"),
    ],
)
def test_errors_tell_wrong_keys_from_denied_access(
    change: dict[str, str], message: str, own: str, guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, environment = guarded.user(EVERYTHING)
    act_as({**environment, **change}, monkeypatch)
    with guarded.asking(), pytest.raises(ArtifactError) as caught:
        Store.open(own)
    assert message in caught.value.message
    assert environment["AWS_SECRET_ACCESS_KEY"] not in caught.value.message


@pytest.mark.parametrize(
    ("fault", "problem"), [("expired_token", "expired. Renew them"), ("unknown_key", "does not know the access key")]
)
def test_credentials_that_expire_are_named_and_the_work_goes_on(
    fault: str, problem: str, place: str, flaky: Proxy, s3: S3
) -> None:
    remote, step = Store.open(place), Step()
    flaky.fail(1, [fault], after=9)
    with pytest.raises(ArtifactError, match=rf"{place}/.*{problem}.*then start the same command again"):
        step.work(remote)
    flaky.heal()
    before = list(step.made)
    made, anew = step.work_elsewhere(remote)
    assert set(before) | set(anew) == set(range(PARTS))
    assert len(before) + len(anew) <= PARTS + 1, "more than the part in hand was made again"
    assert_holds_only(s3, place, {made})


FULL = """
import shutil, sys
import numpy as np
from safetensors.numpy import save_file
from tasks.store import Store
from tasks.errors import ArtifactError

store = Store.open(sys.argv[1])
def write(size, tensors=False):
    with store.write("prompts", settings={}, parents={}, seed=0) as draft:
        if tensors:
            save_file({"data": np.zeros(size, np.uint8)}, draft.path / "data.safetensors")
        else:
            (draft.path / "data.bin").write_bytes(b"x" * size)
    return draft.ref
def tell_refusal(work, *given):
    try:
        work(*given)
    except ArtifactError as error:
        print(error.message)
kept = write(700_000)
for size, tensors in ((10_000_000, False), (10_000_000, True), (600_000, False)):
    tell_refusal(write, size, tensors)
print("artifacts", len(store.manifests("prompts")), "staged", list((store.root / "staging").iterdir()))
if store.remote:
    shutil.rmtree(store.root)
    other = store.root.parent / "other"
    other.write_bytes(b"x" * 600_000)
    tell_refusal(store.path, kept)
    other.unlink()
store.path(kept)
print("whole")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small disk")
@pytest.mark.parametrize(("where", "refusals"), [("folder", 3), ("s3", 4)])
def test_a_full_disk_is_named_and_loses_nothing(where: str, refusals: int, bucket: str, s3: S3, tmp_path: Path) -> None:
    """On S3, the disk of the local copy, which is full for a download too."""
    script = f'mount -t tmpfs -o size=1m none "$1" && exec {sys.executable} -c "$2" "$3"'
    address = bucket if where == "s3" else str(tmp_path / "store")
    command = [require("unshare"), "--mount", "sh", "-c", script, "sh", str(tmp_path), FULL, address]
    own = {**os.environ, **s3.environment(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=False)
    if "mount" in done.stderr and done.returncode:
        pytest.skip(f"this machine lets nobody mount: {done.stderr.strip()}")
    assert done.stdout.count("No space left on device") == refusals, done
    assert done.stdout.count("The disk is full: free some space") == refusals
    assert "artifacts 1 staged []" in done.stdout
    assert done.stdout.endswith("whole\n")
