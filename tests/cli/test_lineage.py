"""Where an artifact comes from: all of it, once, and readable by people and by programs."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tasks.cli.store import lineage_tables
from tasks.errors import DataError
from tasks.store import Store
from tasks.stored.runs import find_artifact, match_artifact
from tests.cli.synthetic import Run, command, make_finished_run, plain, run_command

KINDS = ("policy", "rollouts", "verdicts", "prompts")


def shown(store: Store, wanted: str, settings: bool = False) -> str:
    return plain(lineage_tables(store, wanted, settings))


def ancestors(run: Run) -> set[str]:
    """Folders of all that the last policy descends from, and its own."""
    return {ref.folder for ref in run.artifacts if ref.kind not in ("evaluation", "report")}


def test_every_ancestor_is_there_once_and_a_repeated_one_is_marked(store: Store) -> None:
    run = make_finished_run(store)
    lines = shown(store, str(run.policies[-1])).splitlines()
    tree = [line for line in lines if re.search(r"\w+/[0-9a-f]{16}", line)]
    expanded = [line for line in tree if "see above" not in line]
    assert {re.search(r"\w+/[0-9a-f]{16}", line)[0] for line in expanded} == ancestors(run)
    assert len(expanded) == len(ancestors(run))
    repeated = [line for line in tree if "see above" in line]
    # Of each of two stages the second shard's prompts, both shards' policy, and both shards below their verdicts.
    assert len(repeated) == 2 * (1 + 2 + 2)
    roles = [re.findall(r"(\w+)  (\w+)/[0-9a-f]{16}", line) for line in tree[1:]]
    assert {one for found in roles for one in found} == {(kind, kind) for kind in KINDS}


def test_a_line_names_the_step_its_settings_and_its_commit(store: Store) -> None:
    run = make_finished_run(store, seed=3, mu=2)
    text = shown(store, str(run.policies[-1]))
    first = text.splitlines()[0]
    made = "optimize v1  seed 3  stage 2, preset grpo, updates per rollout 2, updates 4  "
    assert first.startswith(f"{run.policies[-1]}  {made}")
    commit = store.manifest(run.policies[-1]).commit[:10]
    assert re.search(commit + r"\+?  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}  \d+\.\d s$", first)
    assert f"rollouts  {run.rollouts[1][0]}  generate v1  seed 3  responses 8" in text
    assert f"policy  {run.policies[0]}  prepare_policy v1  seed 3  a/b" in text
    assert "responses 16, reward 0.625" in text
    assert f"numpy {store.manifest(run.policies[-1]).packages['numpy']}" in text


def test_latest_a_few_characters_and_a_whole_digest_name_it(store: Store) -> None:
    make_finished_run(store, stages=1)
    ref = make_finished_run(store, stages=1, seed=1).policies[-1]
    assert find_artifact(store, "latest") == ref
    assert find_artifact(store, f"policy/{ref.digest[:6]}") == ref
    assert find_artifact(store, f"policy/{ref.digest}") == ref


def test_a_policy_is_asked_for_by_its_kind(store: Store) -> None:
    run = make_finished_run(store, stages=1)
    assert find_artifact(store, "latest", "policy") == find_artifact(store, str(run.policies[-1]), "policy")
    with pytest.raises(DataError, match="names no policy; allowed: policy/digest, or latest"):
        find_artifact(store, str(run.report), "policy")


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("policy/ffff", r"no such artifact in this store. There is policy/\w{16}, policy/\w{16}\."),
        ("study/ffff", "There is no study"),
        ("policy/ff", "at least 4 characters"),
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


def test_a_missing_ancestor_does_not_hide_the_others(store: Store) -> None:
    run = make_finished_run(store)
    (store.root / run.policies[1].folder / "manifest.json").unlink()
    text = shown(store, "latest")
    assert f"{run.policies[1]}  missing" in text
    assert "1 missing: `mu-grpo check" in text
    assert str(run.rollouts[1][0]) in text


def test_settings_are_shown_in_full(store: Store) -> None:
    make_finished_run(store)
    text = shown(store, "latest", settings=True)
    assert json.loads(text[text.index("\n{") :]) == store.manifest(find_artifact(store, "latest")).settings


def test_the_command_prints_json_of_a_store_on_s3(bucket: str) -> None:
    store = Store.open(f"{bucket}/prefix")
    run = make_finished_run(store)
    found = json.loads(run_command("lineage", "latest", "--store", f"{bucket}/prefix", "--json"))
    assert found["artifact"] == run.policies[-1].folder
    assert set(found["artifacts"]) == ancestors(run)
    assert found["artifacts"][run.policies[1].folder] == store.manifest(run.policies[1]).model_dump(mode="json")
    assert found["missing"] == {}


def test_a_command_that_is_named_can_be_copied_where_the_store_has_a_space(tmp_path: Path) -> None:
    run = make_finished_run(Store.open(tmp_path / "my runs"), stages=1)
    shutil.rmtree(run.store.root / run.policies[0].folder)
    (named,) = re.findall(r"`mu-grpo (check --store [^`]*)`", shown(run.store, str(run.policies[1])))
    assert run.policies[0].folder in command(*shlex.split(named)).stdout
