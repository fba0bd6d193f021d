"""Intervals that hold what they promise, and an evaluation of a policy from end to end."""

import json
from pathlib import Path

import pytest

from tasks.evaluate.metrics import GREEDY, measure
from tasks.evaluate.step import evaluate_policy
from tasks.settings import ArithmeticSettings, EvaluationSettings, PromptsSettings, VerifySettings
from tasks.store import ArtifactRef, Store
from tasks.store.tables import read_table
from tests.prepared import prepare_held_out
from tools import ROOT
from tools.cache_versions import sources


def test_nothing_solved_leaves_room_for_what_could_be_solved() -> None:
    """Of three problems, whatever the number of samples: a problem that is never solved says nothing of others."""
    samples = [sample(prompt, index, "wrong") for prompt in "abc" for index in range(8)]
    greedy = [sample(prompt, GREEDY, "wrong") for prompt in "abc"]
    metrics = measure([*samples, *greedy], [1] * 24, 8, "held_out")
    for estimate in (metrics["accuracy"], metrics["greedy"], metrics["majority"], *metrics["pass"].values()):
        assert estimate["value"] == estimate["low"] == 0
        assert estimate["high"] == pytest.approx(1 - 0.025 ** (1 / 3), abs=0.01)


def sample(prompt: str, index: int, outcome: str, level: int | None = 1) -> dict:
    return {
        "prompt_id": prompt,
        "sample_index": index,
        "level": level,
        "outcome": outcome,
        "shows_working": outcome == "correct",
        "response_tokens": 4,
        "finish_reason": "stop",
    }


def test_metrics_of_known_samples() -> None:
    samples = [
        sample("a", 0, "correct"),
        sample("a", 1, "wrong"),
        sample("b", 0, "timeout", 2),
        sample("b", 1, "correct", 2),
        sample("a", -1, "correct"),
        sample("b", -1, "no_answer", 2),
    ]
    metrics = measure(samples, [0, 1, -1, 0], 2, "held_out")
    assert metrics["accuracy"]["value"] == 0.5
    assert metrics["greedy"]["value"] == 0.5
    assert {k: one["value"] for k, one in metrics["pass"].items()} == {"1": 0.5, "2": 1.0}
    assert metrics["majority"]["value"] == 0.75
    assert metrics["by_problem"] == {"accuracy": [0.5, 0.5], "majority": [0.5, 1.0]}
    assert metrics["working"]["value"] == 0.5
    assert (metrics["k"], metrics["problems"]) == (2, 2)
    assert metrics["by_level"] == {"1": 0.5, "2": 0.5}
    assert metrics["outcomes"] == {"correct": 3, "wrong": 1, "timeout": 1, "no_answer": 1}


def test_an_evaluation_keeps_every_response(small: tuple[Store, ArtifactRef]) -> None:
    store, policy = small
    prompts = PromptsSettings(prompts_per_stage=1, arithmetic=ArithmeticSettings())
    held_out = prepare_held_out(store, prompts, 12)
    settings = EvaluationSettings(samples_per_problem=3, max_new_tokens=8)
    ref = evaluate_policy(store, settings, VerifySettings(workers=1), policy, held_out, 0)
    folder: Path = store.path(ref)
    rows = read_table(folder / "samples.parquet").to_pylist()
    assert len(rows) == 12 * 4
    assert sorted({row["sample_index"] for row in rows}) == [-1, 0, 1, 2]
    metrics = json.loads((folder / "metrics.json").read_text())
    assert sum(metrics["outcomes"].values()) == 48
    assert metrics["accuracy"]["low"] <= metrics["accuracy"]["value"] <= metrics["accuracy"]["high"]
    assert evaluate_policy(store, settings, VerifySettings(workers=1), policy, held_out, 0) == ref


def test_the_verifier_is_part_of_the_cache_version() -> None:
    """tests/test_house.py holds the version to these sources."""
    reached = {path.relative_to(ROOT).as_posix() for path in sources("evaluate")}
    assert {"tasks/verify/judge.py", "tasks/verify/verdicts.py", "tasks/verify/worker.py"} <= reached
