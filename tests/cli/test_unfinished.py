"""``mu-grpo report`` of a run that was interrupted: what there is, and what is missing, from its artifacts alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tasks.data.training import prepare_stage
from tasks.evaluate.metrics import average_evaluations
from tasks.evaluate.step import evaluate_policy
from tasks.report.step import write_report
from tasks.rollout.step import generate_shard
from tasks.store import ArtifactRef, Store
from tasks.store.records import Kind
from tasks.stored.unfinished import find_unfinished
from tasks.train.stage import optimize_stage
from tasks.verify.step import verify_rollouts
from tests.cli.synthetic import run_command, run_refused, words
from tests.prepared import EVALUATE, IN_PARTS, OPTIMIZE, PROMPTS, VERIFY, Learner, prepare_held_out, prepare_training
from tests.tracking.test_tracking import copy_policy


class Run:
    """The steps of a run of two stages, made one by one."""

    def __init__(self, store: Store, policy: ArtifactRef) -> None:
        self.store, self.base, self.policies = store, policy, [policy]
        self.held_out = prepare_held_out(self.of("prepare_benchmark"), PROMPTS, 6)
        training = prepare_training(self.of("prepare_training_set"), PROMPTS, self.held_out)
        self.prompts = [prepare_stage(self.of("prepare_prompts"), PROMPTS, training, stage, 0) for stage in range(2)]
        self.averages: list[ArtifactRef] = []
        self.rollouts: list[ArtifactRef] = []

    def of(self, task: str) -> Store:
        """The store of a task of the workflow."""
        return Store(self.store.ref, task)

    def evaluate(self) -> None:
        policy = self.policies[-1]
        found = evaluate_policy(self.of("evaluate"), EVALUATE, VERIFY, policy, self.held_out, 0)
        self.averages.append(average_evaluations(self.of("average"), policy, [found], 0))

    def generate(self, shards: int) -> None:
        stage, policy = len(self.policies) - 1, self.policies[-1]
        prompts = self.prompts[stage][:shards]
        self.rollouts = [generate_shard(self.of("generate"), IN_PARTS, policy, one, stage, 0) for one in prompts]

    def train(self) -> None:
        stage, policy = len(self.policies) - 1, self.policies[-1]
        verdicts = verify_rollouts(self.of("verify"), VERIFY, self.rollouts, stage, 0)
        made = optimize_stage(self.of("optimize"), OPTIMIZE, self.base, policy, self.rollouts, verdicts, stage, 0)
        self.policies.append(made)


@pytest.fixture(scope="module")
def stopped(learner: Learner, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """In the second stage, with one of two shards, and with its first policy not evaluated."""
    store = Store.open(tmp_path_factory.mktemp("stopped"))
    run = Run(store, copy_policy(*learner, Store(store.ref, "prepare_policy")))
    run.evaluate()
    run.generate(2)
    run.train()
    run.generate(1)
    return run


def report(run: Run, tmp_path: Path, *arguments: str) -> tuple[str, str]:
    """What the command prints, and the page."""
    page = tmp_path / "page.html"
    told = run_command("report", "--store", str(run.store.root), "--page", str(page), *arguments)
    return words(told), page.read_text(encoding="utf-8") if page.exists() else ""


def test_the_page_says_what_is_missing_and_shows_what_is_there(stopped: Run, tmp_path: Path) -> None:
    told, page = report(stopped, tmp_path)
    assert "mu_grpo, mu 4, seed 0" in told
    assert str(tmp_path / "page.html") in told
    top = words(page.split("<header>")[0].split('<aside id="unfinished"')[1])
    assert "This run is not finished" in top
    assert "It came as far as the rollouts of stage 2." in top
    for name in ("reward", "ess", "timeline"):
        assert f'id="figure-{name}"' in page
    assert "There is no second evaluation yet." in page
    assert stopped.rollouts[0].digest in page
    assert stopped.store.refs("report") == []


def test_the_page_follows_a_run_that_continues(stopped: Run, tmp_path: Path) -> None:
    stopped.evaluate()
    stopped.generate(2)
    stopped.train()
    stopped.evaluate()
    assert "as far as the policy of stage 2" in report(stopped, tmp_path)[1]

    write_report(stopped.store, stopped.averages, 0)
    assert find_unfinished(stopped.store) == []
    assert 'id="unfinished"' not in report(stopped, tmp_path)[1]


def test_runs_that_cannot_be_shown_are_named(stopped: Run, tmp_path: Path) -> None:
    where = ["report", "--store", str(stopped.store.root), "--page"]
    told = run_refused(*where, str(tmp_path / "page.html"), "--seed", "7", "--algorithm", "grpo")
    assert "no finished run with seed 7, algorithm grpo in this store" in told
    assert "nowhere/page.html cannot be written" in run_refused(*where, str(tmp_path / "nowhere/page.html"))


def test_seeds_that_share_a_base_policy_are_told_apart(store: Store) -> None:
    """A model of the hub is one artifact, whatever the seed; seed 2 is at its first stage yet."""

    def made(kind: Kind, seed: int, parents: Mapping[str, Any], **facts: Any) -> ArtifactRef:
        with store.write(kind, settings={}, parents=parents, seed=seed) as draft:
            (draft.path / "x").write_text(f"{kind} {seed}")
            draft.facts.update(facts)
        return draft.ref

    base = made("policy", 0, {}, stage=0, updates=0)
    for seed in range(3):
        made("average", seed, {"policy": base})
        rollouts = made("rollouts", seed, {"policy": base})
        if seed < 2:
            parents = {"policy": base, "rollouts": rollouts}
            policy = made("policy", seed, parents, stage=1, updates=8, preset="mu_grpo")
            made("average", seed, {"policy": policy})
    for seed in range(3):
        (run,) = find_unfinished(store, seed)
        assert [average.seed for average in run.averages] == [seed] * len(run.policies)
        assert len(run.policies) == (2 if seed < 2 else 1)
        assert [one.seed for one in run.rollouts] == ([] if seed < 2 else [2])
    assert [run.seed for run in find_unfinished(store)] == [2, 1, 0]
