"""How updates consume responses, on the small policy: batches that are used again, proximal policies, every preset."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tasks.models.loading import load_model
from tasks.models.scorer import Scorer
from tasks.settings import MODIFIERS, PRESETS
from tasks.train.batches import Responses
from tests.train.small import Small, batches, train, trainer_of
from tests.train.test_trainer import engine_of

FAST = 0.02
"""A learning rate that moves most ratios out of [0.8, 1.2] in one update."""
UNCAPPED = {"ratio": {"behavior_cap": 1e6}}
RowsOf = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def rows_of(small: Small, responses: Responses) -> RowsOf:
    def made(of: Responses = responses, **changes: Any) -> list[dict[str, Any]]:
        return train(small, of, **{"learning_rate": FAST, "tokens_per_micro_batch": 400, **changes})[1].rows

    return made


@pytest.mark.parametrize("again", [1, 2, 3])
def test_a_batch_is_used_for_as_many_updates_as_asked(small: Small, responses: Responses, again: int) -> None:
    whole = {"updates": 2, "tokens_per_micro_batch": 400}
    trainer, results, _ = train(small, responses, **whole, objective={"schedule": {"updates_per_batch": again}})
    rows, once = results.rows, train(small, responses, **whole)[1].rows
    assert trainer.updates == len(rows) == 2 * again
    assert [row["staleness"] for row in rows] == list(range(2 * again))
    assert [row["update"] for row in rows] == list(range(1, 2 * again + 1))
    of_batch, expected = (
        [[row[name] for name in ("reward", "response_tokens", "tokens", "responses")] for row in made]
        for made in (rows, once)
    )
    assert of_batch == [batch for batch in expected for _ in range(again)]
    assert rows[0] == once[0]
    # The behavior policy is that of the stage's start: only the first update has ratio 1.
    assert [row["kl_k1"] == 0 for row in rows] == [True] + [False] * (2 * again - 1)


def schedule(batches_per_proximal: int, updates_per_batch: int = 1) -> dict[str, Any]:
    return {"schedule": {"batches_per_proximal": batches_per_proximal, "updates_per_batch": updates_per_batch}}


@pytest.mark.parametrize(
    ("preset", "over", "expected"),
    [
        ("grpo", {}, [False, True, True]),
        # Around the weights before each batch: one that is used once is never clipped.
        ("off_policy_grpo", {}, [False] * 3),
        ("off_policy_grpo", schedule(1, 2), [False, True] * 3),
        ("off_policy_grpo", schedule(2, 2), [False, True, True, True, False, True]),
        ("decoupled_ppo", {**schedule(1), **UNCAPPED}, [False] * 3),
        ("decoupled_ppo", {**schedule(2), **UNCAPPED}, [False, True, False]),
        ("decoupled_ppo", {**schedule(3), **UNCAPPED}, [False, True, True]),
        ("decoupled_ppo", {**schedule(1, 2), **UNCAPPED}, [False, True] * 3),
    ],
)
def test_ratios_are_clipped_around_the_weights_before_the_batches_that_share_them(
    rows_of: RowsOf, preset: str, over: dict[str, Any], expected: list[bool]
) -> None:
    rows = rows_of(preset=preset, objective=over)
    assert [row["clip_fraction"] > 0 for row in rows] == expected
    # Plain GRPO would clip all of these: their ratios to the behavior policy are far from 1.
    far = [row["ratio_max_positive"] > 1.3 and row["ratio_p01_negative"] < 0.7 for row in rows[1:]]
    assert preset == "grpo" or all(far)
    assert [row["reject_fraction"] for row in rows] == [0] * len(rows)


@pytest.mark.parametrize("name", ["m2po", "bapo"])
def test_an_interval_is_found_anew_for_every_update_whatever_its_micro_batches(rows_of: RowsOf, name: str) -> None:
    whole = rows_of(preset=name, tokens_per_micro_batch=100_000)
    split = rows_of(preset=name, tokens_per_micro_batch=40)
    assert (whole[0]["gate_low"], whole[0]["gate_high"]) == (split[0]["gate_low"], split[0]["gate_high"])
    assert whole[0]["grad_norm"] == pytest.approx(split[0]["grad_norm"], rel=1e-5)
    intervals = [(row["gate_low"], row["gate_high"]) for row in whole]
    assert all(low < 1 < high for low, high in intervals)
    assert len(set(intervals)) > 1
    if name == "m2po":
        assert intervals[0] == (0, float("inf"))
        assert all(low == pytest.approx(1 / high) for low, high in intervals[1:])
        of_proximal = rows_of(preset=name, objective={"ratio": {"reference": "proximal"}})
        assert {row["gate_high"] for row in of_proximal} == {float("inf")}  # These ratios are 1.
    else:
        assert all(low <= 0.8 and high <= 2 for low, high in intervals)


@pytest.mark.parametrize("name", ["dapo", "m2po", "bapo", "off_policy_grpo", "decoupled_ppo"])
def test_an_update_without_active_responses_has_no_gradient(rows_of: RowsOf, responses: Responses, name: str) -> None:
    idle = batches(responses)[1]
    rewards = responses.reward_R.copy()
    rewards[idle] = 1
    over = {"data": {"zero_variance": "drop", "overlong_buffer_share": None}}
    rows = rows_of(replace(responses, reward_R=rewards), preset=name, objective=over)
    assert [row["tokens"] > 0 for row in rows] == [True, False, True]
    assert [row["grad_norm"] > 0 for row in rows] == [True, False, True]
    assert rows[1]["loss"] == 0


def test_a_kl_to_the_base_policy_is_not_one_to_the_behavior_policy(small: Small, responses: Responses) -> None:
    def first(coefficient: float, base: Scorer) -> dict[str, Any]:
        over = {"regulariser": {"kind": "reference_kl", "coefficient": coefficient}}
        trainer = trainer_of(small, preset="grpo", tokens_per_micro_batch=400, objective=over)
        return replace(trainer, reference=base).train(responses, batches(responses)[:1], 0).rows[0]

    same, other = (Scorer(load_model(small[0].path(small[1])), 1024) for _ in range(2))
    with torch.no_grad():
        for weight in other.model.parameters():
            weight.mul_(1.5)
    plain, near, far = first(1e-9, other), first(1.0, same), first(1.0, other)
    assert near["loss"] == pytest.approx(plain["loss"], abs=1e-6)
    assert near["grad_norm"] == pytest.approx(plain["grad_norm"], rel=1e-4)
    assert far["loss"] > plain["loss"] + 0.01
    assert far["grad_norm"] != pytest.approx(plain["grad_norm"], rel=1e-3)


def with_a_noisy_engine(responses: Responses) -> Responses:
    """Log-probabilities of an engine that is half a nat off."""
    noise = np.random.default_rng(0).normal(0, 0.5, len(responses.engine_logp.flat)).astype(np.float32)
    return engine_of(responses, responses.engine_logp.flat + noise)


@pytest.mark.parametrize("modifier", MODIFIERS)
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_trains_with_every_modifier(small: Small, responses: Responses, name: str, modifier: str) -> None:
    changes = {"preset": name, "modifier": modifier, "max_logp_mismatch": 1.0, "learning_rate": FAST}
    _, results, weights = train(small, with_a_noisy_engine(responses), updates=2, tokens_per_micro_batch=400, **changes)
    assert all(weight.isfinite().all() for weight in weights.values())
    assert (results.rows[0]["ess"] < 0.9) is (modifier == "bypass")
    for row in results.rows:
        assert np.isfinite(row["loss"])
        assert 0 < row["grad_norm"] < 1e3
        assert name != "mu_grpo" or (row["reject_fraction"] > 0.1) is (modifier == "mis")
