"""Artifacts: data first, manifest last, digests checked, nothing half there."""

import errno
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest

from tasks.errors import ArtifactError
from tasks.process import provenance
from tasks.process.provenance import process
from tasks.store import Store
from tasks.store.files import Folder, digests, sweep
from tasks.store.s3 import Bucket
from tasks.stored.garbage import find_garbage
from tests.prepared import run_python
from tests.store.writers import run_until_killed, write
from tools.system_programs import require


def test_an_artifact_comes_back_as_it_was_written_also_from_a_moved_store(store: Store, tmp_path: Path) -> None:
    parent = write(store, "parent")
    ref = write(store, "child", {"source": parent})
    assert (store.path(ref) / "sub/data.txt").read_text() == "child"
    with pytest.raises(ArtifactError, match=rf"holds digest {ref.digest}, not {ref.digest[:16]}0000"):
        store.path(ref.model_copy(update={"digest": ref.digest[:16] + "0" * 48}))
    manifest = store.manifest(ref)
    assert manifest.parents == {"source": [parent]}
    assert (manifest.settings, manifest.seed, manifest.facts) == ({"a": 1}, 3, {"rows": 1})
    assert "pyarrow" in manifest.packages
    shutil.move(store.root, tmp_path / "moved")
    moved = Store.open(tmp_path / "moved")
    assert moved.ref.id == store.ref.id
    assert (moved.path(ref) / "sub/data.txt").read_text() == "child"


def test_a_manifest_has_gpus_and_true_seconds(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA H200, 143771 MiB, 580.65.06'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("tasks.store.store.gpu_models", provenance.gpu_models.__wrapped__)
    monkeypatch.setattr("tasks.store.store.gpus", lambda: 1)
    monkeypatch.setattr(time, "time", count(time.time(), -300).__next__)  # The clock is set back all the time.
    manifest = store.manifest(write(store))
    assert manifest.timings.gpu_models == ["NVIDIA H200, 143771 MiB, 580.65.06"]
    assert 0 < manifest.timings.seconds < 60


def test_the_digest_covers_content_and_parents(store: Store, tmp_path: Path) -> None:
    elsewhere = Store.open(tmp_path / "elsewhere")
    assert write(store).digest == write(elsewhere).digest != write(store, "other").digest
    assert write(store).digest != write(store, parents={"source": write(store, "parent")}).digest
    assert write(store, settings={"a": 2}, seed=4) == write(store), "work upon it would not be found"


def test_those_who_can_read_the_folder_can_read_its_files(store: Store) -> None:
    with store.write("prompts", settings={}, parents={}, seed=0) as draft:
        (draft.path / "data.txt").touch(0o600)  # as safetensors does
    folder = store.path(draft.ref)
    assert (folder / "data.txt").stat().st_mode & 0o666 == folder.stat().st_mode & 0o666


def test_what_a_killed_writer_leaves_cannot_be_read_and_is_swept_beside_a_living_one(store: Store) -> None:
    code = """
with store.write("prompts", settings={}, parents={}, seed=0) as draft:
    (draft.path / "data.txt").write_text("half")
    die()
"""
    run_until_killed(store, code)
    run_until_killed(store, "from tasks.store import files; files.flush = die; store.original.write('a.json', b'')")
    assert store.manifests("prompts") == []
    with store.write("prompts", settings={}, parents={}, seed=0) as draft:
        assert len(list((store.root / "staging").iterdir())) == 3
        sweep(store.root)
        assert [path.name for path in (store.root / "staging").iterdir()] == [draft.path.name]
        assert {path.name for path in store.root.iterdir()} == {"store.json", "staging"}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to hide processes")
def test_a_writer_in_another_container_of_the_same_host_name_is_left_alone(store: Store) -> None:
    code = f"from pathlib import Path; from tasks.store.files import sweep; sweep(Path({str(store.root)!r}))"
    with store.write("prompts", settings={}, parents={}, seed=0) as draft:
        subprocess.run([require("unshare"), "--pid", "--fork", "--mount-proc", sys.executable, "-c", code], check=True)
        assert draft.path.is_dir()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("sub/data.txt", "hellp", r"sub/data\.txt: corrupted \(sha256 .*overwrite-cache"),
        ("sub/data.txt", None, r"sub/data\.txt: missing"),
        ("manifest.json", None, r"manifest\.json: missing, so prompts/.* is not in this store"),
        ("manifest.json", '{"schema_version": 99}', "schema version 99; this code reads 1"),
        ("manifest.json", '{"schema_version": 1}', r"manifest\.json: not a manifest \(Field required\)"),
    ],
)
def test_damaged_and_missing_files_are_named(store: Store, name: str, text: str | None, message: str) -> None:
    ref = write(store)
    file = store.root / ref.folder / name
    file.unlink() if text is None else file.write_text(text)
    with pytest.raises(ArtifactError, match=message):
        store.path(ref)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, r"damaged, because it holds no id of a store\. Restore") for text in ("", "{", "[]", '{"id": 3}')),
        ('{"schema_version": 1}', r"damaged, because it holds no id"),
        ('{"schema_version": 2, "id": "a"}', r"schema version 2; this code reads 1\. Update the code"),
    ],
)
def test_a_marker_without_an_id_is_named(tmp_path: Path, bucket: str, text: str, message: str) -> None:
    for uri, write_marker in ((str(tmp_path / "s"), Folder(tmp_path / "s").write), (bucket, Bucket(bucket).write)):
        write_marker("store.json", text.encode())
        with pytest.raises(ArtifactError, match=rf"{uri}/store\.json: {message}"):
            Store.open(uri, create=False)


def test_a_writer_that_fails_leaves_nothing_and_blames_the_store_for_its_own_files_alone(store: Store) -> None:
    """Otherwise an unreadable input would be answered with another store to choose."""

    def fail(error: OSError) -> None:
        with store.write("policy", settings={}, parents={}, seed=0) as draft:
            (draft.path / "data.txt").write_text("half")
            raise error

    with pytest.raises(PermissionError, match=r"train\.jsonl"):
        fail(PermissionError(errno.EACCES, "Permission denied", "/elsewhere/train.jsonl"))
    for number, fix, copied in ((errno.EACCES, "choose another store", ()), (errno.EXDEV, "to one disk", ("/x", None))):
        with pytest.raises(ArtifactError, match=rf"policy/x: {os.strerror(number)}.*{fix}"):
            fail(OSError(number, os.strerror(number), *copied, str(store.root / "policy/x")))
    with pytest.raises(ArtifactError, match="moved"), store.write("policy", settings={}, parents={}, seed=0) as draft:
        shutil.copytree(draft.path.rename(store.root.parent / "moved"), draft.path, ignore=lambda _, names: names)
    assert not [path.name for path in store.root.rglob("*") if path.name not in ("store.json", "staging")]


def test_a_forked_process_has_a_name_of_its_own() -> None:
    with multiprocessing.get_context("fork").Pool(1) as pool:
        child = pool.apply(process)
    assert child.name != process().name
    assert child.started >= process().started
    assert process() == process()


def test_a_manifest_is_utf_8_in_every_locale(tmp_path):
    code = """import sys; from tasks.store import Store; store = Store.open(sys.argv[1])
with store.write("policy", settings={"template": "\\xfc"}, parents={}, seed=0) as draft: pass
assert store.manifest(draft.ref).settings == {"template": "\\xfc"}"""
    done = run_python(code, str(tmp_path), LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert done.returncode == 0, done.stderr


def test_what_another_process_deletes_meanwhile_is_not_there(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    (store.root / "leases").mkdir()
    (store.root / "leases/gone.lock").symlink_to("nowhere")
    assert not find_garbage(store, hours=0).items
    monkeypatch.setattr(Path, "is_file", lambda _: True)  # The look comes before the deletion.
    assert store.local.read("made/gone.json") is None
    assert digests(store.root, ["gone", "made"]) == {"gone": None, "made": None}
