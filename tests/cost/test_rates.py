"""GPUs of pods, and rates from data sheets: worked numbers, and refusals."""

from dataclasses import replace

import pytest

from tasks.cluster.measured import fit_two_rates
from tasks.cluster.rates import EngineRates, Rates, assumed_rates, passes, pool_of
from tasks.cluster.shapes import Shape
from tasks.errors import SettingsError
from tasks.settings import OptimizeSettings
from tasks.settings.deployment import DeploymentSettings
from tests.cost import COSTS, SHAPE, WEIGHTS, paper
from tools import ROOT


def deployment(name: str) -> DeploymentSettings:
    return DeploymentSettings.read(ROOT / f"configs/deployments/{name}.yaml")


def test_pods_have_the_gpus_that_their_steps_use_or_those_of_the_deployment() -> None:
    pool = pool_of(paper("rollout.engine.tensor_parallel=2"), 9, None, COSTS, None)
    assert {role: pod.gpus for role, pod in pool.pods.items()} == {"rollout": 2, "evaluate": 2, "train": 4}
    assert {pod.accelerator for pod in pool.pods.values()} == {"nvidia-h200"}
    assert {role for role, pod in pool.pods.items() if pod.interruptible} == {"rollout", "evaluate"}
    assert pool_of(paper(), 64, None, COSTS, None).most_pods == 64
    turns = pool_of(paper("optimize.backend.processes=8", "grpo"), 8, None, COSTS, None)
    assert (turns.pods["train"].gpus, turns.training_gpus) == (8, 8)
    pool = pool_of(paper(), 8, None, COSTS, deployment("gpu-8"))
    assert {role: pod.gpus for role, pod in pool.pods.items()} == {"rollout": 2, "evaluate": 2, "train": 8}
    assert (pool.training_gpus, pool.most_pods) == (4, 32)  # The number of processes is that of the settings.
    assert pool_of(paper(), 8, "nvidia-h100", COSTS, deployment("gpu-8")).pods["train"].accelerator == "nvidia-h100"
    values = deployment("gpu-4").model_dump(mode="json") | {"train_nodes": 2}
    pool = pool_of(paper(), 8, None, COSTS, DeploymentSettings.parse(values))
    assert (pool.pods["train"].gpus, pool.training_gpus) == (8, 8)  # Both nodes together.


@pytest.mark.parametrize(
    ("gpus", "overrides", "name", "message"),
    [
        (2, "", None, "gpus: 2 with optimize.backend.processes 4, for which a pod has 4 GPUs; allowed: 4 or more"),
        (1, "optimize.backend.processes=1 rollout.engine.tensor_parallel=2", None, "gpus: 1 with rollout.engine"),
        (4, "", "development", "MU_GRPO_DEPLOYMENT: pods.rollout.gpus: 0 with rollout.engine.tensor_parallel 1"),
        (4, "", "gpu-1", "MU_GRPO_DEPLOYMENT: pods.train.gpus: 1 with optimize.backend.processes 4; allowed: 4"),
        (4, "", "gpu-8", "gpus: 4 with optimize.backend.processes 4, for which a pod has 8 GPUs; allowed: 8 or more"),
    ],
)
def test_gpus_that_do_not_fit_are_named(gpus: int, overrides: str, name: str | None, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        pool_of(paper(overrides), gpus, None, COSTS, deployment(name) if name else None)


def rates(overrides: str = "", accelerator: str = "nvidia-h200", gpus: int = 4, shape: Shape = SHAPE) -> Rates:
    run = paper(overrides)
    pool = pool_of(run, 8, accelerator, COSTS, None)
    return assumed_rates(run, shape, replace(pool, training_gpus=gpus))


def test_a_decode_step_worked_numbers() -> None:
    """A decode step reads 15.2 GB of weights at half of 4.8 TB/s, and per row 150 + 640 / 2 cached tokens.

    0.9 x 80 GB minus 15.2 GB of weights hold the cache of this many responses of 150 + 640 tokens.
    """
    found = rates().rollout
    assert found.step == pytest.approx(2 * WEIGHTS / 2.4e12)
    cached = 2 * 28 * 4 * 128 * 2 * (150 + 320) / 2.4e12
    assert found.row == pytest.approx(cached + 2 * WEIGHTS / (0.25 * 989e12))
    assert found.rows == 1024
    two = rates("rollout.engine.tensor_parallel=2").rollout  # The GPUs of an engine share its work.
    assert (two.step, two.row) == pytest.approx((found.step / 2, found.row / 2))
    for gpus in (1, 2):
        found = rates(f"rollout.engine.batch_size=9999 rollout.engine.tensor_parallel={gpus}", "nvidia-h100").rollout
        assert found.rows == int((gpus * 72e9 - 2 * WEIGHTS) / (57_344 * 790))


@pytest.mark.parametrize(
    ("overrides", "gpus", "operations", "tflops"),
    [
        ("", 4, 8, 989),
        ("optimize.backend.gradient_checkpointing=false", 4, 6, 989),
        ("optimize.lora.rank=32", 4, 6, 989),
        ("", 8, 8, 989),
        ("optimize.backend.dtype=float32", 4, 8, 67),
    ],
)
def test_an_update_worked_numbers(overrides: str, gpus: int, operations: int, tflops: int) -> None:
    """Training takes 6 operations per weight and token, 8 with checkpointing, at 35 % of the GPUs' peak."""
    found, speed = rates(overrides, gpus=gpus), 0.35 * gpus * tflops * 1e12
    assert found.trained_token == pytest.approx(operations * WEIGHTS / speed)
    assert found.scored_token == pytest.approx(2 * WEIGHTS / speed)


def test_a_token_is_computed_with_the_experts_that_it_reaches() -> None:
    """A decode step reads all weights, although a token uses a tenth of them."""
    dense, routed = rates(), rates(shape=replace(SHAPE, idle_parameters=WEIGHTS * 9 // 10))
    assert routed.trained_token == pytest.approx(dense.trained_token / 10)
    assert routed.scored_token == pytest.approx(dense.scored_token / 10)
    assert routed.rollout.step == dense.rollout.step
    assert dense.rollout.row - routed.rollout.row == pytest.approx(0.9 * 2 * WEIGHTS / (0.25 * 989e12))


@pytest.mark.parametrize(
    ("refills", "responses", "steps"),
    [
        (True, 0, 0),
        (True, 1, 100),  # A call ends with its longest response.
        (True, 64, 100),
        (True, 640, 640 * 20 / 64 + 100 - 20),
        (False, 64, 100),
        (False, 65, 200),  # There is a second batch.
        (False, 640, 1000),
    ],
)
def test_decode_steps_of_a_call(refills: bool, responses: int, steps: float) -> None:
    engine = EngineRates(refills, rows=64, step=0.5, row=0.001)
    assert engine.steps(responses, mean=20, longest=100) == steps
    assert engine.seconds(responses, 20, 100) == pytest.approx(0.5 * steps + 0.001 * 20 * responses)


def test_weights_that_do_not_fit_are_named() -> None:
    small = "rollout.engine.gpu_memory_share=0.2 rollout.engine.dtype=float32"
    with pytest.raises(SettingsError, match=r"rollout\.engine\.tensor_parallel: 1 GPUs of 48 GB do not hold 30.5 GB"):
        rates(small, "nvidia-l40s")
    own = "evaluate.engine.kind=vllm evaluate.engine.gpu_memory_share=0.2 evaluate.engine.dtype=float32"
    with pytest.raises(SettingsError, match=r"evaluate\.engine\.tensor_parallel: 1 GPUs of 48 GB do not hold"):
        rates(own, "nvidia-l40s")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"preset": "mu_grpo"}, (1, 1)),
        ({"preset": "decoupled_ppo"}, (1, 2)),  # One for the proximal policy.
        ({"preset": "m2po"}, (1, 2)),  # Its bounds are computed before each update.
        ({"preset": "mu_grpo", "objective": {"schedule": {"updates_per_batch": 3}}}, (3, 1)),
        ({"preset": "grpo", "objective": {"regulariser": {"kind": "reference_kl", "coefficient": 0.1}}}, (1, 2)),
    ],
)
def test_how_often_a_response_passes_through_the_model(values: dict[str, object], expected: tuple[int, int]) -> None:
    assert passes(OptimizeSettings.parse({**values, "responses_per_update": 8})) == expected


@pytest.mark.parametrize(
    ("points", "share", "expected"),
    [
        ([(1.0, 10.0, 8.0), (1.0, 40.0, 23.0), (2.0, 5.0, 8.5)], 0, (3, 0.5)),
        ([(1.0, 10.0, 5.0), (2.0, 20.0, 10.0)], 0.5, (2.5, 0.25)),  # Collinear amounts share the seconds.
        ([(1.0, 10.0, 5.0), (2.0, 20.0, 10.0)], 0, (0, 0.5)),
        # Without the constraint, a rate would be negative.
        ([(1.0, 10.0, 5.0), (1.0, 100.0, 50.0), (10.0, 10.0, 1.0)], 0, (0, 5050 / 10200)),
        ([(0.0, 10.0, 5.0)], 0, (0, 0.5)),
        ([(2.0, 0.0, 5.0)], 0, (2.5, 0)),
        ([(0.0, 0.0, 5.0)], 0, (0, 0)),
    ],
)
def test_two_rates_from_measurements(points: list[tuple], share: float, expected: tuple[float, float]) -> None:
    first, second = fit_two_rates(points, share)
    assert first == pytest.approx(expected[0])
    assert second == pytest.approx(expected[1], rel=0.02)
