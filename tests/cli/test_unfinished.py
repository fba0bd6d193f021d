"""``mu-grpo report`` of a run that was interrupted: what there is, and what is missing, from its artifacts alone."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tasks.report.step import write_report
from tasks.store import ArtifactRef, Store
from tasks.store.layout import Kind
from tasks.stored.unfinished import find_unfinished
from tests.cli.synthetic import run_command, run_refused, write
from tests.report.test_several_benchmarks import Measured
from tests.workflows.runs import words


@pytest.fixture
def trained(store: Store) -> Measured:
    """A run of two stages that evaluated its base policy alone."""
    run = Measured(store)
    with run.process("one"):
        run.base()
        run.train()
        run.train()
    return run


def report(store: Store, tmp_path: Path) -> tuple[str, str]:
    """What the command prints, and the page."""
    page = tmp_path / "page.html"
    told = run_command("report", "--store", str(store.root), "--page", str(page))
    return words(told), page.read_text(encoding="utf-8")


def test_the_page_says_what_is_missing_and_shows_what_is_there(trained: Measured, store: Store, tmp_path: Path) -> None:
    """A run that stopped in its second stage, with its verdicts, and with one of two shards."""
    parents = store.manifest(trained.policy).parents
    shutil.rmtree(store.root / trained.policy.folder)
    assert "training, stage 2" in report(store, tmp_path)[1]
    for later in (*parents["verdicts"], parents["rollouts"][1]):
        shutil.rmtree(store.root / later.folder)
    told, page = report(store, tmp_path)
    assert str(tmp_path / "page.html") in told
    top = words(page.split("<header>")[0].split('<aside id="unfinished"')[1])
    assert "Its last artifact is the rollouts of stage 2." in top
    assert all(f'id="figure-{name}"' in page for name in ("reward", "ess", "timeline"))
    assert all(ref.digest in page for ref in store.refs("rollouts"))
    assert store.refs("report") == []


def test_the_page_follows_a_run_that_continues(trained: Measured, tmp_path: Path) -> None:
    told, page = report(trained.store, tmp_path)
    assert "Its last artifact is the policy of stage 2" in page
    assert "64 updates in" in told
    trained.evaluate()
    write_report(trained.store, trained.evaluations, 0)
    assert find_unfinished(trained.store) == []
    assert 'id="unfinished"' not in report(trained.store, tmp_path)[1]


def test_runs_that_cannot_be_shown_are_named(trained: Measured, tmp_path: Path) -> None:
    where = ["report", "--store", str(trained.store.root), "--page"]
    told = run_refused(*where, str(tmp_path / "page.html"), "--seed", "7", "--algorithm", "grpo")
    assert "no finished run with seed 7, algorithm grpo in this store" in told
    assert "nowhere/page.html cannot be written" in run_refused(*where, str(tmp_path / "nowhere/page.html"))


def test_seeds_that_share_a_base_policy_are_told_apart(store: Store) -> None:
    """A model of the hub is one artifact, whatever the seed; seed 2 is at its first stage yet."""

    def made(kind: Kind, seed: int, parents: Mapping[str, Any], **facts: Any) -> ArtifactRef:
        return write(store, kind, {"x": f"{kind} {seed} {facts}"}, parents=parents, seed=seed, **facts)

    base = made("policy", 0, {}, stage=0, updates=0)
    for seed in range(3):
        made("average", seed, {"policy": base})
        parents = {"policy": base, "rollouts": made("rollouts", seed, {"policy": base})}
        if seed < 2:
            policy = made("policy", seed, parents, stage=1, updates=8, preset="mu_grpo")
            made("average", seed, {"policy": policy})
    for seed in range(3):
        (run,) = find_unfinished(store, seed)
        assert [average.seed for average in run.averages] == [seed] * len(run.policies)
        assert len(run.policies) == (2 if seed < 2 else 1)
        assert [one.seed for one in run.rollouts] == ([] if seed < 2 else [2])
    made("average", 9, {"policy": policy})  # As workflows/evaluation.py makes it: another seed is not another run.
    assert [run.seed for run in find_unfinished(store)] == [2, 1, 0]
    again = made("average", 0, {"policy": base}, accuracy=0.5)  # Of equal measures the latest counts.
    assert find_unfinished(store, 0)[0].averages[0].ref == again
    prompts = made("prompts", 2, {"training_set": made("prompts", 0, {})}, stage=1)
    other = made("rollouts", 2, {"policy": base, "prompts": prompts})  # Another run, with other prompts.
    made("verdicts", 2, {"rollouts": other})
    assert [(len(run.rollouts), len(run.verdicts)) for run in find_unfinished(store, 2)] == [(1, 1), (1, 0)]
    # A run with other benchmarks measured the same base policy.
    parents = {"policy": base, "prompts": [made("prompts", 0, {})]}
    made("average", 0, {"policy": base, "evaluations": [made("evaluation", 0, parents)]})
    assert [average.parents.keys() for average in find_unfinished(store, 0)[0].averages] == [{"policy"}, {"policy"}]
