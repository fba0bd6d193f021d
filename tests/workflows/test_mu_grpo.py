"""The main job through `pyflyte run`: it learns, it is cached, it is killed and goes on."""

import json
import re
import shutil
import signal
import time
from itertools import pairwise
from pathlib import Path

import pytest

from tasks.cli.runs import all_runs
from tasks.cluster.plan import plan_cluster
from tasks.formats import share
from tasks.settings import RunSettings
from tasks.store import ArtifactRef, Store
from tasks.store.tables import read_table
from tasks.stored.runs import find_artifact
from tests.workflows.runs import Finished, refusal_text
from tools import ROOT
from tools.forked import Runner
from tools.runs import steps

OPERATION = (
    "operation.updates_per_checkpoint=3 operation.checkpoints_kept=1 operation.tracker.kind=wandb verify.workers=2"
)


def test_accuracy_rises(finished: Finished) -> None:
    (summary,) = (run.summary for run in all_runs(finished.store))
    base, *_, last = summary.evaluated
    assert last.updates == 16
    assert last.accuracy.value > base.accuracy.value + 0.2
    assert last.accuracy.low > base.accuracy.high
    assert last.working.value > base.working.value + 0.3


def _table(output: str) -> list[str]:
    """The end of a run, without what differs between executions."""
    lines = output[output.index("mu_grpo, mu ") :].replace(", with the work of other executions", "").splitlines()
    return [line for line in lines if not line.startswith(("now ", "        mu-grpo compare "))]


def test_a_policy_knows_where_it_comes_from(finished: Finished) -> None:
    store = finished.store
    made = [one for one in store.manifests("policy") if one.facts.get("preset", "mu_grpo") == "mu_grpo"]
    policies = sorted(made, key=lambda manifest: manifest.facts["stage"])
    assert [policy.facts["updates"] for policy in policies] == [0, 8, 16]
    for before, after in pairwise(policies):
        assert after.parents["policy"] == [before.ref]
        for shard in after.parents["rollouts"]:
            assert store.manifest(shard).parents["policy"] == [before.ref]
            sampled_by = read_table(store.path(shard) / "rollouts.parquet")["policy"].unique().to_pylist()
            assert sampled_by == [before.digest]
        rows = read_table(store.path(after.ref) / "metrics.parquet").to_pylist()
        assert [row["staleness"] for row in rows] == list(range(8))
        assert rows[0]["ratio_max_negative"] == rows[0]["ratio_p01_negative"] == 1.0
        assert after.facts["logp_mismatch"] < 1e-4


def test_a_run_says_how_to_make_it_again(finished: Finished) -> None:
    store = finished.store
    report = next(one for one in store.manifests("report") if len(one.parents["evaluations"]) == 3)
    manifest = json.loads((finished.runner.store / f"runs/{report.digest[:16]}.json").read_text())
    assert RunSettings.parse(manifest["settings"]).seed == manifest["seed"] == 2
    assert manifest["settings"]["optimize"]["objective"]["veto"]["scope"] == "suffix"
    assert {"torch", "flytekit", "pytest"} <= manifest["packages"].keys()
    assert manifest["machine"]["memory_bytes"] > 2**30
    assert [stage["stage"] for stage in manifest["stages"]] == [0, 1, 2]
    for before, after in pairwise(manifest["stages"]):
        policy = store.manifest(ArtifactRef(kind="policy", digest=after["policy"]))
        assert policy.parents["policy"][0].digest == before["policy"]
        assert [ref.digest for ref in policy.parents["rollouts"]] == after["rollouts"]
        assert len(after["verdicts"]) == 1


def test_a_plan_by_the_rates_of_a_run_tells_that_run(finished: Finished) -> None:
    """Whatever the run's steps took: the prediction of the same run adds up to its ledger."""
    settings, prices = RunSettings.read(finished.runner.config), ROOT / "configs/prices.yaml"
    plan = plan_cluster(settings, 2, 0, prices=prices, store=str(finished.pristine))
    real = all_runs(Store.open(finished.pristine))[0].summary.ledger
    told = {str(row): seconds for row, seconds in plan.mu_grpo.seconds.items()}
    shared = ("warm_start", "evaluate")
    trained = [sum(seconds for row, seconds in one.items() if row not in shared) for one in (told, real)]
    assert trained[0] == pytest.approx(trained[1], rel=0.2)
    assert sum(told.values()) == pytest.approx(sum(real.values()), rel=0.2)
    assert plan.mu_grpo.updates == 16


def test_a_second_run_executes_nothing(finished: Finished) -> None:
    runner, output = finished
    decks = set((runner.folder / "tmp").rglob("deck.html"))
    again = runner.made("mu_grpo_2", "--seed", "2")
    assert set((runner.folder / "tmp").rglob("deck.html")) == decks
    assert steps(output)
    assert steps(again) == []
    assert re.search(r"^now +(\d+) artifacts, \1 of them new, in \d", output, re.MULTILINE)
    assert re.search(r"^now +\d+ artifacts, 0 of them new, in \d", again, re.MULTILINE)
    assert _table(again) == _table(output)


def work(output: str) -> set[str]:
    titles = [[word for word in title.split() if word.isalpha()] for title in steps(output)]
    return {"evaluate" if "evaluate" in words else words[-1] for words in titles}


@pytest.mark.parametrize(
    ("workflow", "changes", "done"),
    [
        ("mu_grpo_2", "evaluate.problems=20", {"evaluate"}),
        ("mu_grpo_1", "optimize.preset=relaxed optimize.learning_rate=2e-4", {"logp", "optimize", "evaluate"}),
        ("mu_grpo_1", "verify.deadline_seconds=3", {"verify", "evaluate"}),
        ("mu_grpo_1", "verify.max_answer_characters=2", {"verify", "logp", "optimize", "evaluate"}),
        ("mu_grpo_2", OPERATION, set()),
    ],
    ids=["evaluation", "optimizer", "verifier", "verdicts", "operation"],
)
def test_a_changed_setting_repeats_its_steps(finished: Finished, workflow: str, changes: str, done: set[str]) -> None:
    assert work(finished.runner.made(workflow, "--seed", "2", "--overrides", changes)) == done


def test_settings_that_give_equal_weights_are_two_runs(finished: Finished, tmp_path: Path) -> None:
    """At a rate at which no veto ever acts, with gradients that are never clipped."""
    runner = finished.copied(tmp_path)
    rarely, store = "optimize.learning_rate=1e-8 optimize.max_grad_norm=800", Store.open(runner.store)
    parts = "evaluate.responses_per_part=400 optimize.preset=relaxed"
    for change in ("", parts, "optimize.tokens_per_micro_batch=4000"):
        told = runner.made("mu_grpo_1", "--seed", "2", "--overrides", f"{rarely} {change}")
        assert "stage 1 generate" not in told  # the rollouts of the first stage are shared
    runs = [run for run in all_runs(store) if run.settings["optimize.learning_rate"] == 1e-8]
    names = ("preset", "max_grad_norm", "tokens_per_micro_batch")
    made = [tuple(run.settings[f"optimize.{name}"] for name in names) for run in runs]
    assert sorted(made) == [("mu_grpo", 800.0, 4000), ("mu_grpo", 800.0, 8192), ("relaxed", 800.0, 8192)]
    policies = set()
    for run, settings in zip(runs, made, strict=True):
        report = find_artifact(store, run.report)
        record = json.loads((runner.store / f"runs/{report.digest[:16]}.json").read_text())
        assert tuple(record["settings"]["optimize"][name] for name in names) == settings
        policies.add(record["stages"][1]["policy"])
        page = (store.path(report) / "report.html").read_text()
        assert f"<tr><th>preset</th><td>{settings[0]}</td></tr>" in page
        assert ("<tr><th>responses_per_part</th><td>400</td></tr>" in page) == (settings[0] == "relaxed")
    assert len(policies) == 1  # otherwise this test shows nothing


def test_another_benchmark_runs_nothing_else(finished: Finished, tmp_path: Path) -> None:
    runner, output = finished
    rows = [{"question": f"{n}+5=", "gold": f"#### {n + 5}"} for n in range(101, 107)]  # none that is generated
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = f"{{path: {tmp_path}/mine.jsonl, prompt: question, answer: gold, gold: hashes}}"
    benchmarks = f"[held_out, {{name: mine, source: {source}, samples_per_problem: 3}}]"
    told = runner.made("mu_grpo_2", "--seed", "2", "--overrides", f'evaluate.benchmarks="{benchmarks}"')
    policies = ("base", "stage 1", "stage 2")
    assert steps(told) == [
        "mine gold answers",
        *(f"evaluate {policy} mine{part}" for policy in policies for part in ("", " verify", " maj@3")),
    ]
    summaries = [run.summary for run in all_runs(finished.store)]
    (summary,) = (one for one in summaries if len(one.last.evaluations) == 2)
    for policy in summary.evaluated:
        held_out, mine = policy.evaluations
        names = (held_out.benchmark, mine.benchmark, mine.problems, mine.samples_per_problem)
        assert names == ("held_out", "mine", 6, 3)
        assert policy.accuracy.value == pytest.approx((held_out.accuracy.value + mine.accuracy.value) / 2)
        assert share(held_out.accuracy) in output
    assert "mean of 2" in told
    (tmp_path / "mine.jsonl").write_text('{"prompt": "11+5=", "answer": "16"}\n')
    own = {"name": "mine", "source": {"path": str(tmp_path / "mine.jsonl")}}
    evaluate = json.dumps({"max_new_tokens": 16, "benchmarks": [own]})
    prompts = json.dumps({"arithmetic": {}, "prompts_per_stage": 1})
    tracked = ["--operation", '{"tracker": {"kind": "tensorboard"}}']
    told = runner.made("evaluation", "--evaluate", evaluate, "--prompts", prompts, *tracked)
    assert "evaluate stage 2 mine" in steps(told)
    assert "on 1 problems" in told
    assert len([*runner.store.glob("tracking/tensorboard/evaluation-*/events*")]) == 1


def test_a_corrupted_artifact_is_named(finished: Finished, tmp_path: Path) -> None:
    copy = finished.copied(tmp_path)
    shutil.copytree(finished.runner.folder / "home", tmp_path / "home")
    policies = [one for one in Store.open(copy.store).manifests("policy") if one.facts["stage"] == 1]
    (policy,) = (one for one in policies if one.facts["preset"] == "mu_grpo")
    file = copy.store / policy.ref.folder / "model.safetensors"
    damaged = bytearray(file.read_bytes())
    damaged[-1] ^= 1
    file.write_bytes(damaged)
    text = refusal_text(copy.run("mu_grpo_2", "--seed", "2", "--overrides", "evaluate.problems=10")).replace(" ", "")
    assert "model.safetensors:corrupted" in text
    assert "pyflyterun--overwrite-cache" in text
    assert steps(copy.made("mu_grpo_2", "--overwrite-cache", "--seed", "2")) == ["stage 1 logp", "stage 1 optimize"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rollout", '{"responses_per_prompt": 8, "max_tokens": 3}'], "rollout.max_tokens: unknown field (value 3)"),
        (["--overrides", "updates_per_rollout=1"], "updates_per_rollout: got 1 in a workflow that generates once per"),
        (["--overrides", "prompts.prompts_per_stage=704"], "but there are 661 training prompts"),
    ],
)
def test_a_mistake_is_a_message_before_anything_runs(tmp_path: Path, options: list[str], message: str) -> None:
    done = Runner(tmp_path).run("mu_grpo_2", *options)
    assert message in refusal_text(done)
    assert steps(done.stdout) == []


def test_ctrl_c_ends_with_a_message(tmp_path: Path) -> None:
    running = Runner(tmp_path).launch("mu_grpo_1")
    while "warm start: " not in running.printed:
        assert running.returncode is None, running.printed
        time.sleep(0.1)
    running.send(signal.SIGINT, to_all=True)
    assert "Start the same command again: it continues from" in refusal_text(running.end())
