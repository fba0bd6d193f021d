"""Engines and backends that a run may ask for; test_settings.py has those that are refused."""

import json
from pathlib import Path

import pytest

from tasks.errors import SettingsError
from tasks.settings import BackendSettings, EngineSettings, RunSettings
from tests.settings import deepspeed, override
from tools import ROOT

ZERO = sorted((ROOT / "configs/deepspeed").glob("*.json"))


@pytest.mark.parametrize("path", ZERO, ids=lambda path: path.stem)
def test_every_file_of_deepspeed_is_taken(path: Path) -> None:
    settings = BackendSettings.parse({"kind": "deepspeed", "processes": 4, "deepspeed": str(path)})
    assert settings.deepspeed_config == json.loads(path.read_text())
    assert str(settings.zero_stage) in path.stem
    assert BackendSettings.model_validate_json(settings.model_dump_json()) == settings


@pytest.mark.parametrize("content", ["[1]", "2", '"stage 2"', ""])
def test_a_file_of_deepspeed_without_an_object_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "zero.json").write_text(content)
    with pytest.raises(SettingsError, match=r"deepspeed: got '.*zero.json'; cannot be read: .*allowed: DeepSpeed's"):
        BackendSettings.parse({"kind": "deepspeed", "deepspeed": str(tmp_path / "zero.json")})


def test_a_policy_is_evaluated_by_the_engine_of_the_rollouts_unless_told() -> None:
    run = RunSettings.read(ROOT / "configs/tiny-cpu.yaml", "rollout.engine.kind=vllm")
    assert run.evaluate.engine is None
    assert run.measurements[0].evaluation.engine == run.rollout.engine
    told = override(run, "evaluate.engine.batch_size=7")
    assert told.measurements[0].evaluation.engine == EngineSettings(batch_size=7)


def test_a_colocated_run_may_use_vllm_and_deepspeed_with_one_gpu_per_process() -> None:
    turns = f"updates_per_rollout=4 rollout.engine.kind=vllm {deepspeed(zero_stage=2, processes=2)}"
    assert RunSettings.read(ROOT / "configs/tiny-cpu.yaml", turns).mu == 4
    message = "rollout.engine.tensor_parallel: 2 with updates_per_rollout 4: .* the one GPU .*; allowed: 1"
    with pytest.raises(SettingsError, match=message):
        RunSettings.read(ROOT / "configs/tiny-cpu.yaml", f"{turns} rollout.engine.tensor_parallel=2")
