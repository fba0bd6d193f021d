"""GPUs of pods: by the settings, by a deployment, and too few of them."""

from pathlib import Path

import pytest

from tasks.cluster.gpus import pool_of
from tasks.errors import SettingsError
from tasks.settings import RunSettings
from tasks.settings.cost import CostSettings
from tasks.settings.deployment import DeploymentSettings

ROOT = Path(__file__).parents[2]
COSTS = CostSettings.read(ROOT / "configs/prices.yaml")


def paper(overrides: str = "") -> RunSettings:
    return RunSettings.read(ROOT / "configs/paper/gpu-4/qwen2.5-math-7b-mu-grpo.yaml", overrides)


def deployment(name: str) -> DeploymentSettings:
    return DeploymentSettings.read(ROOT / f"configs/deployments/{name}.yaml")


def test_without_a_deployment_pods_have_the_gpus_that_their_steps_use() -> None:
    pool = pool_of(paper("rollout.engine.tensor_parallel=2"), 8, None, COSTS, None)
    assert pool.pods == {"rollout": 2, "evaluate": 2, "train": 4}
    assert set(pool.accelerators.values()) == {"nvidia-h200"}
    assert pool.spot == {"rollout", "evaluate"}


def test_a_deployment_says_which_pods_there_are() -> None:
    pool = pool_of(paper(), 8, None, COSTS, deployment("gpu-8"))
    assert pool.pods == {"rollout": 2, "evaluate": 2, "train": 8}
    assert pool.training_gpus == 4  # the processes that the settings ask for
    assert pool.most_pods == 32
    assert pool_of(paper(), 8, "nvidia-h100", COSTS, deployment("gpu-8")).accelerators["train"] == "nvidia-h100"


def test_nodes_that_train_together_count_together() -> None:
    values = deployment("gpu-4").model_dump(mode="json") | {"train_nodes": 2}
    pool = pool_of(paper(), 8, None, COSTS, DeploymentSettings.parse(values))
    assert (pool.pods["train"], pool.training_gpus) == (8, 8)


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


def test_a_task_that_alternates_has_a_gpu_for_every_process() -> None:
    turns = RunSettings.read(ROOT / "configs/paper/gpu-4/qwen2.5-math-7b-grpo.yaml", "optimize.backend.processes=8")
    pool = pool_of(turns, 8, None, COSTS, None)
    assert (pool.pods["train"], pool.training_gpus) == (8, 8)
