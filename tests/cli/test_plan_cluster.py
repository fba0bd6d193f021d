"""`mu-grpo plan --gpus N`, run as a user runs it, and the mistakes that it names."""

import re
from pathlib import Path

import pytest
import yaml

from tasks.cluster.plan import plan_cluster
from tasks.errors import UserError
from tasks.settings import RunSettings
from tasks.settings.deployment import VARIABLE
from tasks.store import Store
from tests.cli.synthetic import ROOT, run_command, run_refused, words

FILE = "configs/paper/gpu-4/qwen2.5-math-7b-mu-grpo.yaml"
PAPER, PRICES = str(ROOT / FILE), ROOT / "configs/prices.yaml"


def test_the_documented_plan_is_what_the_command_prints() -> None:
    found = re.search(
        rf"```text\n\$ mu-grpo plan --config {re.escape(FILE)} --gpus 4\n(.*?)```",
        (ROOT / "docs/cost.md").read_text(),
        re.DOTALL,
    )
    shown = "\n".join(map(str.rstrip, run_command("plan", "--config", FILE, "--gpus", "4", COLUMNS="118").splitlines()))
    assert found[1].strip("\n") in shown.strip("\n")
    assert shown.startswith("schedule")  # what a plan prints without --gpus comes first
    assert "weights 14.2 GiB of training, in each process" in words(shown)


def test_a_run_that_alternates_shows_its_own_pods() -> None:
    config = str(ROOT / "configs/tiny-cpu-grpo.yaml")
    text = words(run_command("plan", "--config", config, "--gpus", "1", "--accelerator", "nvidia-l40s"))
    assert "pods of grpo on 1 GPU, estimated" in text
    assert "alternate 4 1" in text
    assert "pod of train 1 x nvidia-l40s given" in text


def test_a_deployment_names_pods_and_accelerators() -> None:
    file = str(ROOT / "configs/deployments/gpu-8.yaml")
    text = words(run_command("plan", "--config", PAPER, "--gpus", "8", **{VARIABLE: file}))
    assert "pod of rollout 2 x nvidia-h200 given spot" in text
    assert "pod of train 8 x nvidia-h200 given on demand" in text


def test_a_price_file_of_ones_own(tmp_path: Path) -> None:
    values = yaml.safe_load(PRICES.read_text())
    row = values["accelerators"]["nvidia-h200"]
    row["price"] = {"on_demand": 9, "spot": 4.5}
    row["throughput"]["source"] = "measured"
    values |= {"currency": "EUR", "accelerators": {"ours": row}}
    own = tmp_path / "own.yaml"
    own.write_text(yaml.safe_dump(values))
    run = RunSettings.read(Path(PAPER))
    plan, theirs = plan_cluster(run, 4, 4, prices=own), plan_cluster(run, 4, 4, prices=PRICES)
    assert plan.currency == "EUR"
    assert plan.mu_grpo.price["GPUs, spot"] == pytest.approx(2 * theirs.mu_grpo.price["GPUs, spot"])
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
    ],
)
def test_a_mistake_on_the_command_line_is_a_message(options: list[str], message: str) -> None:
    assert message in run_refused("plan", "--config", PAPER, *options, code=2)


@pytest.mark.parametrize(
    ("gpus", "overrides", "options", "message"),
    [
        (4, "policy.path=some/model", {}, r"shape of 'some/model' is not known here; allowed: a folder .* Qwen/Qwen2"),
        (4, "", {"prices": Path("none.yaml")}, r"prices: none\.yaml: No such file or directory"),
        (4, "", {"store": "nowhere"}, r"nowhere: no store here"),
        (0, "", {}, r"gpus: 0 is one process on this machine, whose speed a run must tell: add --measured"),
    ],
)
def test_impossible_plans_are_refused(gpus: int, overrides: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        plan_cluster(RunSettings.read(Path(PAPER), overrides), 4, gpus, **{"prices": PRICES, **options})


def test_a_store_without_a_run_is_named(bucket: str) -> None:
    Store.open(bucket)
    with pytest.raises(UserError, match=f"{bucket}: no finished run in this store"):
        plan_cluster(RunSettings.read(Path(PAPER)), 4, 4, prices=PRICES, store=bucket)
