"""Starting again from what a store holds: a new verifier, or a new objective from a stage on."""

from pathlib import Path

import pytest

from tasks.errors import DataError, SettingsError
from tasks.report.summary import RescoredRun, RescoredStage
from tasks.settings import RunSettings
from tasks.store import Store
from tasks.stored.runs import find_retrainable
from tests.cli.synthetic import make_finished_run
from tests.settings import override
from tests.workflows.runs import Finished, refusal_text
from tools.forked import Runner
from tools.runs import CONFIG, steps

NONE_HELD_OUT = '{"path": "a.jsonl", "prompts_per_stage": 1, "held_out_share": 0}'
PROGRAMS = '{"arithmetic": {"as_code": true}, "prompts_per_stage": 1}'
SHORT = ["--evaluate", '{"max_new_tokens": 8}', "--prompts"]


@pytest.fixture
def copied(finished: Finished, tmp_path: Path) -> Runner:
    """A copy of a finished run of two stages, for another person with another Flyte cache."""
    return finished.copied(tmp_path)


def test_rescoring_generates_nothing(copied: Runner) -> None:
    before = {ref.digest for ref in Store.open(copied.store).refs("rollouts")}
    strict = ["--verify", '{"workers": 1, "max_answer_characters": 1}', "--seed", "2", "--algorithm", "mu_grpo"]
    told = copied.made("rescore", *strict)
    assert steps(told) == [f"stage {stage} verify {shard}/2" for stage in (1, 2) for shard in (1, 2)]
    assert "correct -> no_answer" in told
    store = Store.open(copied.store)
    assert {ref.digest for ref in store.refs("rollouts")} == before
    assert len(store.refs("verdicts")) >= 4


def test_rescoring_with_the_same_verifier_changes_nothing(copied: Runner) -> None:
    (copied.folder / "home").symlink_to("/proc")  # where nobody can write
    told = copied.made("rescore", "--verify", '{"workers": 1}', "--seed", "2", "--algorithm", "mu_grpo")
    assert steps(told) == []
    assert all(text in told for text in ("goes on without Flyte's cache", "No outcome changed."))


def test_rewards_of_a_function_are_no_shares() -> None:
    stage = RescoredStage(responses=2, reward_before=-2.5, reward_after=None, changed={}, verdicts="verdicts/0")
    assert "-2.500" in str(RescoredRun(stages=[stage]))


def test_retraining_generates_the_later_stages_anew(copied: Runner) -> None:
    options = ["--seed", "2", "--algorithm", "mu_grpo", "--overrides", "optimize.preset=reinforce"]
    told = copied.made("retrain_2", *options)
    titles = steps(told)
    assert titles[:2] == ["stage 1 logp", "stage 1 optimize"]
    assert titles.count("stage 2 generate") == 2
    assert "reinforce, mu 8, seed 2: 16 updates" in told


@pytest.mark.parametrize(
    ("workflow", "options", "message"),
    [
        ("rescore", ["--seed", "7"], "no finished run with seed 7 in this store"),
        ("evaluation", [], "prompts.prompts_per_stage: missing. This field has no default and must be given."),
        ("evaluation", [*SHORT, NONE_HELD_OUT], "held_out with prompts.held_out_share 0, so it has no problems;"),
        ("evaluation", [*SHORT, PROGRAMS], "verify.kind: math with prompts.arithmetic.as_code true; allowed: code"),
        ("rescore", ["--seed", "2", "--verify", '{"kind": "code"}'], "allowed: math or function."),
        ("retrain_2", ["--seed", "2", "--from_stage", "3", "--algorithm", "mu_grpo"], "allowed: 1 to 2."),
        ("retrain_2", ["--seed", "2", "--from_stage", "0", "--algorithm", "mu_grpo"], "allowed: 1 to 2."),
        (
            "retrain_2",
            ["--seed", "2", "--overrides", "policy.tiny.layers=3 rollout.max_new_tokens=12"],
            "policy.tiny.layers: got 3; the stored run has 2 rollout.max_new_tokens: got 12; the stored run has 16",
        ),
    ],
)
def test_a_missing_or_wrong_input_is_named(copied: Runner, workflow: str, options: list[str], message: str) -> None:
    done = copied.run(workflow, *options)
    assert message in refusal_text(done)
    assert steps(done.stdout) == []


def test_the_latest_staged_run_is_chosen_to_be_trained_again(tmp_path: Path) -> None:
    store, settings = Store.open(tmp_path), RunSettings.read(CONFIG)
    staged = make_finished_run(store, preset="mu_grpo", settings=settings.result_values())
    turns = make_finished_run(store, settings={**settings.result_values(), "updates_per_rollout": 4})
    assert find_retrainable(store, settings, "").ref == staged.report
    with pytest.raises(DataError, match=f"{turns.report}: .* --algorithm mu_grpo"):
        find_retrainable(store, settings, "grpo")
    with pytest.raises(SettingsError, match=r"verify.deadline_seconds: got 5.0; the stored run has 2.0\n"):
        find_retrainable(store, override(settings, "verify.deadline_seconds=5"), "")
