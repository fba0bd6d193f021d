"""The mu-grpo command, run as a user runs it."""

import sys
from io import BytesIO, TextIOWrapper

import pytest
from typer.testing import CliRunner

from tasks.cli.main import app, run
from tasks.flyte.attempts import attempt
from tasks.settings import BENCHMARKS, PRESETS, TRAINING_SETS
from tests.cli.synthetic import command
from tests.workflows.runs import refusal_text
from tools import ROOT

CONFIG = str(ROOT / "configs/tiny-cpu.yaml")
KAPPA, KIND = "optimize.objective.veto.kappa", "rollout.engine.kind"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan", "--config", "nowhere.yaml"], "nowhere.yaml: No such file or directory"),
        (["plan", "--config", CONFIG, "optimize.learning_rate=fast"], "optimize.learning_rate: got 'fast'"),
        (["plan", "--config", CONFIG, "--gpus", "1", "--measured", "nowhere"], "no store here"),
        *(([name, "--store", "nowhere"], "no store here") for name in ("inspect", "compare", "report", "check", "gc")),
        (["lineage", "latest", "--store", "nowhere"], "no store here"),
        (["settings", "optimize.objective.vito"], "optimize.objective.vito: no setting has this name"),
        (["laboratory", "a", "--config", CONFIG], "updates of a run: 256, but prompts.prompts_per_stage 512"),
    ],
)
def test_a_mistake_is_a_message(arguments: list[str], message: str) -> None:
    done = command(*arguments)
    assert not done.stdout
    assert message in refusal_text(done)


@pytest.mark.parametrize(
    ("command", "names"), [("algorithms", {*PRESETS, "+ tis", "+ mis"}), ("data", {*BENCHMARKS, *TRAINING_SETS})]
)
def test_every_preset_and_data_set_has_a_row(command: str, names: set[str]) -> None:
    printed = CliRunner().invoke(app, [command]).stdout
    assert names <= {line[1:].split("  ")[0].strip() for line in printed.splitlines() if line[2:3].strip()}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        *(("optimize.objective.veto", KAPPA), (KAPPA, KAPPA), ("evaluate.engine.kind", KIND)),
        *((f"evaluate.benchmarks{rest}", "evaluate.benchmarks[].problems") for rest in ("", "[]", ".0.problems")),
        *(("evaluate.benchmarks.source.gold", "prompts.source.gold"), ("pods.train.gpus", "pods.<name>.gpus")),
    ],
)
def test_the_command_prints_a_part(name: str, shown: str) -> None:
    printed = CliRunner().invoke(app, ["settings", name]).stdout
    assert shown in printed
    assert "optimize.objective.gate.low" not in printed


def test_tables_are_printed_where_only_ascii_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(BytesIO(), encoding="ascii"))
    monkeypatch.setattr(sys, "argv", ["mu-grpo", "algorithms"])
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 0
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(BytesIO(), encoding="ascii"))
    attempt(print)("─")
