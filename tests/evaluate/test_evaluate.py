"""Intervals that hold what they promise, and an evaluation of a policy from end to end."""

import json
from pathlib import Path

import numpy as np
import pytest

from tasks.artifacts import ArtifactRef, Store
from tasks.artifacts.tables import read_table
from tasks.evaluate.intervals import mean_interval, share_interval
from tasks.evaluate.metrics import measure
from tasks.evaluate.step import evaluate_policy
from tasks.settings import ArithmeticSettings, EvaluationSettings, PromptsSettings, VerifySettings
from tests.cache_versions import ROOT, sources
from tests.prepared import prepare_held_out


def test_wilson_interval_of_known_numbers() -> None:
    interval = share_interval(np.array([True] * 8 + [False] * 2))
    # 8 of 10: (0.4902, 0.9433), by the formula of Wilson (1927).
    assert interval == pytest.approx({"value": 0.8, "low": 0.490162, "high": 0.943318}, abs=1e-5)


def test_the_interval_of_a_mean_covers_the_truth_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    covered = 0
    for trial in range(100):
        difficulty = random.beta(1, 1, size=(60, 1))
        interval = mean_interval((random.random((60, 4)) < difficulty).astype(float), trial)
        covered += interval["low"] <= 0.5 <= interval["high"]
    assert 88 <= covered <= 100


def test_problems_are_resampled_and_not_samples() -> None:
    random = np.random.default_rng(1)
    problems = (random.random((50, 1)) < 0.5).astype(float)
    alone, repeated = mean_interval(problems, 0), mean_interval(problems.repeat(16, axis=1), 0)
    assert repeated == pytest.approx(alone)


def test_a_mean_without_spread_is_its_own_interval() -> None:
    assert mean_interval(np.ones((5, 2)), 0) == {"value": 1.0, "low": 1.0, "high": 1.0}


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
    metrics = measure(samples, [0, 1, -1, 0], 2, 0, "held_out")
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
    reached = {path.relative_to(ROOT).as_posix() for path in sources(ROOT / "tasks/evaluate/task.py")}
    assert {"tasks/verify/judge.py", "tasks/verify/answers.py", "tasks/verify/worker.py"} <= reached
