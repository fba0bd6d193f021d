"""What engines and backends may be asked for, and what is refused before anything runs."""

import json
from pathlib import Path

import pytest

from tasks.errors import SettingsError
from tasks.settings import BackendSettings, EngineSettings, RunSettings
from tools import ROOT

ZERO = sorted((ROOT / "configs/deepspeed").glob("*.json"))
STAGE_1 = {"zero_optimization": {"stage": 1}}
TWO = str(ROOT / "configs/deepspeed/zero2.json")


@pytest.mark.parametrize("path", ZERO, ids=lambda path: path.stem)
def test_every_file_of_deepspeed_is_taken(path: Path) -> None:
    settings = BackendSettings.parse({"kind": "deepspeed", "processes": 4, "deepspeed": str(path)})
    assert settings.deepspeed_config == json.loads(path.read_text())
    assert str(settings.zero_stage) in path.stem
    assert BackendSettings.model_validate_json(settings.model_dump_json()) == settings


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"processes": 2}, "processes 2 with kind torch; allowed: 1, or kind deepspeed"),
        ({"deepspeed": TWO}, "unknown field with kind torch; allowed: with kind deepspeed"),
        ({"kind": "deepspeed"}, "deepspeed.zero_optimization.stage: 0; allowed: 1, 2 or 3"),
        ({"kind": "deepspeed", "deepspeed": "nowhere.json"}, "cannot be read: .*nowhere.json"),
        ({"kind": "deepspeed", "deepspeed": STAGE_1, "dtype": "bfloat16"}, "dtype bfloat16; allowed: 2"),
        ({"kind": "deepspeed", "deepspeed": {**STAGE_1, "optimizer": {}}}, "deepspeed.optimizer: is decided by"),
        ({"dtype": "float16"}, "backend.dtype: got 'float16'"),
    ],
)
def test_impossible_backends_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        BackendSettings.parse(values)


def test_transformers_share_no_weights_over_gpus() -> None:
    with pytest.raises(SettingsError, match="tensor_parallel 2 with kind transformers; allowed: 1, or kind vllm"):
        EngineSettings.parse({"tensor_parallel": 2})


def test_a_policy_is_evaluated_by_the_engine_of_the_rollouts_unless_told() -> None:
    run = RunSettings.read(ROOT / "configs/tiny-cpu.yaml", "rollout.engine.kind=vllm")
    assert run.evaluate.engine is None
    assert run.measures[0].evaluation.engine == run.rollout.engine
    told = run.override("evaluate.engine.batch_size=7")
    assert told.measures[0].evaluation.engine == EngineSettings(batch_size=7)


def test_a_colocated_run_may_use_vllm_and_deepspeed_with_one_gpu_per_process() -> None:
    deepspeed = f"optimize.backend.kind=deepspeed optimize.backend.processes=2 optimize.backend.deepspeed={TWO}"
    turns = f"updates_per_rollout=4 rollout.engine.kind=vllm {deepspeed}"
    assert RunSettings.read(ROOT / "configs/tiny-cpu.yaml", turns).mu == 4
    message = "rollout.engine.tensor_parallel: 2 with updates_per_rollout 4: .* the one GPU .*; allowed: 1"
    with pytest.raises(SettingsError, match=message):
        RunSettings.read(ROOT / "configs/tiny-cpu.yaml", f"{turns} rollout.engine.tensor_parallel=2")
