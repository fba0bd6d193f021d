"""What no kept run refers to goes, and never anything else, nor what is young or what running steps may still need."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tasks.cli.store import garbage_tables
from tasks.errors import ArtifactError
from tasks.store import ArtifactRef, Store
from tasks.store import lease as leases
from tasks.store.layout import KINDS
from tasks.store.work import run_once
from tasks.stored.check import check_store
from tasks.stored.garbage import delete_garbage, find_garbage
from tasks.stored.runs import find_reports
from tests.cli.synthetic import (
    Run,
    folders,
    make_finished_run,
    make_older,
    make_unfinished_run,
    names,
    on_disk,
    plain,
    run_command,
)
from tests.store.writers import run_until_killed, write
from tests.workflows.runs import words
from tools import ROOT
from tools.s3 import S3

SLOW = """
import sys, time
from tasks.store import Store, lease
from tasks.store.work import run_once
from tasks.process.interruption import save_on_sigterm
lease.HEARTBEAT_SECONDS = 0.5
def slow(store, text):
    store.progress.put("part", 0, lambda folder: (folder / "state.txt").write_text(text) and None)
    print(*store.root.glob("progress/*/*"), flush=True)
    time.sleep(600)
run_once(Store.open(sys.argv[1]).ref, "t", "1", save_on_sigterm(slow) if sys.argv[2:] else slow, "half")
"""


@contextmanager
def at_work(address: str, *leased: str, **environment: str) -> Iterator[str]:
    """Inside the block another process, which has saved a part, is at work; yield the work's key."""
    command, own = [sys.executable, "-c", SLOW, address, *leased], {**os.environ, **environment}
    with subprocess.Popen(command, cwd=ROOT, env=own, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = next(line for line in process.stdout if "progress/" in line)
            yield line.partition("progress/")[2].split("/")[0]
        finally:
            process.kill()


def test_young_artifacts_stay_with_their_ancestors_and_the_accuracies_of_these(store: Store) -> None:
    """The report of the run, which goes on, needs the accuracies of all its policies; another run was given up."""
    run, given_up = make_unfinished_run(store, stages=1), make_unfinished_run(store, stages=1, preset="relaxed")
    make_older(store)
    run.stage()
    make_older(store, [ref for ref in run.artifacts if ref != run.policies[2]])
    garbage, everything = find_garbage(store), folders(*run.artifacts, *given_up.artifacts)
    assert names(garbage) == folders(given_up.policies[1], given_up.evaluations[1])
    assert garbage.spared == len(run.artifacts)
    assert "younger than 24 h" in plain(garbage_tables(garbage, 24))
    assert names(find_garbage(store, hours=0)) == everything
    make_older(store)
    os.utime(store.root / run.policies[0].folder / "config.json")  # as after a copy of the store
    assert names(find_garbage(store)) == everything - folders(run.policies[0], run.evaluations[0])


def test_the_shards_of_a_run_stay_while_it_goes_on(store: Store) -> None:
    """A run prepared its stages and made rollouts two days ago, and others since; two, with other settings, ended."""
    run = Run(store).base()
    training = run.write("prepare_training", "prompts", {}, {}, {"prompts": "all"})

    def cut(**settings: int) -> list[ArtifactRef]:
        parents, files = {"training_set": training}, [{"prompts": f"{stage} {settings}"} for stage in range(3)]
        return [run.write("prepare_prompts", "prompts", settings, parents, one, stage=1) for one in files]

    def sample(shard: ArtifactRef, **settings: int) -> Any:
        parents, files = {"policy": run.policies[0], "prompts": shard}, {"rollouts.parquet": f"{settings}"}
        return run.write("generate", "rollouts", settings, parents, files, stage=1)

    shards, other_shards = cut(prompts_per_stage=8), cut(prompts_per_stage=16)
    _, other_rollouts = sample(shards[0]), sample(shards[0], top_k=4)
    make_older(store)
    sample(shards[1])
    assert names(find_garbage(store)) == folders(*other_shards, other_rollouts)


def test_every_finished_run_is_kept_and_one_that_was_rendered_again_is_one(store: Store) -> None:
    different: list[dict[str, Any]] = [{}, {"mu": 1}, {"seed": 1}]
    run, _, latest = (make_finished_run(store, stages=1, **fields) for fields in different)
    run.write("report", "report", {}, {"evaluations": run.evaluations}, {"page": "again"}, algorithm="grpo")
    assert find_reports(store)[0].ref == latest.report
    (store.root / "policy/note.txt").write_text("not an artifact's")
    make_older(store)
    garbage = find_garbage(store)
    assert not garbage.items
    assert (garbage.runs, garbage.kept, garbage.spared) == (len(different), len(on_disk(store)), 0)


def test_studies_and_comparisons_of_the_laboratory_are_finished_runs(store: Store) -> None:
    run = Run(store).base()
    studies = [
        run.write("study", "study", {"preset": "grpo", "low": low}, {"policy": run.policies[0]}, {"curve": str(low)})
        for low in (0.8, 0.9)
    ]
    made = run.write("laboratory", "laboratory", {"part": "a"}, {"studies": studies}, {"result.json": "{}"}, part="a")
    make_older(store)
    garbage = find_garbage(store)
    assert names(garbage) == folders(*run.evaluations)
    assert on_disk(store) - names(garbage) == folders(run.policies[0], *studies, made)


def test_records_are_deleted_with_their_artifacts(store: Store) -> None:
    run = make_finished_run(store, stages=1)
    kept, gone, lost = (run_once(store.ref, "t", "1", write, text) for text in ("kept", "gone", "lost"))
    for digest in (run.report.digest[:16], "0" * 16):
        (store.root / "runs").mkdir(exist_ok=True)
        (store.root / "runs" / f"{digest}.json").write_text("{}")
    run.write("generate", "rollouts", {}, {"prompts": kept}, {"x": ""})
    make_older(store)
    (store.root / "leases").rename(store.root / "elsewhere")
    shutil.rmtree(store.root / lost.folder)
    of = {json.loads(path.read_text())["artifacts"]["digest"]: path for path in (store.root / "made").iterdir()}
    young = [ref for ref in store.refs("rollouts") if ref.digest not in str(run.rollouts)]
    make_older(store, young, hours=-48)
    garbage = find_garbage(store)
    records = {f"made/{of[ref.digest].name}" for ref in (gone, lost)}
    assert names(garbage) == {gone.folder, *records, f"runs/{'0' * 16}.json"}
    delete_garbage(store, garbage)
    assert [path.name for path in (store.root / "made").iterdir()] == [of[kept.digest].name]
    assert [path.stem for path in (store.root / "runs").iterdir()] == [run.report.digest[:16]]
    # Work whose result went is done again.
    assert run_once(store.ref, "t", "1", write, "gone") == gone
    assert store.holds(gone)


def test_nothing_is_deleted_while_an_artifact_of_a_finished_run_is_missing(store: Store) -> None:
    """Its parents belong to the finished run too, and only its manifest names them."""
    run, left = make_finished_run(store, stages=1), make_unfinished_run(store, stages=1, preset="relaxed")
    other = make_finished_run(store, stages=1, seed=1)
    run.write("reproduction", "reproduction", {}, {"reports": [run.report, other.report]}, {"result.json": "{}"})
    shutil.rmtree(store.root / left.policies[1].folder)
    shutil.rmtree(store.root / other.report.folder)
    own = {*other.artifacts} - {*run.artifacts, other.report}
    assert names(find_garbage(store, hours=0)) == folders(left.evaluations[1], *own)
    shutil.rmtree(store.root / run.policies[1].folder)
    with pytest.raises(ArtifactError, match=rf"{run.policies[1]}/manifest.json: missing, so its parents"):
        find_garbage(store, hours=0)
    (store.root / left.policies[0].folder / "manifest.json").write_text("{")
    shutil.rmtree(store.root / "report")
    with pytest.raises(ArtifactError, match=rf"{left.policies[0]}/manifest.json: not a manifest, so its parents"):
        find_garbage(store, hours=0)


def test_the_command_lists_then_says_how_to_delete_then_deletes(store: Store) -> None:
    """What the unfinished run shares with the finished one stays."""
    done, left = make_finished_run(store, stages=1), make_unfinished_run(store, stages=1, preset="relaxed")
    assert left.rollouts == done.rollouts
    listing = ["gc", "--store", str(store.root), "--older-than", "0"]
    listed = run_command(*listing, "--names")
    kept = f"kept: 1 finished run; {len(done.artifacts)} artifacts"
    for text in (f"{left.policies[1]} ", f"{left.evaluations[1]} ", "all 2", kept):
        assert text in words(listed)
    assert listed.rstrip().endswith(f"delete it: mu-grpo gc --store {store.root} --older-than 0 --delete")
    assert len(on_disk(store)) == len(done.artifacts) + 2
    assert "delete it" not in run_command(*listing, "--delete")
    assert on_disk(store) == folders(*done.artifacts)
    assert not check_store(store, None).faults
    assert "nothing to delete" in run_command(*listing)


def test_unfinished_work_stays_while_its_process_lives(store: Store) -> None:
    run = make_unfinished_run(store, stages=1)
    sent = store.root / "policy/no-manifest-yet/weights"
    sent.parent.mkdir()
    sent.write_text("sent")
    with at_work(str(store.root)) as key:
        make_older(store)
        garbage = find_garbage(store, hours=0)
        assert not garbage.items
        assert garbage.work.keys == [key]
        assert garbage.spared == len(run.artifacts)
        assert f"read by running steps (leases {key})" in plain(garbage_tables(garbage, 0))
        delete_garbage(store, garbage)
        assert (store.root / "progress" / key / "part-000000/state.txt").read_text() == "half"
    garbage = find_garbage(store)
    work = {f"progress/{key}", f"leases/{key}.lock"}
    assert names(garbage) == folders(*run.artifacts) | work | {"policy/no-manifest-yet"}
    assert [item.kind for item in garbage.items if item.name in work] == ["unfinished work", "leases"]
    delete_garbage(store, garbage)
    assert [path.name for path in store.root.rglob("*") if path.is_file()] == ["store.json"]


def test_work_that_begins_during_gc_stays_with_its_artifacts(store: Store) -> None:
    run = make_unfinished_run(store, stages=0)
    with at_work(str(store.root)) as key:
        pass
    assert not find_garbage(store).items, "all is young"
    make_older(store)
    garbage = find_garbage(store)
    assert names(garbage) == {f"progress/{key}", f"leases/{key}.lock"} | folders(*run.artifacts)
    with at_work(str(store.root)) as same:
        assert same == key
        assert not delete_garbage(store, garbage).items
        assert (store.root / "progress" / key / "part-000000/state.txt").is_file()
        assert (store.root / "leases" / f"{key}.lock").is_file()
        assert on_disk(store) == folders(*run.artifacts)


def test_a_killed_gc_leaves_no_partial_artifact(any_store: Store) -> None:
    """It is killed between the manifest and the data of a policy, whose evaluations it has deleted."""
    run = make_unfinished_run(any_store)
    code = """
from tasks.stored.garbage import delete_garbage, find_garbage
storage = store.original
delete = storage.delete
def until_data(keys):
    if any(key.startswith("policy/") and not key.endswith("/manifest.json") for key in keys):
        die()
    return delete(keys)
storage.delete = until_data
delete_garbage(store, find_garbage(store, hours=0))
"""
    run_until_killed(any_store, code)
    assert {*any_store.refs(*KINDS)} < {ArtifactRef.of(ref.folder) for ref in run.artifacts}
    assert not check_store(any_store, None).faults, "an artifact was deleted before one that descends from it"
    garbage = find_garbage(any_store, hours=0)
    assert [item.kind for item in garbage.items].count("data without manifest") == 1
    delete_garbage(any_store, garbage)
    assert not any_store.listing(KINDS)


def test_on_s3_objects_and_local_copies_go_and_a_finished_run_stays(bucket: str, s3: S3) -> None:
    store = Store.open(f"{bucket}/prefix")
    done, left = make_finished_run(store, stages=1), make_unfinished_run(store, stages=1, preset="relaxed")
    code = """
store.remote.write_new = die
with store.write("policy", settings={}, parents={}, seed=0) as draft:
    (draft.path / "deep").mkdir()
    (draft.path / "deep/data.txt").write_text("x" * 1000)
"""
    run_until_killed(store, code)
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


def test_on_s3_work_of_another_machine_keeps_all(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "POLL_SECONDS", 0.2)
    monkeypatch.setattr(leases, "SILENCE_SECONDS", 4.0)
    monkeypatch.setattr("tasks.store.s3._KEYS_OF_A_REQUEST", 1)
    store = Store.open(bucket)
    run = make_unfinished_run(store, stages=0)
    garbage = find_garbage(store, hours=0)
    assert names(garbage) == folders(*run.artifacts)
    another = {"MU_GRPO_CACHE": str(tmp_path / "another machine")}
    with at_work(bucket, "leased", **another) as key:
        assert not delete_garbage(store, garbage).items, "work that began after the look needs its artifacts"
        found = find_garbage(store, hours=0)
        assert (found.items, found.work.keys, found.spared) == ([], [key], len(run.artifacts))
    garbage = find_garbage(store, hours=0)
    assert names(garbage) == folders(*run.artifacts) | {f"progress/{key}"}
    with at_work(bucket, "leased", **another):
        assert not delete_garbage(store, garbage).items, "unfinished work that goes on needs its parts"
    assert delete_garbage(store, find_garbage(store, hours=0)).items
    assert not find_garbage(store, hours=0).items
