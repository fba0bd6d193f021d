import numpy as np
import pytest

from tasks.errors import DataError
from tasks.report.history import load_history, resolved_settings
from tasks.report.step import draw_page
from tests.report.pages import words
from tests.report.synthetic import make_run


def test_the_history_of_a_whole_run(mu_grpo):
    settings = {"rollout": {"temperature": 0.5}, "prompts": {"path": "mine"}}  # goes on from another run's first stage
    history = load_history(mu_grpo.store, mu_grpo.evaluations[::-1], seed=7, settings=settings, trained_from=1)
    assert [stage.rollouts[0].settings["temperature"] for stage in history.stages] == [1.0, 0.5, 0.5, 0.5]
    evaluated = {policy.label: policy.updates for policy in history.evaluated}
    assert [*evaluated.items()] == [("base", 0), ("stage 1", 32), ("stage 2", 64), ("stage 3", 96), ("stage 4", 128)]
    spans = [(stage.first_update, stage.last_update, len(stage.rollouts)) for stage in history.stages]
    assert spans == [(32 * stage + 1, 32 * stage + 32, 2) for stage in range(4)]
    assert history.stages[0].verdicts.facts["outcomes"]["no_answer"] == 11
    assert np.array_equal(history.updates["update"], np.arange(1, 129))
    assert np.isnan(history.updates["trigger_position"][:32]).tolist() == [True] + [False] * 31  # null in the first
    assert (history.algorithm, history.updates_per_rollout, history.seed) == ("mu_grpo", 32, 7)
    assert (history.boundaries, history.benchmarks) == ([32, 64, 96], ["held_out"])
    last, prompts = history.evaluated[-1], resolved_settings(history)["prompts"]
    assert (last.problems, last.headline, prompts) == (40, "avg@4", {"path": "mine"})
    # Held-out and four training prompt sets, five policies, eight shards, four verdicts, five evaluations.
    assert len(history.manifests) == 27


def test_evaluations_that_were_left_out_do_not_hide_their_stages_but_one_is_needed(mu_grpo):
    history = load_history(mu_grpo.store, [mu_grpo.evaluations[0], mu_grpo.evaluations[-1]])
    assert [policy.stage for policy in history.evaluated] == [0, 4]
    assert (len(history.stages), len(history.updates["reward"])) == (4, 128)
    with pytest.raises(DataError, match="no evaluation was given"):
        load_history(mu_grpo.store, [])


def test_the_headline_of_a_page_names_its_policies_if_the_base_policy_is_not_evaluated(mu_grpo):
    page, _ = draw_page(mu_grpo.store, load_history(mu_grpo.store, mu_grpo.evaluations[3:]))
    assert "held-out problems: the stage 3 policy, and after 128 updates in 4 stages." in words(page)


def test_two_runs_are_refused(tmp_path):
    first = make_run(tmp_path, 1)
    second = make_run(tmp_path, 2, preset="relaxed", seed=1)
    with pytest.raises(DataError, match="different runs"):
        load_history(first.store, [first.evaluations[-1], second.evaluations[-1]])
