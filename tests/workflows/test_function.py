"""A whole run with a reward function in a file, which judges anew after an edit."""

import json
from pathlib import Path

import pytest

from tasks.store import Store
from tasks.store.layout import ACCURACY_FILE
from tasks.store.tables import read_table
from tools.forked import Runner
from tools.runs import steps

CHANGES = (
    "policy.tiny.warm_start.working_updates=40 policy.tiny.warm_start.guessing_updates=20 "
    "verify.kind=function verify.function=my_rewards:score prompts.prompts_per_stage=32 evaluate.problems=20 "
    "evaluate.samples_per_problem=2"
)
REWARDS = """
import re


def score(prompt: str, response: str, answer: str) -> float | None:
    found = re.findall(r"boxed{(-?\\d+)}", response)
    if not found:
        return None
    assert prompt
    return 1 / (1 + abs(int(found[-1]) - int(answer)))
"""


def rewards(store: Store) -> dict[str, list[float]]:
    refs = [one.ref for one in store.manifests("verdicts")]
    return {ref.digest: read_table(store.path(ref) / "verdicts.parquet")["reward"].to_pylist() for ref in refs}


def test_a_reward_function_of_ones_own(tmp_path: Path) -> None:
    runner, file = Runner(tmp_path), tmp_path / "my_rewards.py"
    file.write_text(REWARDS)
    told = runner.made("mu_grpo_1", "--overrides", CHANGES)
    store = Store.open(runner.store)
    ((first, given),) = rewards(store).items()
    assert len(given) == 32 * 8
    assert set(given) - {0.0, 1.0}
    assert all(0 <= one <= 1 for one in given)
    evaluations = store.manifests("evaluation")
    assert all(0 <= one.facts["accuracy"] < one.facts["reward"] <= 1 for one in evaluations)
    assert all(f" {one.facts['reward']:.3f} " in told for one in evaluations)
    # A function extracts no answer, so nothing says whether a response shows its working.
    assert {one.facts["working"] for one in store.manifests("verdicts")} == {None}
    assert all(json.loads((store.path(one.ref) / ACCURACY_FILE).read_text())["working"] is None for one in evaluations)
    file.write_text(REWARDS.replace("return 1 /", "return 2 /"))
    edited = steps(runner.made("mu_grpo_1", "--overrides", CHANGES))
    assert "stage 1 verify" in edited
    assert "stage 1 generate" not in edited
    after = rewards(store)
    (second,) = set(after) - {first}
    assert after[second] == pytest.approx([2 * one for one in given])
