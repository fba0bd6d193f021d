"""`mu-grpo plan` as a user runs it: its numbers, every file of the paper's runs, and the mistakes that it names."""

import json
import math
import re
import socket
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml
from safetensors import safe_open
from typer.testing import CliRunner

from tasks.cli.main import app
from tasks.cluster.plan import plan_cluster
from tasks.cluster.shapes import shape_of
from tasks.errors import SettingsError
from tasks.settings import PolicySettings, RunSettings
from tasks.settings.deployment import VARIABLE, DeploymentSettings, Role
from tasks.settings.experiment import read_experiment
from tasks.store import ArtifactRef, Store
from tests.cli.synthetic import run_command, run_refused
from tests.conftest import SMALL
from tests.workflows.runs import words
from tools import ROOT
from tools.paper_configs import STAGES
from tools.paper_table import PaperRun, runs

TINY, FILE = str(ROOT / "configs/tiny-cpu.yaml"), "configs/paper/gpu-4/qwen2.5-math-7b-mu-grpo.yaml"
PAPER, PRICES = str(ROOT / FILE), ROOT / "configs/prices.yaml"
EXPERIMENTS = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("configs/**/reproduce*.yaml"))


def test_a_plan_names_every_number_that_follows_from_the_file_and_overrides() -> None:
    overrides = ["--stages", "2", "updates_per_rollout=4", "optimize.preset=grpo"]
    text = words(run_command("plan", "--config", TINY, *overrides))
    for line in (
        "stages 2",
        "responses per stage 4096 512 x 8; 8192 in all",
        "shards per stage 2 of 256 prompts",
        "updates per stage 16 4096 / 256",
        "updates in all 32",
        "mu, updates per rollout 4",
        "rollout refreshes 8",
        "staleness 0 to 3",
        "evaluations 3",
        "coefficient one_side(r, 0.8, 1.2) * r * A",
    ):
        assert line in text
    text = words(run_command("plan", "--config", TINY, "prompts.prompts_per_shard=1024"))
    assert "shards per stage 1 of 512 prompts" in text  # A shard has no more prompts than its stage.
    text = words(run_command("plan", "--config", TINY, "optimize.objective.schedule.updates_per_batch=2"))
    assert "updates per stage 32 4096 / 256 x 2" in text


def test_a_planned_policy_has_the_parameters_that_it_will_have(small: tuple[Store, ArtifactRef]) -> None:
    store, policy = small
    with safe_open(store.path(policy) / "model.safetensors", "pt") as file:
        parameters = sum(file.get_tensor(name).numel() for name in file.keys())  # noqa: SIM118 - not a dict
    assert shape_of(PolicySettings(tiny=SMALL)).parameters == parameters
    text = words(run_command("plan", "--config", TINY, f"policy.path={store.path(policy)}"))
    assert f"policy {parameters / 1e6:,.2f} M" in text


def test_the_documented_plan_is_what_the_command_prints() -> None:
    page = (ROOT / "docs/cost.md").read_text()
    found = re.search(rf"```text\n\$ mu-grpo plan --config {re.escape(FILE)} --gpus 4\n(.*?)```", page, re.DOTALL)
    shown = "\n".join(map(str.rstrip, run_command("plan", "--config", FILE, "--gpus", "4", COLUMNS="118").splitlines()))
    assert found[1].strip("\n") in shown.strip("\n")
    assert shown.startswith("schedule")  # what a plan prints without --gpus comes first
    assert "weights 15.2 GB of training, in each process" in words(shown)


def test_a_price_file_of_ones_own(tmp_path: Path) -> None:
    values = yaml.safe_load(PRICES.read_text())
    changes = {"price": {"on_demand": 9, "spot": 4.5}, "throughput": {"source": "measured"}}
    ours = RunSettings.merge(values["accelerators"]["nvidia-h200"], changes)
    own = tmp_path / "own.yaml"
    storage = {**values["storage"], "egress_gb": 0.1}
    own.write_text(yaml.safe_dump({**values, "currency": "EUR", "accelerators": {"ours": ours}, "storage": storage}))
    run = RunSettings.read(Path(PAPER))
    plan, theirs = plan_cluster(run, 4, 4, prices=own), plan_cluster(run, 4, 4, prices=PRICES)
    assert plan.currency == "EUR"
    assert plan.mu_grpo.price["GPUs, spot"] == pytest.approx(2 * theirs.mu_grpo.price["GPUs, spot"])
    traffic = plan.mu_grpo.price["storage and traffic"] - theirs.mu_grpo.price["storage and traffic"]
    assert traffic == pytest.approx(0.1 * plan.mu_grpo.read_bytes / 1e9)
    assert plan.mu_grpo.seconds == theirs.mu_grpo.seconds
    sources = {one.name: one.source for one in plan.assumptions}
    names = ("decode step", "update, per token", "response_share")
    assert [sources[name] for name in names] == ["measured", "measured", "assumed"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--accelerator", "nvidia-h100"], "--accelerator: needs --gpus, which is not given"),
        (["--json"], "--json: needs --gpus"),
        (["--gpus", "4", "--accelerator", "b200"], "accelerator: 'b200' is not in the table of prices; allowed:"),
        (["--gpus", "-1"], "Invalid value for '--gpus'"),
        (["--gpus", "4", "policy.path=a/b"], "is not known here; allowed: a folder with the model, or Qwen/Qwen2"),
        (["--gpus", "4", "--prices", "none.yaml"], "prices: none.yaml: No such file or directory"),
        (["--gpus", "0"], "one process on this machine. Its speed is taken from a finished run: add --measured STORE"),
    ],
)
def test_a_mistake_on_the_command_line_is_a_message(options: list[str], message: str) -> None:
    assert message in run_refused("plan", "--config", PAPER, *options, code=2)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of the project on a machine that no server answers."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(socket.socket, "connect", Mock(side_effect=OSError("a plan needs no network")))


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("run", runs(), ids=lambda run: f"{run.path.parent.name}/{run.path.stem}")
def test_a_plan_takes_the_file_and_pods_have_the_foreseen_time(run: PaperRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deployment is the one that the run's file names in its head."""
    file = ROOT / f"configs/deployments/{run.hardware}.yaml"
    monkeypatch.setenv(VARIABLE, str(file))
    placed = DeploymentSettings.read(file)
    system = "grpo" if run.system == "grpo" else "mu_grpo"
    gpus = str(run.settings.optimize.backend.processes)
    done = CliRunner().invoke(app, ["plan", "--config", str(run.path), "--gpus", gpus, "--json"])
    assert done.exit_code == 0, done.output
    plan = json.loads(done.output)
    assert (plan["currency"], {one["source"] for one in plan["assumptions"]}) == ("USD", {"given", "assumed"})
    found = plan[system]
    assert set(found["price"]) == {"GPUs, spot", "GPUs, on demand", "storage and traffic"}
    assert (found["mu"], found["updates"]) == (4 if system == "grpo" else 1024, 4096)
    phases = {phase["name"]: phase for phase in found["phases"]}
    for name, role in (("alternate", "train"), ("optimize", "train"), ("evaluate", "evaluate")):
        if name in phases:
            assert phases[name]["pod_seconds"] / phases[name]["pods"] < seconds(placed, role)
    if system == "mu_grpo":  # a map task's timeout is that of all its shards
        assert phases["generate"]["wall_seconds"] / STAGES < seconds(placed, "rollout")


def seconds(placed: DeploymentSettings, role: Role) -> float:
    return 60 * placed.pods[role].timeout_minutes or math.inf


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("file", EXPERIMENTS)
def test_a_plan_takes_an_experiment_as_all_of_its_runs(file: str) -> None:
    experiment, store = read_experiment(ROOT / file)
    count = len(experiment.models) * len(experiment.systems)
    done = CliRunner().invoke(app, ["plan", "--config", file])
    assert done.exit_code == 0, done.output
    text = words(done.output)
    assert f"{count} runs for each seed (0, 1, 2), {3 * count} in all" in text
    run = experiment.runs(store)[0].settings
    responses = STAGES * run.responses_per_stage
    assert f"mu_grpo mu_grpo {STAGES * run.updates_per_stage:,} {run.mu:,} {STAGES} {responses:,}" in text


def test_names_with_brackets_are_shown_as_written(tmp_path: Path) -> None:
    values = yaml.safe_load((ROOT / "configs/reproduce-tiny.yaml").read_text())
    tiny = values["experiment"]["models"]["tiny"]
    values["experiment"]["models"] = {"tiny [base]": tiny, "tiny [/chat]": tiny}
    config = tmp_path / "experiment.yaml"
    config.write_text(yaml.safe_dump(values))
    text = words(run_command("plan", "--config", str(config), "--gpus", "1"))
    assert text.count("tiny [base] mu_grpo") == text.count("tiny [/chat] mu_grpo") == 2
    prices = tmp_path / "[ours].yaml"
    prices.write_text(PRICES.read_text())
    assert "[ours].yaml given" in words(run_command("plan", "--config", PAPER, "--gpus", "4", "--prices", str(prices)))


def test_a_key_beside_an_experiment_is_not_ignored(tmp_path: Path) -> None:
    config = tmp_path / "experiment.yaml"
    config.write_text((ROOT / "configs/reproduce-tiny.yaml").read_text() + "seeds: [5]\noverrides: seed=3\n")
    with pytest.raises(SettingsError, match="seeds, overrides beside experiment; allowed: the keys store and exper"):
        read_experiment(config)
    config.write_text("store:\nexperiment: {}\n")
    with pytest.raises(SettingsError, match="store: got None; allowed: a folder, or s3"):
        read_experiment(config)


@pytest.mark.usefixtures("offline")
def test_the_price_of_an_experiment_is_that_of_its_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(ROOT / "configs/deployments/gpu-4.yaml"))
    command = ["plan", "--config", "configs/paper/reproduce.yaml", "--gpus", "4"]
    rows = json.loads(CliRunner().invoke(app, [*command, "--json"]).output)
    assert len(rows) == 15
    plans = [(row["runs"], row["grpo" if row["system"] == "grpo" else "mu_grpo"]) for row in rows]
    price = sum(runs * sum(plan["price"].values()) for runs, plan in plans)
    assert f"{price:,.2f}" in CliRunner().invoke(app, command).output
