"""Seconds by data sheets: worked numbers, and what cannot fit."""

from dataclasses import replace
from pathlib import Path

import pytest

from tasks.cluster.gpus import pool_of
from tasks.cluster.measured import two_rates
from tasks.cluster.rates import EngineRates, Rates, assumed_rates, passes
from tasks.cluster.shapes import KNOWN, Shape
from tasks.errors import SettingsError
from tasks.settings import OptimizeSettings, RunSettings
from tasks.settings.cost import CostSettings

ROOT = Path(__file__).parents[2]
PAPER, PRICES = ROOT / "configs/paper/gpu-4/qwen2.5-math-7b-mu-grpo.yaml", ROOT / "configs/prices.yaml"
SHAPE = KNOWN["Qwen/Qwen2.5-Math-7B"]
WEIGHTS = 7_615_616_512


def rates(overrides: str = "", accelerator: str = "nvidia-h200", gpus: int = 4, shape: Shape = SHAPE) -> Rates:
    run = RunSettings.read(PAPER, overrides)
    pool = pool_of(run, 8, accelerator, CostSettings.read(PRICES), None)
    return assumed_rates(run, shape, replace(pool, training_gpus=gpus))


def test_a_decode_step_by_hand() -> None:
    """bfloat16 weights of 15.2 GB at half of 4.8 TB/s; a row's cache of 150 + 640 / 2 tokens, and its operations."""
    found = rates().rollout
    assert found.step == pytest.approx(2 * WEIGHTS / 2.4e12)
    cached = 2 * 28 * 4 * 128 * 2 * (150 + 320) / 2.4e12
    assert found.row == pytest.approx(cached + 2 * WEIGHTS / (0.25 * 989e12))
    assert found.prompt_token == pytest.approx(2 * WEIGHTS / (0.35 * 989e12))
    assert found.rows == 1024


def test_more_gpus_of_an_engine_share_its_work() -> None:
    one, two = rates().rollout, rates("rollout.engine.tensor_parallel=2").rollout
    assert two.step == pytest.approx(one.step / 2)
    assert two.row == pytest.approx(one.row / 2)


def test_an_update_by_hand() -> None:
    """6 operations per weight and token, 2 more where layers are computed again, at 35 % of 4 x 989 TFLOPS."""
    speed = 0.35 * 4 * 989e12
    assert rates().trained_token == pytest.approx(8 * WEIGHTS / speed)
    assert rates().scored_token == pytest.approx(2 * WEIGHTS / speed)
    assert rates("optimize.backend.gradient_checkpointing=false").trained_token == pytest.approx(6 * WEIGHTS / speed)
    assert rates("optimize.lora.rank=32").trained_token == pytest.approx(6 * WEIGHTS / speed)
    assert rates(gpus=8).trained_token == pytest.approx(4 * WEIGHTS / speed)


def test_float32_is_as_slow_as_its_peak() -> None:
    slow, fast = rates("optimize.backend.dtype=float32"), rates()
    assert slow.trained_token / fast.trained_token == pytest.approx(989 / 67)


def test_a_token_is_computed_with_the_experts_that_it_reaches() -> None:
    """All weights are read in a decode step, and nine tenths of them are of no use to a token."""
    dense, routed = rates(), rates(shape=replace(SHAPE, idle_parameters=WEIGHTS * 9 // 10))
    assert routed.trained_token == pytest.approx(dense.trained_token / 10)
    assert routed.scored_token == pytest.approx(dense.scored_token / 10)
    assert routed.rollout.prompt_token == pytest.approx(dense.rollout.prompt_token / 10)
    assert routed.rollout.step == dense.rollout.step
    assert dense.rollout.row - routed.rollout.row == pytest.approx(0.9 * 2 * WEIGHTS / (0.25 * 989e12))


@pytest.mark.parametrize(
    ("kind", "responses", "steps"),
    [
        ("vllm", 0, 0),
        ("vllm", 1, 100),  # the longest response is waited for
        ("vllm", 64, 100),
        ("vllm", 640, 640 * 20 / 64 + 100 - 20),
        ("transformers", 64, 100),
        ("transformers", 65, 200),  # a second batch
        ("transformers", 640, 1000),
    ],
)
def test_decode_steps_of_a_call(kind: str, responses: int, steps: float) -> None:
    engine = EngineRates(kind, rows=64, step=0.5, row=0.001, prompt_token=0.01)
    assert engine.steps(responses, mean=20, longest=100) == steps
    seconds = 0.5 * steps + 0.001 * 20 * responses + 0.01 * 7
    assert engine.seconds(responses, 20, 100, prompt_tokens=7) == pytest.approx(seconds)


def test_memory_limits_the_rows() -> None:
    """0.9 x 80 GB without 15.2 GB of weights hold the cache of so many responses of 150 + 640 tokens."""
    found = rates("rollout.engine.batch_size=9999", "nvidia-h100").rollout
    assert found.rows == int((72e9 - 2 * WEIGHTS) / (57_344 * 790))


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
        ({"preset": "decoupled_ppo"}, (1, 2)),  # the proximal policy's
        ({"preset": "m2po"}, (1, 2)),  # bounds that are found before every update
        ({"preset": "mu_grpo", "objective": {"schedule": {"updates_per_batch": 3}}}, (3, 1)),
        ({"preset": "grpo", "objective": {"regulariser": {"kind": "reference_kl", "coefficient": 0.1}}}, (1, 2)),
    ],
)
def test_how_often_a_response_passes_through_the_model(values: dict[str, object], expected: tuple[int, int]) -> None:
    assert passes(OptimizeSettings.parse({**values, "responses_per_update": 8})) == expected


def test_two_rates_from_measurements() -> None:
    points = [(x, y, 3 * x + 0.5 * y) for x, y in ((1.0, 10.0), (1.0, 40.0), (2.0, 5.0))]
    assert two_rates(points) == pytest.approx((3, 0.5))


def test_amounts_that_rise_together_share_what_they_took() -> None:
    points = [(1.0, 10.0, 5.0), (2.0, 20.0, 10.0)]
    assert two_rates(points, share=0.5) == pytest.approx((2.5, 0.25))


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([(1.0, 10.0, 5.0), (2.0, 20.0, 10.0)], (0, 0.5)),  # cannot be told apart
        ([(1.0, 10.0, 5.0), (1.0, 100.0, 50.0), (10.0, 10.0, 1.0)], (0, 5050 / 10200)),  # the first would be below 0
        ([(0.0, 10.0, 5.0)], (0, 0.5)),
        ([(2.0, 0.0, 5.0)], (2.5, 0)),
        ([(0.0, 0.0, 5.0)], (0, 0)),
    ],
)
def test_rates_are_never_negative(points: list[tuple[float, float, float]], expected: tuple[float, float]) -> None:
    first, second = two_rates(points)
    assert first == pytest.approx(expected[0])
    assert second == pytest.approx(expected[1], rel=0.02)
