"""`mu-grpo plan` takes every file of the paper's runs, without a network, and pods have the time that it foresees."""

import json
import math
import socket
from typing import NoReturn

import pytest
from typer.testing import CliRunner

from tasks.cli.main import app
from tasks.settings.deployment import VARIABLE, DeploymentSettings, Role
from tasks.settings.experiment import read_experiment
from tests.cli.synthetic import words
from tools import ROOT
from tools.paper_configs import STAGES
from tools.paper_table import PaperRun, runs

EXPERIMENTS = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("configs/**/reproduce*.yaml"))


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of the project on a machine that no server answers."""

    def refuse(*_: object) -> NoReturn:
        raise OSError("a plan needs no network")

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def placed(run: PaperRun, monkeypatch: pytest.MonkeyPatch) -> DeploymentSettings:
    """The deployment that a run's file names in its head."""
    file = ROOT / f"configs/deployments/{run.hardware}.yaml"
    monkeypatch.setenv(VARIABLE, str(file))
    return DeploymentSettings.read(file)


@pytest.mark.parametrize("run", runs(), ids=lambda run: f"{run.path.parent.name}/{run.path.stem}")
def test_a_plan_takes_the_file_and_its_pods_have_the_time_that_is_foreseen(
    run: PaperRun, placed: DeploymentSettings
) -> None:
    system = "grpo" if run.system == "grpo" else "mu_grpo"
    gpus = str(run.settings.optimize.backend.processes)
    done = CliRunner().invoke(app, ["plan", "--config", str(run.path), "--gpus", gpus, "--json"])
    assert done.exit_code == 0, done.output
    plan = json.loads(done.output)
    assert (plan["currency"], {one["source"] for one in plan["assumptions"]}) == ("USD", {"given", "assumed"})
    found = plan[system]
    assert set(found["price"]) == {"GPUs, spot", "GPUs, on demand", "CPU pods", "storage and traffic"}
    assert (found["mu"], found["updates"]) == (4 if system == "grpo" else 1024, 4096)
    phases = {phase["name"]: phase for phase in found["phases"]}
    for name, role in (("alternate", "train"), ("optimize", "train"), ("evaluate", "evaluate")):
        if name in phases:
            assert phases[name]["pod_seconds"] / phases[name]["pods"] < seconds(placed, role)
    if system == "mu_grpo":  # a map task's timeout is that of all its shards
        assert phases["generate"]["wall_seconds"] / STAGES < seconds(placed, "rollout")


def seconds(placed: DeploymentSettings, role: Role) -> float:
    return 60 * placed.pod(role).timeout_minutes or math.inf


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


def test_the_price_of_an_experiment_is_that_of_its_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(ROOT / "configs/deployments/gpu-4.yaml"))
    command = ["plan", "--config", "configs/paper/reproduce.yaml", "--gpus", "4"]
    rows = json.loads(CliRunner().invoke(app, [*command, "--json"]).output)
    assert len(rows) == 15
    plans = [(row["runs"], row["grpo" if row["system"] == "grpo" else "mu_grpo"]) for row in rows]
    price = sum(runs * sum(plan["price"].values()) for runs, plan in plans)
    assert f"{price:,.2f}" in CliRunner().invoke(app, command).output
