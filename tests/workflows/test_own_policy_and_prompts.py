"""A policy folder and a file of prompts that the project did not make, as the README shows them."""

import json
import re
import shutil
from pathlib import Path

from tasks.data.arithmetic import split
from tasks.models.step import prepare_policy
from tasks.settings import ArithmeticSettings
from tasks.settings.run import RunSettings
from tasks.store import Store
from tests.workflows.runs import refusal_text
from tools.forked import Runner
from tools.runs import CONFIG, steps

CHANGES = "prompts.prompts_per_stage=32 evaluate.problems=10 optimize.responses_per_update=128"


def test_an_own_policy_and_own_prompts(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "elsewhere")
    warm = "policy.tiny.warm_start.working_updates=60 policy.tiny.warm_start.guessing_updates=20"
    made = prepare_policy(store, RunSettings.read(CONFIG, warm).policy, ArithmeticSettings(levels=[1]), "", 0)
    shutil.copytree(store.path(made), tmp_path / "policy")
    (tmp_path / "policy" / "manifest.json").unlink()
    rows = [{"prompt": one.prompt, "answer": str(one.answer)} for one in split(ArithmeticSettings(levels=[1]))[0][:300]]
    (tmp_path / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    runner = Runner(tmp_path)
    policy = ["--policy", json.dumps({"path": str(tmp_path / "policy")})]
    prompts = ["--prompts", json.dumps({"path": str(tmp_path / "problems.jsonl"), "prompts_per_stage": 32})]
    command = ("mu_grpo_1", *policy, *prompts, "--overrides", CHANGES)
    told = runner.made(*command)
    assert "warm start" not in steps(told)
    assert "mu_grpo, mu 2, seed 0: 2 updates" in told
    assert steps(runner.made(*command)) == []
    with (tmp_path / "problems.jsonl").open("a") as lines:
        lines.write('{"prompt": "1+1=", "answer": "2"}\n')
    refused = refusal_text(runner.run("retrain_1", *command[1:]))
    assert re.search(r"trained on prompts of prompts/\w+ \(\d+ rows\), but .* Restore the data, name", refused)
    assert "stage 1 generate" in steps(runner.made(*command))
