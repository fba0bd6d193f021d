"""Pods, tokens and bytes of a plan: worked numbers for the paper's setting, and how they change with it."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tasks.cluster.plan import ClusterPlan, plan_cluster
from tasks.cluster.rates import assumed_rates, pool_of
from tasks.cluster.steps import Prediction, baseline_mu, predict, problem_count
from tasks.errors import SettingsError
from tasks.settings import RunSettings
from tasks.settings.deployment import VARIABLE
from tests.cost import COSTS, PRICES, SHAPE, WEIGHTS, paper
from tools import ROOT


def planned(overrides: str = "") -> ClusterPlan:
    return plan_cluster(paper(overrides), 4, 4, prices=PRICES)


def phases(prediction: Prediction) -> dict[str, tuple[int, int]]:
    return {phase.name: (phase.pods, phase.pod_gpus) for phase in prediction.phases}


def test_the_papers_setting_in_numbers() -> None:
    plan = planned()
    pods = {"policy": (1, 0), "generate": (64, 1), "verify": (4, 0), "optimize": (4, 4), "evaluate": (25, 1)}
    assert phases(plan.mu_grpo) == pods
    assert phases(plan.grpo)["alternate"] == (4, 4)
    for one in (plan.mu_grpo, plan.grpo):
        assert one.updates == 4096
        assert one.generated_tokens == pytest.approx(4 * 524_288 * 640)
        assert one.trained_tokens == pytest.approx(4 * 524_288 * 790)
        # The base policy in 16 bits, and four policies with weights and moments in 32.
        assert one.policy_bytes == pytest.approx((2 + 4 * 12) * WEIGHTS, rel=1e-3)
        assert one.kept_bytes - one.policy_bytes == pytest.approx(8 * one.generated_tokens)
    assert (plan.mu_grpo.mu, plan.grpo.mu) == (1024, 4)
    assert (plan.mu_grpo.refreshes, plan.grpo.refreshes) == (0, 1024)


@pytest.mark.parametrize(("shard", "calls"), [(128, 512 * 2), (300, 218 * 3 + 2), (70_000, 525)])
def test_every_shard_makes_its_own_calls_and_an_evaluation_keeps_its_limit(shard: int, calls: int) -> None:
    """A call has at most 125 of the 65,536 prompts, and takes as many steps as its longest response has tokens."""
    limits = f"rollout.responses_per_part=1000 prompts.prompts_per_shard={shard} evaluate.max_new_tokens=320"
    rates = assumed_rates(run := paper(limits), SHAPE, pool := pool_of(run, 4, None, COSTS, None))
    rates = replace(rates, evaluate=replace(rates.evaluate, step=0.0, row=1e-4))
    found = predict(run, 1, SHAPE, rates, pool, alternating=False)
    answers = 145 * 32 + 500 * 4  # Of 320 tokens, where responses in training have 640; 16 workers judge them.
    assert found.seconds["evaluate"] == pytest.approx(2 * (1e-4 * 320 * answers + 5 * 3 + 0.01 * answers / 16))
    decoded = rates.rollout.step * 2560 * calls + rates.rollout.row * found.generated_tokens
    assert found.seconds["generate"] == pytest.approx(decoded)


def test_both_optimize_alike_and_grpo_waits_for_the_longest_response_every_time() -> None:
    plan = planned()
    staged, baseline = plan.mu_grpo.gpu_seconds, plan.grpo.gpu_seconds
    # Four GPUs at 35 % of their peak: 8 operations for a token of training, 2 for its score, and 0.5 s for an update.
    trained = staged["optimize"]
    assert trained == pytest.approx(4 * 524_288 * 790 * 10 * WEIGHTS / (0.35 * 989e12) + 4 * 4096 * 0.5)
    assert trained == pytest.approx(baseline["optimize"])
    assert baseline["generate"] > 1.3 * staged["generate"]
    assert baseline["switch"] == pytest.approx(4 * 1024 * 8)
    # Two engines of two GPUs make half as many calls, and read the weights at twice the speed.
    wide = planned("rollout.engine.tensor_parallel=2").grpo.gpu_seconds
    assert baseline["generate"] - wide["generate"] == pytest.approx(4096 * 2560 * WEIGHTS / 2.4e12)


def test_grpo_generates_on_the_gpus_of_training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    values = yaml.safe_load((ROOT / "configs/deployments/gpu-4.yaml").read_text())
    values["pods"]["rollout"]["accelerator"] = "nvidia-l40s"
    (tmp_path / "deployment.yaml").write_text(yaml.safe_dump(values))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "deployment.yaml"))
    plan, alike = planned(), plan_cluster(paper(), 4, 4, "nvidia-h200", PRICES)
    assert plan.grpo == alike.grpo
    assert plan.mu_grpo.gpu_seconds["generate"] > 3 * alike.mu_grpo.gpu_seconds["generate"]


def test_pods_at_once_are_limited_by_gpus_and_by_the_deployment() -> None:
    """A stage has 16 shards: 2 rounds on 8 GPUs, 4 rounds if at most 4 pods run at once."""
    pool = pool_of(paper(), 8, None, COSTS, None)
    rates = assumed_rates(paper(), SHAPE, pool)
    for most, rounds in ((16, 2), (4, 4)):
        found = predict(paper(), 4, SHAPE, rates, replace(pool, most_pods=most), alternating=False)
        generate = next(phase for phase in found.phases if phase.name == "generate")
        assert generate.wall_seconds == pytest.approx(generate.pod_seconds * 4 * rounds / 64)


def test_transfers_loads_and_prices_worked_numbers() -> None:
    """16 shards and 5 benchmarks read the policies before each stage, and training also reads AdamW's moments."""
    staged, baseline = planned().mu_grpo, planned().grpo
    rollouts, starting = 8 * staged.generated_tokens, (2 + 3 * 4) * WEIGHTS
    trained = starting + 3 * 8 * WEIGHTS + 5 * (starting + 4 * WEIGHTS)
    assert (staged.read_bytes, baseline.read_bytes) == pytest.approx((16 * starting + 2 * rollouts + trained, trained))
    assert staged.written_bytes - baseline.written_bytes == pytest.approx(rollouts)  # Parts of shards, and shards.
    assert baseline.seconds["load"] == pytest.approx(2 * WEIGHTS / 1e9 / 0.1 + 4 * (60 + 60) + 25 * 60)
    for one in (staged, baseline):
        hours = {phase.name: phase.gpu_seconds / 3600 for phase in one.phases}
        spot = hours.get("generate", 0.0) + hours["evaluate"]
        assert one.price["GPUs, spot"] == pytest.approx(2.25 * spot)
        assert one.price["GPUs, on demand"] == pytest.approx(4.5 * hours.get("optimize", hours.get("alternate")))
        assert one.price["storage and traffic"] == pytest.approx(one.kept_bytes / 1e9 * 0.023)
        assert not any(phase.price for phase in one.phases if not phase.pod_gpus)
    storage = COSTS.storage.model_copy(update={"months": 3, "egress_gb": 0.05})
    pool = pool_of(paper(), 4, None, COSTS.model_copy(update={"storage": storage}), None)
    kept = predict(paper(), 4, SHAPE, assumed_rates(paper(), SHAPE, pool), pool, alternating=False)
    assert kept.price["storage and traffic"] == pytest.approx((kept.kept_bytes * 0.069 + kept.read_bytes * 0.05) / 1e9)


def test_adapters_leave_the_policy_and_shrink_its_moments() -> None:
    adapters = planned("optimize.lora.rank=32").mu_grpo
    rank32 = SHAPE.adapter_parameters(32)
    assert adapters.policy_bytes == pytest.approx(2 * WEIGHTS + 4 * (4 * WEIGHTS + 12 * rank32), rel=1e-3)
    assert adapters.unfinished_bytes == pytest.approx(3 * 12 * rank32, rel=1e-3)


@pytest.mark.parametrize("mu", ["", "updates_per_rollout=512 rollout.engine.gpu_memory_share=0.5"])
def test_states_are_written_as_often_as_they_are_due(mu: str) -> None:
    """A state is saved in the middle of a refresh too."""
    rare, half, often = (planned(f"{mu} operation.updates_per_checkpoint={updates}") for updates in (1024, 512, 256))
    state = 12 * WEIGHTS
    for name in ("mu_grpo", "grpo"):
        once, four = getattr(rare, name), getattr(often, name)
        assert once.unfinished_bytes == 0
        assert getattr(half, name).unfinished_bytes == pytest.approx(state, rel=1e-3)  # A stage saves one state.
        assert four.unfinished_bytes == pytest.approx(3 * state, rel=1e-3)  # Two are kept while another is written.
        assert four.written_bytes - once.written_bytes == pytest.approx(4 * 3 * state, rel=0.01)
        assert four.kept_bytes == once.kept_bytes


@pytest.mark.parametrize(
    ("overrides", "mu"),
    [
        ("", 4),
        ("optimize.responses_per_update=8192", 4),
        ("prompts.prompts_per_stage=192", 3),
        ("prompts.prompts_per_stage=64", 1),
        ("optimize.objective.schedule.updates_per_batch=8", 8),
        ("optimize.objective.schedule.updates_per_batch=2", 4),
        ("updates_per_rollout=8", 8),  # An alternating run keeps its own value.
    ],
)
def test_the_baselines_mu_divides_a_stage(overrides: str, mu: int) -> None:
    assert baseline_mu(paper(overrides)) == mu


def test_problems_are_those_of_the_benchmark_and_no_more_than_a_generated_set_holds_out() -> None:
    assert [problem_count(paper(), measurement) for measurement in paper().measurements] == [40, 45, 30, 30, 500]
    for asked, counted in ((500, 59), (20, 20)):
        run = RunSettings.read(ROOT / "tools/small.yaml", f"prompts.arithmetic.levels=[1] evaluate.problems={asked}")
        assert [problem_count(run, measurement) for measurement in run.measurements] == [counted]
    run = RunSettings.read(ROOT / "tools/small.yaml", "prompts.arithmetic.held_out_share=0.0001")
    with pytest.raises(SettingsError, match="held_out: no problem is held out"):
        problem_count(run, run.measurements[0])
