"""What a deployment and a file of prices may say, and what is refused before anything is registered."""

import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.errors import SettingsError
from tasks.process.provenance import image_tag
from tasks.settings.base import WHOLE_RUN
from tasks.settings.cost import CostSettings
from tasks.settings.deployment import VALUES, VARIABLE, DeploymentSettings, quantity
from tools import ROOT


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("500m", 0.5), ("2", 2.0), ("1.5", 1.5), ("64Gi", 64 * 2**30), ("10G", 1e10), ("1Ti", 2**40), ("3k", 3000)),
        *(("2Pi", 2**51), ("1Ei", 2**60), ("3P", 3e15), ("1E", 1e18), ("250u", 2.5e-4), ("7n", 7e-9), ("12e3", 12000)),
        *(("1E3", 1000), ("5e-1", 0.5), ("0", 0.0)),
    ],
)
def test_quantities_are_those_of_kubernetes(text: str, number: float) -> None:
    assert quantity(text) == pytest.approx(number)


@pytest.mark.parametrize("text", ["", "Gi", "64 Gi", "64GB", "-1", "1e", "1Kii", "0x10", "1.", ".5", "nan", "inf"])
def test_texts_that_are_no_quantities_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity; allowed: a number with m, Ki"):
        quantity(text)


def planned(name: str, store: str = "s3://b", **plan: str) -> dict[str, object]:
    return {"launch_plans": {name: {"config": "a.yaml", **plan}}, "store": store}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"pods": {"train": {"memory": "64 GB"}}}, r"pods.train.memory: got '64 GB'; is not a quantity"),
        ({"pods": {"train": {"cpu": "many"}}}, r"pods.train.cpu: got 'many'; is not a quantity"),
        ({"pods": {"train": {"gpus": -1}}}, r"pods.train.gpus: got -1; .*greater than or equal to 0"),
        ({"pods": {"train": {"memory": "8Gi", "shared_memory": "8Gi"}}}, "8Gi with memory 8Gi; allowed: less"),
        ({"pods": {"rollout": {"accelerator": "nvidia-h200"}}}, "nvidia-h200 with gpus 0; allowed: none, or"),
        ({"pods": {"judge": {}}}, "pods.judge.*'cpu', 'prefetch'"),
        ({"pods": {"cpu": {"image": "gpu"}}}, "pods.cpu.image: got 'gpu'; should be 'cpu', 'rollout'"),
        ({"train_nodes": 0}, "train_nodes: got 0"),
        ({"pods": {"train": {"timeout_minutes": -1}}}, r"timeout_minutes: got -1; .*or equal to 0"),
        ({"tag": ""}, "tag: got ''"),
        ({"tag": "a+b"}, r"tag: got 'a\+b'"),
        ({"pods": {"train": {"gpu": 1}}}, r"train.gpu: unknown field \(value 1\). Did you mean pods.train.gpus\?"),
        (planned("smoke", store="runs"), "'runs' with launch_plans; allowed: s3://"),
        (planned("smoke", store="s3://"), "'s3://' with launch_plans; allowed: s3:"),
        (planned("weekly"), "schedule: ''; allowed: a cron exp"),
        (planned("smoke", schedule="@day"), "'@day'; allowed: none"),
        (planned("best"), "launch_plans.best"),
    ],
)
def test_a_mistake_names_field_value_and_fix(values: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        DeploymentSettings.parse(values, WHOLE_RUN)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"accelerators": {"nvidia-h200": {"price": {"spot": -1}}}}, "nvidia-h200.price.spot: got -1; .*equal to 0"),
        ({"accelerators": {"nvidia-h200": {"memory_gb": 0}}}, "memory_gb: got 0; should be greater than 0"),
        ({"accelerators": {"nvidia-h200": {"throughput": {"training_flops": 1.5}}}}, "got 1.5; should be less than"),
        ({"accelerators": {"nvidia-h200": {"throughput": {"source": "guessed"}}}}, "got 'guessed'; should be"),
        ({"assumptions": {"response_share": 0}}, "assumptions.response_share: got 0"),
        ({"assumptions": {"store_gb_per_second": "fast"}}, "store_gb_per_second: got 'fast'"),
        ({"assumptions": {"luck": 1}}, "assumptions.luck: unknown field"),
        ({"storage": {"gb_month": None}}, "storage.gb_month: got None"),
        ({"storage": {"months": -1}}, "storage.months: got -1"),
    ],
)
def test_a_mistake_in_prices_is_named_too(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        CostSettings.parse(CostSettings.merge(yaml.safe_load((ROOT / "configs/prices.yaml").read_text()), change))


def test_the_environment_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert DeploymentSettings.current().image("train") == f"mu-grpo-cpu:{image_tag()}"
    file = tmp_path / "deployment.yaml"
    file.write_text("images: here/mu-grpo\ntag: v1\npods: {train: {image: train, gpus: 2}, prefetch: {}}\n")
    monkeypatch.setenv(VARIABLE, str(file))
    assert DeploymentSettings.current().image("train") == "here/mu-grpo-train:v1"
    assert DeploymentSettings.current().image("verify") == "here/mu-grpo-cpu:v1"
    assert DeploymentSettings.current().pods["prefetch"] == DeploymentSettings().pods["prefetch"]
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none.yaml"))
    with pytest.raises(SettingsError, match=rf"{VARIABLE}: .*none.yaml: No such file"):
        DeploymentSettings.current()


def test_images_are_tagged_with_the_commit_that_registers() -> None:
    made = subprocess.run(["make", "--silent", "tag"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert DeploymentSettings().tag == made.stdout.strip()


def test_an_image_knows_its_tag_where_there_is_no_git_of_its_own(tmp_path: Path) -> None:
    """Laid out as by images/install.sh, in the checkout of another project; a deployment that went along has a tag."""
    shutil.copytree(ROOT / "tasks", tmp_path / "tasks", ignore=shutil.ignore_patterns("__pycache__"))
    for words in ("init", "-c user.name=a -c user.email=a@b commit --allow-empty -m other"):
        subprocess.run(["git", *words.split()], cwd=tmp_path, check=True, capture_output=True)
    code = "from tasks.settings.deployment import DeploymentSettings as D; print(D.current().image('cpu'))"
    for commit, environment, image in (
        ("", {"PATH": os.environ["PATH"]}, f"mu-grpo-cpu:{version('mu-grpo')}"),
        ("0123456789abcdef" * 2 + "+", {}, "mu-grpo-cpu:0123456789ab-dirty"),
        ("-", {VALUES: DeploymentSettings(tag="v1").model_dump_json()}, "mu-grpo-cpu:v1"),
    ):
        if commit:
            (tmp_path / "COMMIT").write_text(commit)
        told = {"PATH": "/nowhere", **environment}
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=told, capture_output=True, text=True)
        assert done.stdout.strip() == image, done.stderr
