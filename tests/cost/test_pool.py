"""GPUs of pods: by the settings, by a deployment, and what does not fit."""

from pathlib import Path

import pytest

from tasks.cost.pool import check_training_fits, pool_of, training_bytes
from tasks.cost.shapes import KNOWN
from tasks.errors import SettingsError
from tasks.settings import RunSettings
from tasks.settings.cost import CostSettings
from tasks.settings.deployment import DeploymentSettings

ROOT = Path(__file__).parents[2]
COSTS = CostSettings.read(ROOT / "configs/prices.yaml")
SHAPE = KNOWN["Qwen/Qwen2.5-Math-7B"]
WEIGHTS = SHAPE.parameters


def paper(overrides: str = "") -> RunSettings:
    return RunSettings.read(ROOT / "configs/paper/gpu-4/qwen2.5-math-7b-mu-grpo.yaml", overrides)


def deployment(name: str) -> DeploymentSettings:
    return DeploymentSettings.read(ROOT / f"configs/deployments/{name}.yaml")


def test_without_a_deployment_pods_have_the_gpus_that_their_steps_use() -> None:
    pool = pool_of(paper("rollout.engine.tensor_parallel=2"), 8, None, COSTS, None)
    assert pool.layout.pod_gpus == {"rollout": 2, "evaluate": 2, "train": 4}
    assert set(pool.accelerators.values()) == {"nvidia-h200"}
    assert pool.spot == {"rollout", "evaluate"}


def test_a_deployment_says_which_pods_there_are() -> None:
    pool = pool_of(paper(), 8, None, COSTS, deployment("gpu-8"))
    assert pool.layout.pod_gpus == {"rollout": 2, "evaluate": 2, "train": 8}
    assert pool.layout.training_gpus == 4  # the processes that the settings ask for
    assert pool.most_pods == 32
    assert pool_of(paper(), 8, "nvidia-h100", COSTS, deployment("gpu-8")).accelerators["train"] == "nvidia-h100"


def test_nodes_that_train_together_count_together() -> None:
    values = deployment("gpu-4").model_dump(mode="json") | {"train_nodes": 2}
    pool = pool_of(paper(), 8, None, COSTS, DeploymentSettings.parse(values))
    assert (pool.layout.pod_gpus["train"], pool.layout.training_gpus) == (8, 8)


@pytest.mark.parametrize(
    ("gpus", "overrides", "name", "message"),
    [
        (2, "", None, "gpus: 2 with optimize.backend.processes 4, for which a pod has 4 GPUs; allowed: 4 or more"),
        (5, "rollout.engine.tensor_parallel=2", None, "gpus: 5 with rollout.engine.tensor_parallel 2.*multiples of 2"),
        (1, "optimize.backend.processes=1 rollout.engine.tensor_parallel=2", None, "gpus: 1 with rollout.engine"),
        (4, "", "development", "MU_GRPO_DEPLOYMENT: pods.rollout.gpus: 0 with rollout.engine.tensor_parallel 1"),
        (4, "", "gpu-1", "MU_GRPO_DEPLOYMENT: pods.train.gpus: 1 with optimize.backend.processes 4; allowed: 4"),
        (4, "", "gpu-8", "gpus: 4 with optimize.backend.processes 4, for which a pod has 8 GPUs; allowed: 8 or more"),
    ],
)
def test_gpus_that_do_not_fit_are_named(gpus: int, overrides: str, name: str | None, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        pool_of(paper(overrides), gpus, None, COSTS, deployment(name) if name else None)


def test_an_unknown_accelerator_lists_the_known_ones() -> None:
    with pytest.raises(SettingsError, match=r"'b200' is not in the table.*nvidia-h200, nvidia-h100, nvidia-a100"):
        pool_of(paper(), 4, "b200", COSTS, None)
    values = deployment("gpu-4").model_dump(mode="json")
    values["pods"]["train"]["accelerator"] = "nvidia-b200"
    with pytest.raises(SettingsError, match="'nvidia-b200' is not in the table"):
        pool_of(paper(), 4, None, COSTS, DeploymentSettings.parse(values))


def zero(name: str, dtype: str = "bfloat16") -> dict[str, object]:
    return {"kind": "deepspeed", "dtype": dtype, "processes": 4, "deepspeed": str(ROOT / f"configs/deepspeed/{name}")}


@pytest.mark.parametrize(
    ("backend", "per_weight"),
    [
        (zero("zero2.json"), 2 + (4 + 12) / 4),  # a 16-bit copy on every GPU, the rest shared
        (zero("zero3.json"), (2 + 4 + 12) / 4),
        (zero("zero3-offload.json"), (2 + 4) / 4),
        (zero("zero1.json", "float32"), 4 + 4 + 8 / 4),
        ({"kind": "torch", "dtype": "bfloat16"}, 2 + 4 + 12),
        ({"kind": "torch"}, 4 + 4 + 8),
    ],
)
def test_what_training_holds_of_every_weight(backend: dict[str, object], per_weight: float) -> None:
    values = paper().model_dump(mode="json")
    values["optimize"]["backend"] = backend
    assert training_bytes(RunSettings.parse(values), SHAPE, 4) == pytest.approx(per_weight * WEIGHTS)


def test_a_policy_that_cannot_be_trained_there_is_named() -> None:
    pool = pool_of(paper(), 4, "nvidia-l40s", COSTS, None)
    with pytest.raises(SettingsError, match=r"optimize.backend: weights.* take 53\.3 GB on each of 4 GPUs of 48 GB"):
        check_training_fits(paper("optimize.backend.dtype=float32"), SHAPE, pool)
    check_training_fits(paper(), SHAPE, pool)
    check_training_fits(paper("optimize.backend.dtype=float32 optimize.lora.rank=8"), SHAPE, pool)


def test_an_engine_that_takes_turns_fits_beside_training() -> None:
    run, turns = paper(), RunSettings.read(ROOT / "configs/paper/gpu-4/qwen2.5-math-7b-grpo.yaml")
    pool = pool_of(turns, 4, None, COSTS, None)
    assert pool.layout.pod_gpus["train"] == 4
    check_training_fits(turns, SHAPE, pool)
    check_training_fits(run, SHAPE, pool)
    # 6 bytes of every weight stay: 2 whole, 16 over four GPUs.
    message = r"gpu_memory_share: 0\.9 beside the 45\.7 GB .* 4 GPUs of 141 GB; allowed: below 0\.68"
    with pytest.raises(SettingsError, match=message):
        check_training_fits(turns.override("rollout.engine.gpu_memory_share=0.9"), SHAPE, pool)


def test_a_task_that_alternates_has_a_gpu_for_every_process() -> None:
    turns = RunSettings.read(ROOT / "configs/paper/gpu-4/qwen2.5-math-7b-grpo.yaml", "optimize.backend.processes=8")
    layout = pool_of(turns, 8, None, COSTS, None).layout
    assert (layout.pod_gpus["train"], layout.training_gpus) == (8, 8)
