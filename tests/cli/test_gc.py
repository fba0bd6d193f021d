"""What no kept run refers to goes, and never anything else, nor what is young."""

import json
import os
import shutil
from typing import Any

import pytest

from tasks.cli.store import garbage_tables
from tasks.errors import ArtifactError
from tasks.store import ArtifactRef, Store
from tasks.store.work import run_once
from tasks.stored.check import check_store
from tasks.stored.garbage import delete_garbage, find_garbage
from tests.cli.synthetic import (
    DAYS,
    Run,
    folders,
    make_finished_run,
    make_older,
    make_unfinished_run,
    names,
    on_disk,
    plain,
    run_command,
    step,
    words,
)


def test_young_artifacts_stay_with_their_ancestors(store: Store) -> None:
    run = make_unfinished_run(store, stages=1)
    make_older(store, DAYS)
    run.stage()
    make_older(store, DAYS, [ref for ref in run.artifacts if ref != run.policies[2]])
    garbage = find_garbage(store)
    assert names(garbage) == folders(*run.evaluations)
    assert garbage.spared == len(run.artifacts) - len(run.evaluations)
    assert "younger than 24 h" in plain(garbage_tables(garbage, 24))
    assert names(find_garbage(store, hours=0)) == folders(*run.artifacts)


def test_the_shards_of_stages_to_come_stay_while_a_run_goes_on(store: Store) -> None:
    """A run prepared three stages two days ago and is in its second; another, with other settings, was given up."""
    run, given_up = Run(store).base(), Run(store)
    training = run.write("prepare_training", "prompts", {}, {}, {"prompts": "all"})

    def cut(own: Run, **settings: int) -> list[ArtifactRef]:
        parents = {"training_set": training}
        return [
            own.write("prepare_prompts", "prompts", settings, parents, {"prompts": f"{stage} {settings}"}, stage=stage)
            for stage in range(3)
        ]

    shards, others = cut(run, prompts_per_stage=8), cut(given_up, prompts_per_stage=16)
    make_older(store, DAYS)
    files, parents = {"rollouts.parquet": "young"}, {"policy": run.policies[0], "prompts": shards[1]}
    run.write("generate", "rollouts", {}, parents, files)
    assert names(find_garbage(store)) == folders(*others, *run.evaluations)


def test_an_artifact_whose_files_were_just_copied_here_is_young(store: Store) -> None:
    run = make_unfinished_run(store, stages=0)
    make_older(store, DAYS)
    os.utime(store.root / run.policies[0].folder / "config.json")
    assert names(find_garbage(store)) == folders(*run.evaluations)


def test_every_finished_run_is_kept_and_one_that_was_rendered_again_is_one(store: Store) -> None:
    different: list[dict[str, Any]] = [{}, {"trained": "b"}, {"mu": 1}, {"seed": 1}]
    run, *_ = (make_finished_run(store, stages=1, **fields) for fields in different)
    run.write("report", "report", {}, {"evaluations": run.evaluations}, {"page": "again"}, algorithm="grpo")
    (store.root / "policy/note.txt").write_text("not an artifact's")
    make_older(store, DAYS)
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
    make_older(store, DAYS)
    garbage = find_garbage(store)
    assert names(garbage) == folders(*run.evaluations)
    assert on_disk(store) - names(garbage) == folders(run.policies[0], *studies, made)


def test_records_are_deleted_with_their_artifacts(store: Store) -> None:
    run = make_finished_run(store, stages=1)
    kept, gone, lost = (run_once(store.ref, "t", "1", step, text) for text in ("kept", "gone", "lost"))
    for digest in (run.report.digest[:16], "0" * 16):
        (store.root / "runs").mkdir(exist_ok=True)
        (store.root / "runs" / f"{digest}.json").write_text("{}")
    run.write("generate", "rollouts", {}, {"prompts": kept}, {"x": ""})
    make_older(store, DAYS)
    (store.root / "leases").rename(store.root / "elsewhere")
    shutil.rmtree(store.root / lost.folder)
    of = {json.loads(path.read_text())["artifacts"]["digest"]: path for path in (store.root / "made").iterdir()}
    young = [ref for ref in store.refs("rollouts") if ref.digest not in str(run.rollouts)]
    make_older(store, -DAYS, young)
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
    assert run_once(store.ref, "t", "1", step, "gone") == gone
    assert store.holds(gone)


def test_nothing_is_deleted_while_a_manifest_cannot_be_read(store: Store) -> None:
    run = make_unfinished_run(store)
    (store.root / run.policies[0].folder / "manifest.json").write_text("{")
    with pytest.raises(ArtifactError, match=rf"{run.policies[0]}/manifest.json: not a manifest, so its parents"):
        find_garbage(store, hours=0)


def test_the_command_lists_then_says_how_to_delete_then_deletes(store: Store) -> None:
    """What the unfinished run shares with the finished one stays."""
    done, left = make_finished_run(store, stages=1), make_unfinished_run(store, stages=1, preset="relaxed")
    assert left.rollouts == done.rollouts
    listing = ["gc", "--store", str(store.root), "--older-than", "0"]
    listed = run_command(*listing, "--names")
    kept = f"kept: 1 finished run; {len(done.artifacts)} artifacts"
    for text in (f"{left.policies[1]} ", f"{left.evaluations[1]} ", "total 2", kept):
        assert text in words(listed)
    assert listed.rstrip().endswith(f"delete it: mu-grpo gc --store {store.root} --older-than 0 --delete")
    assert len(on_disk(store)) == len(done.artifacts) + 2
    assert "delete it" not in run_command(*listing, "--delete")
    assert on_disk(store) == folders(*done.artifacts)
    assert not check_store(store, None).faults
    assert "nothing to delete" in run_command(*listing)
