"""Starting again from what a store holds: a new verifier, or a new objective from a stage on."""

import shutil
from pathlib import Path

import pytest

from tasks.store import Store
from tests.workflows.runs import assert_succeeded, refusal_text
from tools.forked import Runner
from tools.runs import steps


@pytest.fixture
def copied(finished: tuple[Runner, str], tmp_path: Path) -> Runner:
    """A copy of a finished run of two stages, for another person with another Flyte cache."""
    runner, _ = finished
    copy = Runner(tmp_path)
    shutil.copytree(runner.folder / "pristine", copy.store)
    return copy


def test_rescoring_generates_nothing(copied: Runner) -> None:
    before = {ref.digest for ref in Store.open(copied.store).refs("rollouts")}
    strict = ["--verify", '{"workers": 1, "max_answer_characters": 1}', "--seed", "2", "--algorithm", "mu_grpo"]
    done = assert_succeeded(copied.run("rescore", *strict))
    assert steps(done.stdout) == [
        "stage 1 verify 1/2",
        "stage 1 verify 2/2",
        "stage 2 verify 1/2",
        "stage 2 verify 2/2",
    ]
    assert "correct -> no_answer" in done.stdout
    store = Store.open(copied.store)
    assert {ref.digest for ref in store.refs("rollouts")} == before
    assert len(store.refs("verdicts")) >= 4


def test_rescoring_with_the_same_verifier_changes_nothing(copied: Runner) -> None:
    done = assert_succeeded(
        copied.run("rescore", "--verify", '{"workers": 1}', "--seed", "2", "--algorithm", "mu_grpo")
    )
    assert steps(done.stdout) == []
    assert "No outcome changed." in done.stdout


def test_retraining_generates_the_later_stages_anew(copied: Runner) -> None:
    options = ["--seed", "2", "--algorithm", "mu_grpo", "--overrides", "optimize.preset=reinforce"]
    done = assert_succeeded(copied.run("retrain_2", *options))
    titles = steps(done.stdout)
    assert titles[:2] == ["stage 1 logp", "stage 1 optimize"]
    assert titles.count("stage 2 generate") == 2
    assert "reinforce, mu 8, seed 2: 16 updates" in done.stdout


@pytest.mark.parametrize(
    ("workflow", "options", "message"),
    [
        ("rescore", ["--seed", "7"], "no finished run with seed 7 in this store"),
        ("retrain_2", ["--seed", "2", "--from_stage", "2", "--algorithm", "mu_grpo"], "allowed: 0 to 1."),
    ],
)
def test_a_missing_run_or_stage_is_named(copied: Runner, workflow: str, options: list[str], message: str) -> None:
    text = refusal_text(copied.run(workflow, *options))
    assert message in text
