"""Damage is found wherever it is, named with what descends from it, and nothing else is called damaged."""

import json
import shutil
from functools import partial

import pytest
from fsspec.core import url_to_fs
from fsspec.implementations.dirfs import DirFileSystem

from tasks.cli.store import check_tables
from tasks.errors import ArtifactError, DamagedError
from tasks.flyte.inputs import RunInputs
from tasks.flyte.uncached import close_run
from tasks.report.step import write_report
from tasks.settings import RunSettings
from tasks.store import Store
from tasks.store.work import run_once
from tasks.stored.check import Fault, Findings, check_store
from tasks.stored.garbage import find_garbage
from tests.cli.synthetic import command, make_finished_run, plain, run_command
from tests.report.synthetic import make_run
from tests.store.writers import write
from tests.workflows.runs import words
from tools.runs import CONFIG
from tools.s3 import S3


def found(findings: Findings) -> set[tuple[str, str]]:
    return {(fault.artifact, fault.file) for fault in findings.faults}


def files_of(store: Store) -> DirFileSystem:
    """The files of a store where they really are, reached without the code under test."""
    system, root = url_to_fs(store.ref.uri, use_listings_cache=False)
    return DirFileSystem(root, system)


def flip(store: Store, key: str) -> None:
    """Changes the last byte of a file."""
    content = files_of(store).cat_file(key)
    files_of(store).pipe_file(key, content[:-1] + bytes([content[-1] ^ 1]))


def test_damaged_files_are_found_with_all_descendants(any_store: Store) -> None:
    run, files = make_finished_run(any_store), files_of(any_store)
    name, file = run.rollouts[1][0].folder, "rollouts.parquet"
    before = any_store.manifest(run.rollouts[1][0]).files[file]
    flip(any_store, f"{name}/{file}")
    findings = check_store(any_store, None)
    (fault,) = findings.faults
    assert (fault.artifact, fault.file) == (name, file)
    assert fault.expected == f"{before.sha256[:16]}, {before.bytes} bytes"
    assert fault.found.endswith(f", {before.bytes} bytes")
    assert fault.found != fault.expected
    after = [run.verdicts[1], run.policies[2], run.evaluations[2], run.report]
    assert findings.descendants == {name: sorted(ref.folder for ref in after if ref)}
    text = words(plain(check_tables(findings, 1.0)))
    assert "1 artifact damaged or missing" in text
    assert "pyflyte run --overwrite-cache" in text
    cut, lost = f"{run.policies[0]}/model.safetensors", f"{run.policies[1]}/optimizer/moments.safetensors"
    files.pipe_file(cut, files.cat_file(cut)[:-1])
    files.rm_file(lost)
    damaged = check_store(any_store, None).faults
    assert {f"{one.artifact}/{one.file}" for one in damaged} == {f"{name}/{file}", cut, lost}
    assert [one.found for one in damaged if "moments" in one.file] == ["missing"]


def test_a_file_that_the_disk_cannot_read_is_found_beside_others(store: Store) -> None:
    ref = write(store)
    (store.root / ref.folder / "other.txt").unlink()
    (store.root / ref.folder / "other.txt").symlink_to("/proc/self/mem")  # Its first bytes give EIO.
    flip(store, f"{ref.folder}/sub/data.txt")
    findings = check_store(store)
    assert found(findings) == {(ref.folder, "other.txt"), (ref.folder, "sub/data.txt")}
    assert findings.faults[0].found == "not readable: Input/output error"


def test_an_artifact_that_lost_its_manifest_is_missing_to_those_that_descend_from_it(any_store: Store) -> None:
    run = make_finished_run(any_store)
    files_of(any_store).rm_file(f"{run.verdicts[0]}/manifest.json")
    findings = check_store(any_store, None)
    missing = Fault(str(run.verdicts[0]), "manifest.json", f"digest {run.verdicts[0].digest[:16]}", "missing")
    assert findings.faults == [missing]
    assert str(run.policies[1]) in findings.descendants[str(run.verdicts[0])]
    # The same when only that artifact, or one that descends from it, is asked for.
    for wanted in (str(run.verdicts[0]), str(run.policies[2]), "latest", "run"):
        assert found(check_store(any_store, wanted)) == {(str(run.verdicts[0]), "manifest.json")}


def test_the_lost_result_of_a_step_is_missing_although_nothing_descends_from_it(any_store: Store) -> None:
    made = run_once(any_store.ref, "t", "1", write, "made")
    assert not check_store(any_store, None).faults
    files_of(any_store).rm_file(f"{made}/manifest.json")
    assert found(check_store(any_store, None)) == {(str(made), "manifest.json")}


def test_manifests_that_are_not_of_their_folder_or_content_are_found(any_store: Store) -> None:
    run, files = make_finished_run(any_store), files_of(any_store)
    moved, changed, broken = (f"{ref}/manifest.json" for ref in (*run.prompts, run.evaluations[0]))
    content = files.cat_file(changed)
    files.pipe_file(moved, content)
    digest = any_store.manifest(run.prompts[1]).files["prompts.parquet"].sha256
    files.pipe_file(changed, content.replace(digest.encode(), b"0" * 64))
    files.pipe_file(broken, b"\xff{")
    findings = check_store(any_store, None)
    said = {fault.artifact: fault.found for fault in findings.faults if fault.file == "manifest.json"}
    assert said[str(run.prompts[0])] == f"that of {run.prompts[1]}"
    assert said[str(run.prompts[1])].endswith(" of what it names")
    assert said[str(run.evaluations[0])] == "not a manifest"
    assert len(said) == 3


def test_an_artifact_of_a_newer_version_is_not_called_damaged(any_store: Store) -> None:
    run, files = make_finished_run(any_store), files_of(any_store)
    newer = f"{run.evaluations[1]}/manifest.json"
    files.pipe_file(newer, json.dumps({**json.loads(files.cat_file(newer)), "schema_version": 99}).encode())
    for read in (partial(check_store, any_store, None), partial(find_garbage, any_store)):
        with pytest.raises(ArtifactError, match=rf"{newer}: schema version 99; this code reads 1\. Update the code"):
            read()


def test_only_the_named_artifact_and_its_ancestors_are_read(store: Store) -> None:
    first, second = make_finished_run(store, seed=0), make_finished_run(store, seed=1)
    flip(store, f"{first.policies[2]}/model.safetensors")
    for sound in (str(first.policies[1]), "run", "latest"):
        assert not check_store(store, sound).faults
    for damaged in (str(first.report), str(first.policies[2]), None):
        assert found(check_store(store, damaged)) == {(str(first.policies[2]), "model.safetensors")}
    alone = check_store(store, str(second.policies[0]))
    assert (alone.artifacts, alone.files) == (1, 2)


def test_on_s3_the_objects_count_and_not_the_local_copy(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.open(f"{bucket}/prefix")
    run = make_finished_run(store, stages=1)
    (store.root / run.policies[0].folder / "model.safetensors").write_text("damaged")
    (store.root / run.policies[1].folder / "manifest.json").unlink()
    assert not check_store(store, None).faults
    shutil.rmtree(store.root)
    flip(store, f"{run.policies[0]}/config.json")
    assert found(check_store(store, None)) == {(str(run.policies[0]), "config.json")}
    assert not store.root.exists()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("MU_GRPO_S3_PATIENCE", "1")
    with pytest.raises(ArtifactError, match="failed for 1 s"):
        check_store(Store(store.ref), None)


def test_a_run_ends_only_if_the_bucket_has_its_artifacts(bucket: str, s3: S3) -> None:
    """All its tasks may have been skipped, as Flyte's cache and the local copy still have them."""
    run = make_run(bucket, 1)
    report = write_report(run.store, run.evaluations, run.seed)
    inputs = RunInputs(store=run.store.ref, seed=0, settings=RunSettings.read(CONFIG), trained_from=0, started=0.0)
    assert str(close_run(inputs=inputs, report=report)).startswith("mu_grpo")
    name = bucket.removeprefix("s3://")
    s3.client().delete_object(Bucket=name, Key=f"{run.policy.folder}/weights")
    lost = f"missing or incomplete in the bucket: {run.policy.folder}. Restore .* --overwrite-cache"
    with pytest.raises(DamagedError, match=lost):
        close_run(inputs=inputs, report=report)
    s3.delete_objects(name)
    with pytest.raises(DamagedError, match=r"in the bucket: .* and \d+ more\. Restore"):
        close_run(inputs=inputs, report=report)


def test_the_command_ends_with_1_when_something_is_wrong(store: Store) -> None:
    run = make_finished_run(store)
    files = sum(len(store.manifest(ref).files) for ref in run.artifacts)
    told = run_command("check", "--store", str(store.root))
    assert f"{len(run.artifacts)} artifacts, {files} files" in told
    assert told.rstrip().endswith("whole")
    flip(store, f"{run.policies[1]}/model.safetensors")
    done = command("check", "run", "--store", str(store.root))
    assert done.returncode == 1
    assert f"{run.policies[1]} model.safetensors" in words(done.stdout)
    assert "Traceback" not in done.stderr
