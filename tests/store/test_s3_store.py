"""A store on S3: what holds for a folder, and what a server and a local copy add."""

import base64
import errno
import hashlib
import json
import os
import shutil
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
from botocore.exceptions import SSLError, UnauthorizedSSOTokenError
from s3fs import S3FileSystem

from tasks.errors import ArtifactError, FetchError, SettingsError
from tasks.store import Store
from tasks.store.fetch import fingerprint
from tasks.store.s3 import PART_BYTES
from tests.cli import synthetic
from tests.prepared import run_python
from tests.store.writers import EVERY_MAKE, run_at_once, write
from tools.s3 import S3


@EVERY_MAKE
def test_an_artifact_comes_back_on_another_machine(bucket: str, tmp_path: Path) -> None:
    store = Store.open(f"{bucket}/deep/prefix")
    parent = write(store, "parent")
    ref = write(store, "child", {"source": parent})
    shutil.rmtree(store.root)
    there = Store.open(f"{bucket}/deep/prefix", create=False)
    assert there.ref == store.ref
    assert (there.path(ref) / "sub/data.txt").read_text() == "child"
    assert there.manifest(ref).parents == {"source": [parent]}
    assert {manifest.digest for manifest in there.manifests("prompts")} == {ref.digest, parent.digest}
    assert write(Store.open(tmp_path), "parent") == parent, "the digest is that of a folder"


@EVERY_MAKE
def test_writers_of_the_same_artifact_all_succeed_with_one_manifest(bucket: str, s3: S3) -> None:
    (ref,) = set(run_at_once([partial(write, Store.open(bucket)) for _ in range(3)]))
    # A set, because rclone can list a key twice that two writers made at the same time.
    files = {f"{ref.folder}/{name}" for name in ("sub/data.txt", "other.txt", "manifest.json")}
    assert set(s3.keys(bucket)) == {"store.json", *files}


@EVERY_MAKE
def test_opening_at_once_gives_one_id(bucket: str, s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ids(address: str) -> int:
        return len({store.ref.id for store in run_at_once([lambda: Store.open(address)] * 8)})

    assert ids(f"{tmp_path}/hard links") == 1
    monkeypatch.setattr(os, "link", Mock(side_effect=PermissionError(errno.EPERM, "none on this file system")))
    assert ids(f"{tmp_path}/no hard links") == 1
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(errno.EINVAL, "folders cannot be flushed")))
    assert write(Store.open(f"{tmp_path}/no hard links"))
    s3.skip_unless_it_can("keep the first of two conditional writes at the same time")
    assert ids(bucket) == 1


@pytest.mark.parametrize("text", ["abc", "nan", "-1"])
def test_a_patience_that_is_no_number_of_seconds(text: str, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MU_GRPO_S3_PATIENCE", "")
    Store.open(bucket)
    monkeypatch.setenv("MU_GRPO_S3_PATIENCE", text)
    with pytest.raises(SettingsError, match=rf"MU_GRPO_S3_PATIENCE: got '{text}'; allowed: a number of seconds"):
        Store.open(bucket)


@EVERY_MAKE
def test_a_corrupted_and_a_missing_object_are_named(bucket: str, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MU_GRPO_S3_PATIENCE", "1")
    store = Store.open(bucket)
    ref = write(store)
    shutil.rmtree(store.root)
    place = {"Bucket": bucket.removeprefix("s3://"), "Key": f"{ref.folder}/sub/data.txt"}
    s3.client().put_object(**place, Body=b"hellp")
    with pytest.raises(ArtifactError, match=r"sub/data.txt: corrupted"):
        store.path(ref)
    assert not (store.root / ref.folder / "sub/data.txt").exists()
    s3.client().put_object(**place, Body=b"hell")
    assert not store.holds(ref), "the object has another size"
    s3.client().put_object(**place, Body=b"")
    with pytest.raises(ArtifactError, match=r"sub/data.txt: corrupted"):
        store.path(ref)
    s3.client().delete_object(**place)
    assert not store.holds(ref)
    with pytest.raises(ArtifactError, match=rf"{bucket}/{ref.folder}/sub/data.txt: missing, but the manifest names it"):
        store.path(ref)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sub/data.txt", r"manifest\.json: digest .* of what it names"),
        ("../../../up", "not a manifest .* a file below"),
    ],
)
def test_a_manifest_changed_by_others_is_refused_and_written_again(
    bucket: str, s3: S3, name: str, message: str
) -> None:
    store = Store.open(bucket)
    ref = write(store)
    forged = json.loads((store.root / ref.folder / "manifest.json").read_text())
    forged["files"][name] = {"sha256": hashlib.sha256(b"forged").hexdigest(), "bytes": 6}
    for key, body in (("sub/data.txt", b"forged"), ("manifest.json", json.dumps(forged).encode())):
        s3.put(f"{bucket}/{ref.folder}/{key}", body)
    shutil.rmtree(store.root)
    with pytest.raises(ArtifactError, match=f"(?s){message}"):
        store.path(ref)
    assert not store.holds(ref)
    assert write(store) == ref
    shutil.rmtree(store.root)
    assert (store.path(ref) / "sub/data.txt").read_text() == "hello"


@pytest.mark.parametrize("left", [b"", bytes(300), b'{"schema_version": 1, "ki'], ids=["empty", "zeros", "half"])
def test_what_a_power_failure_leaves_of_a_local_copy_is_fetched_again(bucket: str, left: bytes) -> None:
    store = Store.open(bucket)
    ref = write(store)
    manifest = store.manifest(ref)
    for name in ("manifest.json", "sub/data.txt"):
        (store.root / ref.folder / name).write_bytes(left)
    assert store.holds(ref)
    assert (store.path(ref) / "sub/data.txt").read_text() == "hello"
    assert store.manifest(ref) == manifest
    assert write(store) == ref


def test_only_needed_files_are_fetched(bucket: str) -> None:
    store = Store.open(bucket)
    ref = write(store)
    shutil.rmtree(store.root)
    folder = store.path(ref, without="sub")
    assert [file.name for file in folder.iterdir()] == ["other.txt"]
    assert store.file(store.manifest(ref), "other.txt") == folder / "other.txt"
    assert not (folder / "sub").exists()
    files = run_at_once([lambda: (store.path(ref) / "sub/data.txt").stat().st_ino] * 4)
    assert len(set(files)) == 1, "it was fetched more than once"
    assert (store.path(ref) / "sub/data.txt").read_text() == "hello"


@EVERY_MAKE
def test_a_bucket_that_does_not_exist_is_named(bucket: str) -> None:
    for name in ("no-such-bucket-here", "x"):  # S3 allows no name of one letter.
        with pytest.raises(ArtifactError, match=rf"s3://{name}/store\.json: the bucket does not exist"):
            Store.open(f"s3://{name}")


def test_missing_credentials_are_named(bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ArtifactError, match=r"no credentials\. Set AWS_ACCESS_KEY_ID"):
        Store.open(bucket)


def test_an_expired_certificate_is_no_expired_login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MU_GRPO_S3_PATIENCE", "0")
    certificate = SSLError(endpoint_url="https://store", error="certificate has expired")
    for error, problem in ((certificate, "failed for 0 s"), (UnauthorizedSSOTokenError(), "credentials have expired")):
        monkeypatch.setattr(S3FileSystem, "cat_file", Mock(side_effect=error))
        with pytest.raises(ArtifactError, match=problem):
            Store.open("s3://bucket/prefix")
    monkeypatch.setattr(S3FileSystem, "info", Mock(side_effect=certificate))
    with pytest.raises(FetchError, match=r"/model .* listed: .*certificate has expired"):  # so that Flyte tries again
        fingerprint("s3://bucket/model")


def test_the_place_of_local_copies(bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable, folder in (("MU_GRPO_CACHE", ""), ("XDG_CACHE_HOME", "mu-grpo"), ("HOME", ".cache/mu-grpo")):
        monkeypatch.setenv(variable, str(tmp_path / "local"))
        assert Store.open(bucket).root.parent == tmp_path / "local" / folder
        monkeypatch.delenv(variable)


def test_flytes_names_of_environment_variables_are_understood(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENDPOINT_URL", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.setenv(f"FLYTE_AWS_{name.removesuffix('_URL')}", os.environ[f"AWS_{name}"])
        monkeypatch.delenv(f"AWS_{name}")
    store = Store.open(bucket)
    assert store.holds(write(store))


def test_large_files_go_come_and_are_checked_in_parts_within_bounded_memory(bucket: str) -> None:
    code = f"""
import resource, shutil
from tasks.store import Store
from tasks.stored.check import check_store
store = Store.open({bucket!r})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
block = bytes(range(256)) * 4096
with store.write("policy", settings={{}}, parents={{}}, seed=0) as draft:
    for name in "ab":
        with (draft.path / name).open("wb") as file:
            for count in range(200):
                file.write(count.to_bytes(4) + block[4:])
shutil.rmtree(store.root)
findings = check_store(store, None)
print("checked", len(findings.faults), findings.bytes // 2**20, store.root.exists())
store.path(draft.ref)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    lines = run_python(code).stdout.splitlines()
    assert any(line.startswith("upload policy/") and "419/419" in line for line in lines)
    assert any(line.startswith("download policy/") and "419/419" in line for line in lines)
    assert "checked 0 400 False" in lines
    assert int(lines[-1]) < 300


@EVERY_MAKE
@pytest.mark.parametrize(("asked", "there"), [("when_supported", True), ("when_required", False)])
def test_the_server_can_check_what_it_receives(
    bucket: str, s3: S3, monkeypatch: pytest.MonkeyPatch, asked: str, there: bool
) -> None:
    s3.skip_unless_it_can("keep checksums")
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", asked)
    content = {"small.bin": b"small", "large.bin": os.urandom(PART_BYTES + 1)}
    ref = synthetic.write(Store.open(bucket), "prompts", content)
    for name, data in content.items():
        place = {"Bucket": bucket.removeprefix("s3://"), "Key": f"{ref.folder}/{name}"}
        head = s3.client().head_object(**place, ChecksumMode="ENABLED")
        algorithm = "ChecksumSHA256" if name == "small.bin" else "ChecksumCRC32"
        assert (algorithm in head) == there
        if there and name == "small.bin":
            assert base64.b64decode(head[algorithm]) == hashlib.sha256(data).digest()


@EVERY_MAKE
def test_an_interrupted_upload_resumes_file_by_file(bucket: str, s3: S3) -> None:
    store, large = Store.open(bucket), os.urandom(PART_BYTES + 1)
    upload = partial(synthetic.write, store, "prompts", {"there.txt": b"there", "missing.bin": large})
    ref, name, client = upload(), bucket.removeprefix("s3://"), s3.client()
    there = {"Bucket": name, "Key": f"{ref.folder}/there.txt"}
    client.put_object(**there, Body=b"THERE", Metadata=client.head_object(**there)["Metadata"])
    for key in ("manifest.json", "missing.bin"):
        client.delete_object(Bucket=name, Key=f"{ref.folder}/{key}")
    assert upload() == ref
    assert client.get_object(**there)["Body"].read() == b"THERE", "a file that was there was uploaded again"
    client.put_object(**there, Body=b"THERE")  # without its digest
    assert upload() == ref
    shutil.rmtree(store.root)
    assert (store.path(ref) / "missing.bin").read_bytes() == large
