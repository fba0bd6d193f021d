"""pass@k, maj@k and means over benchmarks: worked numbers and properties; and an evaluation from end to end."""

import json
from dataclasses import asdict
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.errors import DataError, DeviceError, GateError
from tasks.evaluate.metrics import (
    CORRECT,
    GREEDY,
    NO_VOTE,
    accuracy_facts,
    combine,
    majority,
    measure,
    pass_at,
    reported_ks,
)
from tasks.evaluate.statistics import interval
from tasks.evaluate.step import answer_classes, evaluate_policy
from tasks.rollout.engine import MISSING
from tasks.rollout.transformers_engine import TransformersEngine
from tasks.settings import ArithmeticSettings, EvaluationSettings, PromptsSettings, VerifySettings
from tasks.store import ArtifactRef, Store
from tasks.store.tables import read_table
from tasks.verify.pool import Verifier
from tasks.verify.verdicts import Outcome
from tests.data.hub import lines
from tests.prepared import EVALUATE, PROMPTS, VERIFY, prepare_held_out, prepare_measured

GRIDS = st.integers(1, 7).flatmap(lambda k: st.lists(st.tuples(*[st.integers(0, 1)] * k), min_size=1, max_size=5))


@given(GRIDS, st.data())
def test_pass_at_k_is_the_share_of_draws_with_a_correct_sample(grid: list[tuple[int]], data: st.DataObject) -> None:
    correct_PK = np.array(grid, dtype=float)
    k = data.draw(st.integers(1, correct_PK.shape[1]))
    for passed, row in zip(pass_at(correct_PK, k), grid, strict=True):
        draws = list(combinations(row, k))
        assert passed == pytest.approx(sum(any(draw) for draw in draws) / len(draws))


def test_pass_at_k_is_reported_for_powers_of_two_and_all_samples() -> None:
    expected = [[1], [1, 2], [1, 2, 4], [1, 2, 4, 6], [1, 2, 4, 8, 16, 32]]
    assert [reported_ks(samples) for samples in (1, 2, 4, 6, 32)] == expected


@pytest.mark.parametrize(
    ("votes", "share"),
    [
        ([CORRECT, CORRECT, 1, 2], 1.0),
        ([CORRECT, 1, 1, 2], 0.0),
        ([CORRECT, 1, NO_VOTE, NO_VOTE], 0.5),
        ([CORRECT, 1, 2, NO_VOTE], 1 / 3),
        ([NO_VOTE, NO_VOTE], 0.0),
        ([NO_VOTE, CORRECT, NO_VOTE], 1.0),
    ],
)
def test_a_majority_of_known_votes(votes: list[int], share: float) -> None:
    assert majority(np.array([votes])) == pytest.approx([share])


def sampled(prompt: str, answers: list[str]) -> list[dict]:
    return [{"prompt_id": prompt, "response": rf"so \boxed{{{answer}}}"} for answer in answers]


def test_equal_answers_vote_together_however_they_are_written() -> None:
    samples = sampled("a", ["0.5", "7", r"\frac{14}{2}", "7.0", "8", "hello there"]) + sampled("b", ["7", "3"])
    samples.append({"prompt_id": "b", "response": "no box"})
    golds = [r"\frac{1}{2}"] * 6 + ["3"] * 3
    with Verifier(VerifySettings.parse({"workers": 1, "deadline_seconds": 0.5})) as verifier:
        verdicts = verifier.verify([(gold, one["response"]) for gold, one in zip(golds, samples, strict=True)])
        judged = [one | vars(made) for one, made in zip(samples, verdicts, strict=True)]
        slow = {"prompt_id": "a", "extracted": "9!!!!!", "outcome": Outcome.WRONG}  # No comparison with it ends.
        classes = answer_classes([*judged, slow, slow], verifier)
    assert classes == [CORRECT, 1, 1, 1, 3, 4, 1, CORRECT, NO_VOTE, 2, 2]
    assert majority(np.array([classes[:6]])) == [0.0]


def row(problem: object, index: int, outcome: str, reward: float | None = None, level: int | None = None) -> dict:
    judged = {"outcome": outcome, "reward": reward, "shows_working": outcome == "correct"}
    ended = {"response_tokens": 10 + index, "finish_reason": "length" if outcome == "wrong" else "stop"}
    return {"prompt_id": str(problem), "sample_index": index, "level": level, **judged, **ended}


def test_metrics_of_known_samples() -> None:
    outcomes = {"a": ["correct", "wrong", "correct"], "b": ["timeout", "wrong", "no_answer"]}
    samples = [
        row(problem, index, outcome, level=level)
        for level, problem in enumerate(outcomes, 1)
        for index, outcome in zip([0, 1, GREEDY], outcomes[problem], strict=True)
    ]
    metrics = measure(samples, [0, 1, -1, 1], 2, "held_out")
    # The interval is that of two problems, not of four responses.
    assert metrics["accuracy"] == asdict(interval([{"held_out": np.array([[0.5, 0.0]])}]))
    assert metrics["greedy"]["value"] == 0.5
    assert {k: one["value"] for k, one in metrics["pass"].items()} == {"1": 0.25, "2": 0.5}
    assert metrics["pass"]["1"] == metrics["accuracy"]
    assert metrics["majority"]["value"] == 0.25
    shares = {"accuracy": [0.5, 0.0], "majority": [0.5, 0.0], "greedy": [1.0, 0.0], "working": [0.5, 0.0]}
    assert metrics["by_problem"] == shares
    assert metrics["working"]["value"] == 0.25
    assert [metrics[name] for name in ("k", "problems", "response_tokens", "truncated")] == [2, 2, 10.5, 0.5]
    assert metrics["by_level"] == {"1": 0.5, "2": 0.0}
    assert metrics["outcomes"] == {"correct": 2, "wrong": 2, "timeout": 1, "no_answer": 1}


def measured(name: str, corrects: list[list[bool]]) -> dict:
    samples = [
        row(problem, index, "correct" if right else "wrong")
        for problem, answers in enumerate(corrects)
        for index, right in enumerate(answers)
    ]
    return measure(samples, [CORRECT if right else 1 for row in corrects for right in row], len(corrects[0]), name)


def test_benchmarks_have_equal_weights_in_the_mean() -> None:
    small = measured("small", [[True, True], [True, False]])
    large = measured("large", [[False] * 4] * 9 + [[True] * 4])
    mean = combine([small, large])
    assert mean["accuracy"]["value"] == pytest.approx((0.75 + 0.1) / 2)
    assert mean["accuracy"]["low"] < mean["accuracy"]["value"] < mean["accuracy"]["high"]
    assert (mean["benchmarks"], mean["problems"], mean["k"]) == (["small", "large"], 12, 0)
    assert mean["outcomes"] == {"correct": 7, "wrong": 37}
    assert (mean["greedy"], mean["response_tokens"], mean["truncated"]) == (None, 11, (0.25 + 0.9) / 2)
    assert mean["working"] == mean["accuracy"]  # Here correct responses show working.
    assert mean["majority"]["value"] == pytest.approx((0.75 + 0.1) / 2)
    assert combine([small]) == {**small, "benchmarks": ["small"]}


def test_greedy_accuracy_and_reward_are_averaged_where_all_benchmarks_have_them() -> None:
    plain = measured("plain", [[True, False]])
    answers = ("a", 0, "wrong", 1.0), ("a", GREEDY, "correct", 9.0), ("b", 0, "wrong", 3.0), ("b", GREEDY, "wrong")
    samples = [row(*answer) for answer in answers]
    one, other = (measure(some, [1] * (len(some) // 2), 1, "mine", rewards=True) for some in (samples, samples[:2]))
    mean = combine([one, other])
    assert (mean["greedy"]["value"], mean["reward"], mean["k"]) == ((0.5 + 1) / 2, (2 + 1) / 2, 1)
    assert accuracy_facts(mean).keys() == {"accuracy", "greedy", "majority", "reward"}
    mixed = combine([one, plain])
    assert mixed["greedy"] is None
    assert "reward" not in mixed


def test_mean_reward_is_added_and_changes_no_accuracy() -> None:
    rewards, outcomes = [2.5, -1.0, None, 1.0], ["correct", "wrong", "timeout", "correct"]
    samples = [row("a", index, *one) for index, one in enumerate(zip(outcomes, rewards, strict=True))]
    plain, told = measure(samples, None, 4, "mine"), measure(samples, None, 4, "mine", rewards=True)
    assert told.pop("reward") == pytest.approx(2.5 / 3)
    assert told == plain
    assert accuracy_facts({**told, "reward": 0.8}) == {"accuracy": 0.5, "reward": 0.8}


def test_an_evaluation_keeps_every_response(small: tuple[Store, ArtifactRef], monkeypatch) -> None:
    store, policy = small
    monkeypatch.setattr("tasks.evaluate.step.ROWS_AT_ONCE", 20)
    held_out = prepare_held_out(store, PromptsSettings(prompts_per_stage=1, arithmetic=ArithmeticSettings()), 12)
    settings = EvaluationSettings(samples_per_problem=3, max_new_tokens=8)
    folder = store.path(evaluate_policy(store, settings, VerifySettings(workers=1), policy, held_out, 0))
    rows = read_table(folder / "samples.parquet").to_pylist()
    assert (len(rows), pq.read_metadata(folder / "samples.parquet").num_row_groups) == (12 * 4, 3)
    assert sorted({row["sample_index"] for row in rows}) == [-1, 0, 1, 2]
    metrics = json.loads((folder / "metrics.json").read_text())
    assert sum(metrics["outcomes"].values()) == 48
    other = store.path(evaluate_policy(store, settings, VerifySettings(workers=1), policy, held_out, 1))
    again = read_table(other / "samples.parquet").to_pylist()
    changed = {row["sample_index"] for row, one in zip(rows, again, strict=True) if row["response"] != one["response"]}
    assert changed == {0, 1, 2}, "greedy responses do not depend on the seed"
    cold = settings.model_copy(update={"temperature": 0.01})
    folder = store.path(evaluate_policy(store, cold, VerifySettings(workers=1), policy, held_out, 0))
    rows = read_table(folder / "samples.parquet").to_pylist()
    assert len({(row["prompt_id"], row["response"]) for row in rows}) == 12


def test_an_evaluation_without_all_responses_and_judgements_has_no_result(
    small: tuple[Store, ArtifactRef], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, policy = small
    monkeypatch.chdir(tmp_path)
    Path("rewards.py").write_text("def raises(prompt, response, answer):\n    raise KeyError(response)\n")
    verify = VerifySettings.parse({"kind": "function", "function": "rewards:raises", "workers": 1})
    with pytest.raises(GateError, match=r"0 timeouts and 12 crashes among 12 responses"):
        evaluate_policy(store, EVALUATE, verify, policy, prepare_held_out(store, PROMPTS, 4), 0)
    monkeypatch.setattr(TransformersEngine, "generate", lambda _, requests, *__: [MISSING] * len(requests))
    with pytest.raises(DeviceError, match=r"problem 'L1:.*': the engine did not complete a response"):
        evaluate_policy(store, EVALUATE, VERIFY, policy, prepare_held_out(store, PROMPTS, 5), 0)


def test_a_problem_without_room_is_named_before_any_other_is_sampled(small: tuple[Store, ArtifactRef], tmp_path: Path):
    store, policy = small
    (tmp_path / "sums.jsonl").write_bytes(lines([{"prompt": one, "answer": "2"} for one in ("1+1=", "1+" * 30)]))
    benchmark = {"name": "sums", "source": {"path": str(tmp_path / "sums.jsonl")}}
    held_out = prepare_measured(store, PROMPTS, benchmarks=[benchmark])
    working = Store(store.ref, work="without-room")
    settings = EvaluationSettings(samples_per_problem=1, max_new_tokens=8, responses_per_part=1)
    with pytest.raises(DataError, match="60 tokens and max_new_tokens 8 exceed"):
        evaluate_policy(working, settings, VERIFY, policy, held_out, 0)
    assert working.progress.newest("samples") is None
