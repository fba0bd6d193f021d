"""A study is a training run with its accuracy along the way."""

from pathlib import Path

import pytest

from tasks.errors import GateError, SettingsError
from tasks.settings import RunSettings
from tasks.store import ArtifactRef, Store
from tasks.store.tables import read_table
from tasks.train.study import run_study
from tests.prepared import Small, prepare_held_out, prepare_prompts
from tests.settings import deepspeed, override
from tools.runs import CONFIG

SMALL = "prompts.prompts_per_stage=32 prompts.prompts_per_shard=16 rollout.responses_per_prompt=4 "
RUN = RunSettings.read(CONFIG, SMALL + "optimize.responses_per_update=16")


@pytest.fixture(scope="module")
def start(learner: Small) -> tuple[Store, ArtifactRef, list[ArtifactRef], ArtifactRef]:
    store, policy = learner
    return store, policy, prepare_prompts(store, RUN.prompts, 0, 0), prepare_held_out(store, RUN.prompts, 20)


def run(start, mu: int, evaluations: int = 4, changes: str = "") -> ArtifactRef:
    store, policy, prompts, held_out = start
    settings = override(RUN, changes)
    measured = [one.evaluation for one in settings.measurements]
    of = (settings.rollout, settings.verify, settings.optimize, measured, mu, evaluations)
    return run_study(store, *of, policy, prompts, [held_out], 0)


def table(start, made: ArtifactRef, name: str) -> dict[str, list]:
    return read_table(start[0].path(made) / f"{name}.parquet").to_pydict()


def test_the_curve_has_a_point_at_equal_distances(start) -> None:
    made = run(start, 8)
    curve, metrics = table(start, made, "curve"), table(start, made, "metrics")
    assert curve["update"] == [0, 2, 4, 6, 8]
    assert all(len(row) == 20 for row in curve["problem_accuracy"])
    assert curve["accuracy"][-1] == pytest.approx(sum(curve["problem_accuracy"][-1]) / 20)
    assert metrics["update"] == list(range(1, 9))
    assert metrics["staleness"] == list(range(8))
    accuracies = {"accuracy": curve["accuracy"][-1], "best": max(curve["accuracy"])}
    assert start[0].manifest(made).facts == {"preset": "mu_grpo", "updates": 8, "stopped": ""} | accuracies


def test_evaluating_along_the_way_changes_no_update(start) -> None:
    once, often = (table(start, run(start, 4, evaluations), "metrics") for evaluations in (1, 8))
    assert once["loss"] == often["loss"]


def test_all_presets_start_from_the_same_rollouts(start) -> None:
    made = [run(start, 8, 1, f"optimize.preset={name}") for name in ("relaxed", "reinforce")]
    one, other = (table(start, study, "metrics") for study in made)
    assert one["reward"][0] == other["reward"][0]
    assert one["tokens"][0] == other["tokens"][0]


def test_a_limit_that_is_not_in_the_key_of_a_study_ends_it_without_a_result(start, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rewards.py").write_text("def raises(*_):\n    raise KeyError\n")
    raising = "verify='{kind: function, function: \"rewards:raises\"}'"  # 4 responses to each of 20 problems
    differing = "optimize.max_logp_mismatch=1e-12", r"log-probabilities differ by 0\.0000 on average .* allows 1e-12"
    for changes, message in (differing, (raising, "80 crashes among 80 responses")):
        with pytest.raises(GateError, match=message):
            run(start, 2, 4, changes)


def test_a_collapse_is_a_result_with_the_updates_before_it(start) -> None:
    made = run(start, 1, 4, "optimize.learning_rate=1e17")
    assert "not finite" in start[0].manifest(made).facts["stopped"]
    made = run(start, 8, 4, "optimize.learning_rate=1e30")  # All updates are of one refresh, which never ends.
    assert "norm is nan at update 2" in start[0].manifest(made).facts["stopped"]
    assert [table(start, made, name)["update"] for name in ("metrics", "curve")] == [[1], [0, 1]]


@pytest.mark.parametrize(
    ("evaluations", "changes", "message"),
    [
        (3, "", "evaluations: 3 does not divide the 8 updates"),
        (4, deepspeed(zero_stage=2), r"optimize.backend.kind: deepspeed in a study.*; allowed: torch"),
    ],
)
def test_impossible_studies_are_refused(start, evaluations: int, changes: str, message: str) -> None:
    store = start[0]
    before = len(list(store.manifests("study")))
    with pytest.raises(SettingsError, match=message):
        run(start, 8, evaluations, changes)
    assert len(list(store.manifests("study"))) == before


def test_rollouts_that_teach_nothing_are_a_result(start) -> None:
    # All responses that are cut off are left out, and at one token all are. Near temperature 0 all samples are equal.
    masked = "rollout.max_new_tokens=1 optimize.objective.data.truncated=mask"
    made = run(start, 8, 2, f"{masked} evaluate.temperature=0.01")
    assert start[0].manifest(made).facts["stopped"] == ""
    curve = table(start, made, "curve")
    assert curve["update"] == [0, 4, 8]
    assert {share for row in curve["problem_accuracy"] for share in row} == {0.0, 1.0}
