"""A run that is measured on several benchmarks: each is shown, and their mean is the headline."""

import re
from typing import Any

import pytest

from tasks.errors import DataError
from tasks.evaluate.metrics import CORRECT, average_evaluations, measure
from tasks.report.compare import ComparedRun, compare
from tasks.report.step import draw_page, write_report
from tasks.report.summary import PolicyAccuracies, summarise
from tasks.store import ArtifactRef, Store
from tests.report.pages import words
from tests.report.synthetic import SyntheticRun, history_of, make_run

EASY, HARD = "a_b", "a-b"
SHARES = {EASY: (8, 0.75), HARD: (2, 0.25)}
"""Samples per problem, and share of problems that the base policy always solves."""


class Measured(SyntheticRun):
    """Evaluates every policy on two benchmarks of four problems; every stage solves one more of the hard ones."""

    def evaluate(self) -> None:
        found = []
        for name, (k, share) in SHARES.items():
            solved = round(4 * share) + (self.stage if name == HARD else 0)
            rows = [self._row(name, place, index, place < solved) for place in range(4) for index in range(k)]
            classes = [CORRECT if row["outcome"] == "correct" else 1 for row in rows]
            metrics = measure(rows, classes, k, name)
            facts = {"benchmark": name, "accuracy": metrics["accuracy"]["value"], "warning": f"{name} {self.stage} <b>"}
            found.append(self._write_evaluation(metrics, rows, k, **facts))
        self.evaluations.append(average_evaluations(Store(self.store.ref, "average"), self.policy, found, self.seed))

    def _row(self, benchmark: str, place: int, index: int, right: bool) -> dict[str, Any]:
        asked = {"prompt_id": str(place), "prompt": f"{benchmark} {place}", "answer": "1", "level": None}
        told = {"sample_index": index, "response": str(2 - right), "response_tokens": 10 if benchmark == EASY else 30}
        judged = {"outcome": "correct" if right else "wrong", "reward": float(right), "shows_working": False}
        return {**asked, **told, **judged, "finish_reason": "stop"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    return make_run(tmp_path_factory.mktemp("measured"), 1, Measured)


@pytest.fixture(scope="module")
def report(run: Measured) -> ArtifactRef:
    return write_report(run.store, run.evaluations, 0)


def test_the_headline_is_the_mean_over_benchmarks(run: Measured) -> None:
    history = history_of(run)
    assert history.benchmarks == [EASY, HARD]
    assert [policy.accuracy.value for policy in history.evaluated] == [0.5, 0.625]
    assert [policy.response_tokens for policy in history.evaluated] == [20.0] * 2
    assert history.evaluated[0].outcomes == {"correct": 26, "wrong": 14}
    assert (history.evaluated[0].problems, history.evaluated[0].samples_per_problem) == (8, 0)
    hard = history.evaluated[1].evaluations[1]
    assert (hard.benchmark, hard.accuracy.value, hard.pass_at[2].value, hard.problems) == (HARD, 0.5, 0.5, 4)


def test_benchmarks_of_similar_names_have_their_own_outcomes_and_one_warning_each(run: Measured) -> None:
    text = words(draw_page(run.store, history_of(run))[0])
    assert "a b, base 24 8 0 0 32 a-b, base 2 6 0 0 8 a b, stage 1 24 8 0 0 32 a-b, stage 1 4 4 0 0 8" in text
    assert re.findall(r"Warning: (\S+ \d <b>)", text) == [f"{EASY} 1 <b>", f"{HARD} 1 <b>"]  # and none of the base


def test_the_report_has_the_same_bytes_again_and_a_table_for_the_terminal(run: Measured, report: ArtifactRef) -> None:
    assert write_report(run.store, run.evaluations, 0) == report
    summary = summarise(run.store, report, [])
    text = " ".join(str(summary).split())
    assert f"{EASY} {HARD} policy avg@8 avg@2" in text
    assert re.search(r"stage 1 75\.0 % 50\.0 %", text)
    base = summary.evaluated[0]
    assert [(one.benchmark, one.majority.value) for one in base.evaluations] == [(EASY, 0.75), (HARD, 0.25)]
    side_by_side = " ".join(compare([ComparedRun(summary, {}, str(report), 1e9)] * 2).split())
    assert "mean of 2 benchmarks, base 50.0 % 50.0 %" in side_by_side
    assert f"{HARD}, at the end 50.0 % 50.0 %" in side_by_side


def test_the_result_of_an_evaluation_has_rewards_and_room_for_long_names(run: Measured) -> None:
    evaluated = PolicyAccuracies.of(run.store, run.evaluations[0]).evaluated
    named = [one.model_copy(update={"benchmark": one.benchmark * 15, "reward": -0.25}) for one in evaluated.evaluations]
    lines = str(PolicyAccuracies(evaluated=evaluated.model_copy(update={"evaluations": named}))).splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [[EASY * 15, "avg@8"], [HARD * 15, "avg@2"]]
    assert [line.count("reward -0.250") for line in lines] == [0, 1, 1]


def test_evaluations_of_two_policies_have_no_mean(run: Measured) -> None:
    history = history_of(run)
    mixed = [history.evaluated[0].evaluations[0].evaluation, history.evaluated[1].evaluations[1].evaluation]
    with pytest.raises(DataError, match=r"is not an evaluation of policy/.*; allowed: those of one policy"):
        average_evaluations(run.store, history.evaluated[0].policy, mixed, 0)
