"""What no kept run refers to goes, and never anything else: not what is young, nor what a live run may read."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tasks.artifacts import ArtifactRef, Store
from tasks.artifacts.staging import staged
from tasks.artifacts.work import once
from tasks.cli.check import check_store
from tasks.cli.gc import Garbage, delete_garbage, find_garbage
from tasks.errors import ArtifactError
from tests.cli.synthetic import ROOT, Run, age, command, finished, plain, words
from tests.s3 import S3

DAYS = 48.0


def names(garbage: Garbage) -> set[str]:
    return {item.name for item in garbage.items}


def folders(*refs: ArtifactRef) -> set[str]:
    return {ref.folder for ref in refs}


def unfinished(store: Store, stages: int = 1, **fields: object) -> Run:
    run = Run(store, **fields).base()  # type: ignore[arg-type]
    for _ in range(stages):
        run.stage()
    return run


def on_disk(store: Store) -> set[str]:
    return {path.parent.relative_to(store.root).as_posix() for path in store.root.glob("*/*/manifest.json")}


def test_nothing_of_finished_runs_goes(store: Store) -> None:
    run = finished(store)
    age(store, DAYS)
    garbage = find_garbage(store, hours=0)
    assert not garbage.items
    assert (garbage.runs, garbage.kept, garbage.spared) == (1, len(run.artifacts), 0)
    assert "nothing to delete" in plain(garbage.shown(0))


def test_what_only_an_unfinished_run_refers_to_goes_and_what_it_shares_stays(store: Store) -> None:
    done = finished(store, stages=1)
    left = unfinished(store, stages=1, preset="relaxed")
    age(store, DAYS)
    garbage = find_garbage(store)
    own = {*left.policies[1:], *left.evaluations[1:]}
    assert names(garbage) == folders(*own)
    assert left.rollouts == done.rollouts
    delete_garbage(store, garbage)
    assert on_disk(store) == folders(*done.artifacts)
    assert not check_store(store, None).faults
    assert not check_store(store, None).leftovers
    assert not find_garbage(store).items


def test_what_descends_goes_before_what_it_descends_from(store: Store) -> None:
    run = unfinished(store, stages=2)
    age(store, DAYS)
    order = [item.name for item in find_garbage(store).items]
    for ref in run.artifacts:
        for parents in store.manifest(ref).parents.values():
            assert all(order.index(ref.folder) < order.index(parent.folder) for parent in parents)


def test_what_is_young_stays_with_all_that_it_descends_from(store: Store) -> None:
    run = unfinished(store, stages=1)
    age(store, DAYS)
    run.stage()
    age(store, DAYS, [ref for ref in run.artifacts if ref != run.policies[2]])
    garbage = find_garbage(store)
    assert names(garbage) == folders(*run.evaluations)
    assert garbage.spared == len(run.artifacts) - len(run.evaluations)
    assert "younger than 24 h" in plain(garbage.shown(24))
    assert names(find_garbage(store, hours=0)) == folders(*run.artifacts)


def test_an_artifact_whose_files_were_just_copied_here_is_young(store: Store) -> None:
    run = unfinished(store, stages=0)
    age(store, DAYS)
    os.utime(store.root / run.policies[0].folder / "config.json")
    assert names(find_garbage(store)) == folders(*run.evaluations)


def test_the_latest_runs_of_every_algorithm_mu_and_seed_are_kept(store: Store) -> None:
    first, second, third = (finished(store, stages=1, trained=name) for name in ("a", "b", "c"))
    others = [finished(store, stages=1, **other) for other in ({"mu": 1}, {"seed": 1}, {"preset": "relaxed"})]
    # The third run's report, rendered again, is no run of its own.
    third.write("report", "report", {}, {"evaluations": third.evaluations}, {"page": "again"}, algorithm="grpo")
    age(store, DAYS)
    assert not find_garbage(store).items
    two = find_garbage(store, keep=2)
    assert names(two) == folders(first.policies[1], first.evaluations[1], first.report)  # type: ignore[arg-type]
    assert two.runs == 2 + len(others)
    one = find_garbage(store, keep=1)
    assert names(one) == names(two) | folders(second.policies[1], second.evaluations[1], second.report)  # type: ignore[arg-type]
    delete_garbage(store, one)
    assert not check_store(store, None).faults


def test_studies_and_comparisons_of_the_laboratory_are_finished_runs(store: Store) -> None:
    run = Run(store).base()
    studies = [
        run.write("study", "study", {"preset": "grpo", "low": low}, {"policy": run.policies[0]}, {"curve": str(low)})
        for low in (0.8, 0.9)
    ]
    made = run.write("laboratory", "laboratory", {"part": "a"}, {"studies": studies}, {"result.json": "{}"}, part="a")
    age(store, DAYS)
    for keep in (None, 1):
        garbage = find_garbage(store, keep=keep)
        assert names(garbage) == folders(*run.evaluations)
        assert on_disk(store) - names(garbage) == folders(run.policies[0], *studies, made)


def step(store: Store, text: str) -> ArtifactRef:
    with store.write("prompts", settings={}, parents={}, seed=0) as draft:
        (draft.path / "data.txt").write_text(text)
    return draft.ref


def test_records_go_with_what_they_are_about(store: Store) -> None:
    run = finished(store, stages=1)
    kept = once(store.ref, "t", "1", step, lambda _: None, "kept")
    gone = once(store.ref, "t", "1", step, lambda _: None, "gone")
    lost = once(store.ref, "t", "1", step, lambda _: None, "lost")
    assert run.report is not None
    for digest in (run.report.digest[:16], "0" * 16):
        (store.root / "runs").mkdir(exist_ok=True)
        (store.root / "runs" / f"{digest}.json").write_text("{}")
    run.write("generate", "rollouts", {}, {"prompts": kept}, {"x": ""})
    age(store, DAYS)
    (store.root / "leases").rename(store.root / "elsewhere")
    shutil.rmtree(store.root / lost.folder)
    of = {json.loads(path.read_text())["artifacts"]["digest"]: path for path in (store.root / "made").iterdir()}
    young = [ref for ref in store.refs("rollouts") if ref.digest not in str(run.rollouts)]
    age(store, -DAYS, young)
    garbage = find_garbage(store)
    assert names(garbage) == {
        gone.folder,
        *(f"made/{of[ref.digest].name}" for ref in (gone, lost)),
        f"runs/{'0' * 16}.json",
    }
    delete_garbage(store, garbage)
    assert [path.name for path in (store.root / "made").iterdir()] == [of[kept.digest].name]
    assert [path.stem for path in (store.root / "runs").iterdir()] == [run.report.digest[:16]]
    # Work whose result went is done again.
    assert once(store.ref, "t", "1", step, lambda _: None, "gone") == gone
    assert store.holds(gone)


SLOW = """
import sys, time
from tasks.artifacts import Store
from tasks.artifacts.work import once
def slow(store, text):
    store.progress.put("part", 0, lambda folder: (folder / "state.txt").write_text(text) and None)
    time.sleep(600)
once(Store.open(sys.argv[1]).ref, "t", "1", slow, lambda place: print(place, flush=True), "half")
"""


@contextmanager
def at_work(address: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another process that has saved a part of its work, and the work's key."""
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, address], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = next(line for line in process.stdout if line.startswith("progress/"))
            yield process, line.split("/")[1]
        finally:
            process.kill()


def test_what_a_live_process_is_at_stays_and_goes_when_it_is_dead(store: Store) -> None:
    run = unfinished(store, stages=1)
    with at_work(str(store.root)) as (process, key):
        age(store, DAYS)
        garbage = find_garbage(store, hours=0)
        assert not garbage.items
        assert garbage.at_work == [key]
        assert garbage.spared == len(run.artifacts)
        assert f"steps that are at work (leases {key})" in plain(garbage.shown(0))
        delete_garbage(store, garbage)
        assert (store.root / "progress" / key / "part-000000/state.txt").read_text() == "half"
        process.send_signal(signal.SIGKILL)
        process.wait()
    garbage = find_garbage(store)
    work = {f"progress/{key}", f"leases/{key}.lock"}
    assert names(garbage) == folders(*run.artifacts) | work
    assert [item.kind for item in garbage.items if item.name in work] == ["unfinished work", "leases"]
    delete_garbage(store, garbage)
    left = {path.relative_to(store.root).as_posix() for path in store.root.rglob("*") if path.is_file()}
    assert left == {"store.json"}


def test_work_that_began_after_the_look_stays_with_all_artifacts(store: Store) -> None:
    run = unfinished(store, stages=0)
    with at_work(str(store.root)) as (process, key):
        process.kill()
        process.wait()
    age(store, DAYS)
    garbage = find_garbage(store)
    assert names(garbage) == {f"progress/{key}", f"leases/{key}.lock"} | folders(*run.artifacts)
    with at_work(str(store.root)) as (_, same):
        assert same == key
        assert not delete_garbage(store, garbage).items
        assert (store.root / "progress" / key / "part-000000/state.txt").is_file()
        assert (store.root / "leases" / f"{key}.lock").is_file()
        assert on_disk(store) == folders(*run.artifacts)


def test_young_unfinished_work_stays(store: Store) -> None:
    with at_work(str(store.root)) as (process, key):
        process.kill()
        process.wait()
    assert not find_garbage(store).items
    assert names(find_garbage(store, hours=0)) == {f"progress/{key}", f"leases/{key}.lock"}


def killed(address: str, patched: str) -> None:
    """A process that writes an artifact and dies when it calls something."""
    code = f"""
import os, signal
from tasks.artifacts import Store
from tasks.artifacts import store as module
store = Store.open({address!r})
{patched} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
with store.write("policy", settings={{}}, parents={{}}, seed=0) as draft:
    (draft.path / "deep").mkdir()
    (draft.path / "deep/data.txt").write_text("x" * 1000)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL


def test_staging_of_a_dead_writer_goes_and_that_of_a_living_one_stays(store: Store) -> None:
    killed(str(store.root), "module.entries")
    with staged(store.root) as living:
        (living / "x").write_text("x")
        garbage = find_garbage(store)
        (item,) = garbage.items
        assert (item.kind, item.bytes) == ("staging", 1000)
        delete_garbage(store, garbage)
        assert [path.name for path in (store.root / "staging").iterdir()] == [living.name]


def test_a_gc_that_is_killed_leaves_no_artifact_half_there(store: Store) -> None:
    run = unfinished(store)
    age(store, DAYS)
    code = f"""
import os, signal
from pathlib import Path
from tasks.artifacts import Store
from tasks.cli.gc import delete_garbage, find_garbage
unlink = Path.unlink
def until_data(path, missing_ok=False):
    if path.name != "manifest.json":
        os.kill(os.getpid(), signal.SIGKILL)
    unlink(path, missing_ok)
Path.unlink = until_data
store = Store.open({str(store.root)!r})
delete_garbage(store, find_garbage(store))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(on_disk(store)) == len(run.artifacts) - 1
    findings = check_store(store, None)
    assert not findings.faults
    assert len(findings.leftovers) == 1
    garbage = find_garbage(store)
    assert [item.kind for item in garbage.items].count("data without manifest") == 1
    delete_garbage(store, garbage)
    assert not list(store.root.glob("*/*/*"))


def test_nothing_goes_while_a_manifest_cannot_be_read(store: Store) -> None:
    run = unfinished(store)
    (store.root / run.policies[0].folder / "manifest.json").write_text("{")
    with pytest.raises(ArtifactError, match=rf"{run.policies[0]}/manifest.json: not a manifest, so what it refers to"):
        find_garbage(store, hours=0)


def test_on_s3_objects_and_local_copies_go_and_a_finished_run_stays(bucket: str, s3: S3) -> None:
    store = Store.open(f"{bucket}/prefix")
    done, left = finished(store, stages=1), unfinished(store, stages=1, preset="relaxed")
    killed(f"{bucket}/prefix", "store.remote.write_new")
    before = s3.keys(bucket.removeprefix("s3://"))
    assert not find_garbage(store).items
    garbage = find_garbage(store, hours=0)
    (data,) = (item for item in garbage.items if item.kind == "data without manifest")
    own = folders(*left.policies[1:], *left.evaluations[1:])
    assert names(garbage) == own | {data.name}
    assert data.bytes == 1000
    assert data.copied > 1000  # The local copy has the manifest.
    assert s3.keys(bucket.removeprefix("s3://")) == before
    assert "local copy" in plain(garbage.shown(0))
    delete_garbage(store, garbage)
    keys = [key.removeprefix("prefix/") for key in s3.keys(bucket.removeprefix("s3://"))]
    assert {"/".join(key.split("/")[:2]) for key in keys} == {"store.json", *folders(*done.artifacts)}
    assert {path.relative_to(store.root).as_posix() for path in store.root.glob("*/*/")} == folders(*done.artifacts)
    assert not check_store(store, None).faults


def test_on_s3_unfinished_work_and_copies_of_what_is_gone_go(bucket: str, s3: S3) -> None:
    store = Store.open(bucket)
    run = unfinished(store, stages=0)
    with at_work(bucket) as (process, key):
        garbage = find_garbage(store, hours=0)
        assert not garbage.items
        process.kill()
        process.wait()
    for name in s3.keys(bucket.removeprefix("s3://")):
        if name.startswith(str(run.evaluations[0])):
            s3.client().delete_object(Bucket=bucket.removeprefix("s3://"), Key=name)
    assert not find_garbage(store).items
    garbage = find_garbage(store, hours=0)
    kinds = {item.name: item.kind for item in garbage.items}
    assert kinds == {
        str(run.policies[0]): "policy",
        str(run.evaluations[0]): "local copies",
        f"progress/{key}": "unfinished work",
        f"leases/{key}.lock": "leases",
    }
    delete_garbage(store, garbage)
    assert s3.keys(bucket.removeprefix("s3://")) == ["store.json"]
    assert not [path for path in store.root.rglob("*") if path.is_file()]


def test_on_s3_another_machine_clears_unfinished_work_by_its_age(bucket: str, s3: S3) -> None:
    store = Store.open(f"{bucket}/prefix")
    with at_work(f"{bucket}/prefix") as (process, key):
        process.kill()
        process.wait()
    shutil.rmtree(store.root)
    assert not find_garbage(store).items
    garbage = find_garbage(store, hours=0)
    assert names(garbage) == {f"progress/{key}"}
    assert delete_garbage(store, garbage).items == garbage.items
    assert s3.keys(bucket.removeprefix("s3://")) == ["prefix/store.json"]
    assert not [path for path in store.root.rglob("*") if path.is_file()]


def test_the_command_lists_then_says_how_to_delete_then_deletes(store: Store) -> None:
    done, left = finished(store, stages=1), unfinished(store, stages=1, preset="relaxed")
    listed = command("gc", "--store", str(store.root), "--older-than", "0", "--names")
    assert listed.returncode == 0, listed.stderr
    text = words(listed.stdout)
    assert "to delete kind number bytes" in text
    assert f"{left.policies[1]} " in text
    assert "policy 1" in text
    assert "total 2" in text
    assert f"kept: 1 finished run; {len(done.artifacts)} artifacts" in text
    assert listed.stdout.rstrip().endswith(f"delete it: mu-grpo gc --store {store.root} --older-than 0 --delete")
    assert len(on_disk(store)) == len(done.artifacts) + 2
    deleted = command("gc", "--store", str(store.root), "--older-than", "0", "--delete")
    assert deleted.returncode == 0, deleted.stderr
    assert "deleted kind number bytes" in words(deleted.stdout)
    assert "delete it" not in deleted.stdout
    assert on_disk(store) == folders(*done.artifacts)
    assert "nothing to delete" in command("gc", "--store", str(store.root), "--older-than", "0").stdout


def test_the_folder_of_a_store_is_left_as_it_was_otherwise(store: Store) -> None:
    finished(store, stages=1)
    (store.root / "logs").mkdir()
    (store.root / "logs/a.txt").write_text("x")
    (store.root / "policy/note.txt").write_text("x")
    age(store, DAYS)
    assert not find_garbage(store, hours=0).items
    assert Path(store.root / "store.json").is_file()
