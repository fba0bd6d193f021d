"""Commands side by side: each has its own exit code and log, and a failure starts no more."""

import signal
import subprocess
from pathlib import Path

import psutil
import pytest
import yaml

from tasks.errors import SettingsError
from tasks.experiments import parallel
from tasks.experiments.parallel import Command, last_lines, run_side_by_side
from tasks.experiments.questions import QUESTIONS, QUICK
from tasks.settings import ExperimentSettings
from tests.cli.synthetic import run_refused
from tests.waiting import until
from tools import ROOT
from tools.runs import MU_GRPO


@pytest.fixture(autouse=True)
def preloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes have loaded the command and no more, which most of these tests do not need."""
    monkeypatch.setattr(parallel, "_PRELOADED", parallel._PRELOADED[:1])


def test_every_command_has_its_own_exit_code(tmp_path: Path) -> None:
    commands = [Command(str(one), ["--help"], tmp_path / f"{one}.txt") for one in range(12)]
    found = list(run_side_by_side(commands, jobs=6))
    assert sorted(command.name for command, _ in found) == sorted(command.name for command in commands)
    assert {code for _, code in found} == {0}
    assert all(command.log and "Usage" in command.log.read_text() for command in commands)


def test_no_command_is_started_after_a_failure(tmp_path: Path) -> None:
    wrong = Command("wrong", ["--no-such-option"], tmp_path / "wrong.txt")
    others = [Command(str(one), ["--help"], tmp_path / f"{one}.txt") for one in range(5)]
    found = {command.name: code for command, code in run_side_by_side([others[0], wrong, *others[1:]], jobs=1)}
    assert found == {"0": 0, "wrong": 2}
    assert "--no-such-option" in (tmp_path / "wrong.txt").read_text()
    assert not (tmp_path / "1.txt").exists()


def test_the_log_of_a_killed_run_is_shown_if_it_ends_inside_of_a_character(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes("".join(f"line {one}\n" for one in range(20)).encode() + "30 °C".encode()[:-2])
    assert last_lines(log).splitlines() == [*(f"line {one}" for one in range(13, 20)), "30 \ufffd"]


def start_part(store: Path) -> subprocess.Popen[str]:
    command = [MU_GRPO, "laboratory", "a", "--quick", "--jobs", "1", "--overrides", f"store={store}"]
    return subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def have_ended(processes: list[psutil.Process]) -> bool:
    return not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in processes)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_runs_end_with_the_command(how: signal.Signals, tmp_path: Path) -> None:
    with start_part(tmp_path) as running:
        until(lambda: any(path.stat().st_size for path in tmp_path.glob("logs/*")), seconds=120)
        runs = psutil.Process(running.pid).children(recursive=True)
        running.send_signal(how)
        told, _ = running.communicate()
    assert running.returncode == (130 if how == signal.SIGTERM else -how)
    assert told.startswith("Stopped. Start the same command again: it continues") or how == signal.SIGKILL
    assert runs
    until(lambda: have_ended(runs), seconds=120)
    assert not [*tmp_path.glob("study/*")], "a run went on to its end"


def test_a_run_whose_start_is_interrupted_does_not_begin(tmp_path: Path) -> None:
    """The first one starts when the server that forks it has loaded its modules."""
    with start_part(tmp_path) as running:
        servers: list[psutil.Process] = []
        until(lambda: servers.extend(psutil.Process(running.pid).children()) or len(servers) > 1, 120)
        running.terminate()
        told, _ = running.communicate()
    assert (running.returncode, told.count("\n")) == (130, 1), told
    until(lambda: have_ended(servers), seconds=120)
    assert not [*tmp_path.glob("prompts/*")]


def test_arms_of_one_stage_have_one_stage() -> None:
    """With 128 updates in a stage, the arms named "one stage" would refresh their rollouts after 64."""
    quick = yaml.safe_load((ROOT / QUICK.config).read_text())
    with pytest.raises(SettingsError, match=r"updates of a run: 64, but .* give 128 updates; allowed: equal numbers"):
        QUESTIONS["a"].arms[1].settings(quick, QUICK.updates, "optimize.responses_per_update=8")
    values = yaml.safe_load((ROOT / "configs/reproduce-tiny.yaml").read_text())["experiment"]
    values["laboratory"]["updates"] = 256
    with pytest.raises(SettingsError, match=r"experiment\.laboratory\.updates: 256, but .* give 64 updates"):
        ExperimentSettings.parse(values).laboratory_settings("runs")


def test_a_run_that_fails_is_named_with_its_log(tmp_path: Path) -> None:
    changes = f"store={tmp_path / 'store'} policy.path=/nowhere"
    told = run_refused("laboratory", "a", "--quick", "--jobs", "1", "--overrides", changes, HOME=str(tmp_path))
    assert "mu 4, seed 0 failed. Its output is in" in told
    assert "/nowhere" in told
