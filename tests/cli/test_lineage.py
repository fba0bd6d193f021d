"""Where an artifact comes from: all of it, once, and readable by people and by programs."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tasks.cli.store import lineage_tables
from tasks.errors import ArtifactError, DataError
from tasks.store import Store
from tasks.store.layout import MANIFEST
from tasks.stored.runs import find_artifact, match_artifact
from tests.cli.synthetic import Run, command, make_finished_run, plain, run_command


def shown(store: Store, wanted: str, settings: bool = False) -> str:
    return plain(lineage_tables(store, wanted, settings))


def ancestors(run: Run) -> set[str]:
    """Folders of all that the last policy descends from, and its own."""
    return {ref.folder for ref in run.artifacts if ref.kind not in ("evaluation", "report")}


def test_every_ancestor_is_there_once_and_a_repeated_one_is_marked(store: Store) -> None:
    run = make_finished_run(store)
    tree = [line for line in shown(store, str(run.policies[-1])).splitlines() if re.search(r"/[0-9a-f]{16}", line)]
    expanded = [re.search(r"\w+/[0-9a-f]{16}", line)[0] for line in tree if "see above" not in line]
    assert sorted(expanded) == sorted(ancestors(run))
    # Of each of two stages the second shard's prompts, both shards' policy, and both shards below their verdicts.
    assert len(tree) - len(expanded) == 2 * (1 + 2 + 2)


def test_a_policy_is_named_as_the_latest_by_a_few_characters_and_by_its_whole_digest(store: Store) -> None:
    make_finished_run(store, stages=1)
    run = make_finished_run(store, stages=1, seed=1)
    policy = run.policies[-1]
    for name in ("latest", policy.folder, f"policy/{policy.digest[:6]}", f"policy/{policy.digest}"):
        assert find_artifact(store, name, "policy") == policy
    with pytest.raises(DataError, match="names no policy; allowed: policy/digest, or latest"):
        find_artifact(store, str(run.report), "policy")
    (store.root / policy.folder / MANIFEST).unlink()
    with pytest.raises(ArtifactError, match=rf"{policy}/{MANIFEST}: missing"):
        shown(store, "latest")


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("policy/ffff", r"no such artifact in this store. There is policy/\w{16}, policy/\w{16}\."),
        ("study/ffff", "There is no study"),
        ("policies/ffff", "with one of the kinds prompts, policy, rollouts"),
        ("abcdef", "names no artifact; allowed: kind/digest"),
    ],
)
def test_an_unknown_name_gives_a_message_with_candidates(store: Store, wanted: str, message: str) -> None:
    make_finished_run(store, stages=1)
    with pytest.raises(DataError, match=message):
        find_artifact(store, wanted)


def test_an_ambiguous_name_lists_what_it_may_mean() -> None:
    names = ["policy/aaaa000000000000", "policy/aaaabbbbbbbbbbbb", "prompts/aaaa000000000000"]
    with pytest.raises(DataError, match=r"2 artifacts: policy/aaaa0{12}, policy/aaaab{12}. Give more characters"):
        match_artifact(names, "policy/aaaa")
    assert match_artifact(names, "policy/aaaa0") == names[0]


def test_the_command_prints_json_of_a_store_on_s3(bucket: str) -> None:
    store = Store.open(f"{bucket}/prefix")
    run = make_finished_run(store)
    found = json.loads(run_command("lineage", "latest", "--store", f"{bucket}/prefix", "--json"))
    assert found["artifact"] == run.policies[-1].folder
    assert set(found["artifacts"]) == ancestors(run)
    assert found["artifacts"][run.policies[1].folder] == store.manifest(run.policies[1]).model_dump(mode="json")
    assert found["missing"] == {}


def test_a_command_that_is_named_can_be_copied_whatever_the_name_of_the_store(tmp_path: Path) -> None:
    run = make_finished_run(Store.open(tmp_path / "my [bold] runs"), stages=1)
    shutil.rmtree(run.store.root / run.policies[0].folder)
    text = shown(run.store, str(run.policies[1]))
    assert f"{run.policies[0]}  missing" in text
    assert str(run.rollouts[0][0]) in text, "a missing ancestor hides others"
    (named,) = re.findall(r"1 missing: `mu-grpo (check --store [^`]*)`", text)
    assert run.policies[0].folder in command(*shlex.split(named)).stdout
