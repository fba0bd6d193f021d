"""A field of the objective that is said to change nothing changes nothing, and one that is read does."""

from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tasks.errors import SettingsError
from tasks.settings import ObjectiveSettings, OptimizeSettings
from tasks.settings.effects import READ_WITH, flat, reads
from tasks.settings.presets import PRESETS
from tasks.train.advantages import group_advantages
from tasks.train.objective import objective
from tasks.train.tokens import TokenBatch
from tests.train.batches import bounds_of

LONGEST = 9
RESPONSES, TOKENS = 8, 6
DEFAULTS = flat(ObjectiveSettings().model_dump())
SWITCHES: dict[str, list[str]] = {
    "advantage.baseline": ["mean", "logavgexp", "none"],
    "advantage.scale": ["std", "std_biased", "sqrt_eps", "batch_std", "none"],
    "ratio.reference": ["behavior", "proximal"],
    "gate.kind": ["none", "one_side", "two_side", "ring", "centred"],
    "gate.bounds": ["static", "second_moment", "balance"],
    "weight.kind": ["one", "ratio", "clipped", "taper", "preserve", "exponential"],
    "mismatch.kind": ["none", "truncate", "mask"],
    "veto.scope": ["off", "suffix", "suffix_nontrigger", "suffix_inclusive", "response", "trigger_only"],
    "aggregation": ["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "const"],
    "regulariser.kind": ["none", "reference_kl", "behavior_l2", "likelihood"],
}
OTHER: dict[str, Any] = {
    "advantage.temperature": 3.0,
    "advantage.epsilon": 0.5,
    "ratio.level": "sequence_geometric",
    "gate.low": 0.65,
    "gate.high": 1.6,
    "gate.outer_low": 0.2,
    "gate.outer_high": 2.0,
    "gate.half_width": 0.6,
    "gate.second_moment.threshold": 0.3,
    "gate.second_moment.form": "drop",
    "gate.second_moment.harmful_only": False,
    "gate.balance.target": 0.01,
    "gate.balance.low_max": 0.95,
    "gate.balance.high_max": 1.4,
    "gate.balance.step": 0.11,
    "gate.balance.statistic": "gradient",
    "weight.low": 0.9,
    "weight.high": 1.1,
    "weight.positive": [0.7, 1.3],
    "weight.negative": [0.7, 1.3],
    "weight.preserve_low": 0.5,
    "weight.preserve_high": 0.5,
    "weight.temperature": 2.0,
    "weight.behavior_cap": 1.1,
    "weight.beyond_cap": "truncate",
    "mismatch.level": "sequence_geometric",
    "mismatch.low": 0.9,
    "mismatch.high": 1.1,
    "veto.trigger_count": 2,
    "veto.window": 1,
    "denominator": "kept",
    "regulariser.coefficient": 0.7,
    "regulariser.estimator": "k1",
    "regulariser.unbiased": True,
}
"""A value that makes a difference where the field is read; schedule.batches_per_proximal is the trainer's."""
BESIDE: dict[str, dict[str, Any]] = {
    "weight.beyond_cap": {"weight.behavior_cap": 1.1},
    "gate.balance.low_max": {"gate.balance.target": 9.0},
    "gate.balance.high_max": {"gate.balance.target": 9.0},
    "gate.balance.step": {"gate.balance.target": 0.7},
    "gate.balance.statistic": {"gate.balance.target": 0.4},
    "regulariser.coefficient": {"regulariser.coefficient": 0.5},
    "denominator": {"veto.scope": "suffix"},
    "regulariser.estimator": {"regulariser.coefficient": 0.5},
    "regulariser.unbiased": {"regulariser.coefficient": 0.5},
    "ratio.level": {"gate.kind": "none", "weight.kind": "ratio"},
}
"""What a field needs besides to make a difference."""


def settings_of(values: dict[str, Any]) -> ObjectiveSettings:
    nested: dict[str, Any] = {}
    for name, value in values.items():
        *path, leaf = name.split(".")
        place = nested
        for part in path:
            place = place.setdefault(part, {})
        place[leaf] = value
    return ObjectiveSettings(**nested)


def outcome(settings: ObjectiveSettings) -> tuple[float, ...]:
    """Loss, gradient and triggers of an update of stale responses with an engine that differs."""
    noise = torch.Generator().manual_seed(0)

    def off(logp_T: torch.Tensor, spread: float) -> torch.Tensor:
        return logp_T + spread * torch.randn(len(logp_T), generator=noise, dtype=torch.float64)

    behavior_T = -1 - torch.rand(RESPONSES * TOKENS, generator=noise, dtype=torch.float64)
    reward_R = torch.tensor([1.0, 0, 0, 1, 0, 1, 1, 0.5], dtype=torch.float64)
    advantage_R = group_advantages(reward_R, torch.arange(RESPONSES) // 4, settings.advantage).advantage_R
    response_T = torch.arange(RESPONSES).repeat_interleave(TOKENS)
    batch = TokenBatch(
        logp_T=off(behavior_T, 0.7).requires_grad_(),
        behavior_logp_T=behavior_T,
        advantage_T=advantage_R[response_T],
        response_T=response_T,
        responses=RESPONSES,
        proximal_logp_T=off(behavior_T, 0.4),
        reference_logp_T=off(behavior_T, 0.4),
        engine_logp_T=off(behavior_T, 0.4),
    )
    result = objective(batch, settings, LONGEST, bounds_of([batch], settings))
    result.loss_sum.backward()
    assert batch.logp_T.grad is not None
    numbers = (result.loss_sum.detach(), result.denominator, *batch.logp_T.grad, *result.trigger_T)
    return tuple(float(number) for number in numbers)


def test_every_field_with_conditions_is_looked_at() -> None:
    conditional = {name for name in DEFAULTS if not reads(name, {})}
    assert conditional == {*OTHER, "schedule.batches_per_proximal"}
    assert {name for condition in READ_WITH.values() for one in condition for name in one} == SWITCHES.keys()
    for switch, values in SWITCHES.items():
        used = {value for conditions in READ_WITH.values() for one in conditions for value in one.get(switch, ())}
        assert used <= set(values)


@hypothesis_settings(deadline=None, derandomize=True, max_examples=400)
@given(
    field=st.sampled_from(sorted(OTHER)),
    switched=st.fixed_dictionaries({k: st.sampled_from(v) for k, v in SWITCHES.items()}),
)
def test_what_is_not_read_changes_nothing(field: str, switched: dict[str, str]) -> None:
    beside = {"regulariser.coefficient": 0.5} if switched["regulariser.kind"] != "none" else {}
    values = {**switched, **beside}
    assume(not reads(field, {**DEFAULTS, **values}))
    try:
        before, after = settings_of(values), settings_of(values | {field: OTHER[field]})
    except ValidationError:
        assume(False)
        raise
    assert outcome(before) == outcome(after)


CASES = [
    (field, condition)
    for field in OTHER
    for name, conditions in READ_WITH.items()
    if field == name or field.startswith(f"{name}.")
    for condition in conditions
]


@pytest.mark.parametrize(("field", "condition"), CASES)
def test_what_is_read_changes_something(field: str, condition: dict[str, tuple[str, ...]]) -> None:
    values = {**BESIDE.get(field, {}), **{name: allowed[0] for name, allowed in condition.items()}}
    if values.get("weight.kind") == "preserve":
        values["gate.kind"] = "none"
    assert reads(field, {**DEFAULTS, **values})
    assert outcome(settings_of(values)) != outcome(settings_of(values | {field: OTHER[field]}))


def test_a_proximal_policy_is_shared_where_there_is_one() -> None:
    for values in ({}, {"ratio.reference": "proximal"}, {"gate.kind": "centred"}, {"gate.kind": "ring"}):
        read = reads("schedule.batches_per_proximal", {**DEFAULTS, **values})
        assert read == settings_of(values).needs_proximal


@pytest.mark.parametrize(
    ("preset", "changes", "message"),
    [
        (
            "cispo",
            {"gate": {"high": 1.4}},
            r"gate\.high 1\.4 changes nothing; allowed: 1\.2 as in preset cispo, or .*ring",
        ),
        (
            "mu_grpo",
            {"weight": {"high": 3.0}},
            r"weight\.high 3\.0 changes nothing; .* another beside weight\.kind clipped",
        ),
        ("m2po", {"gate": {"low": 0.5}}, r"gate\.low 0\.5 changes nothing"),
        (
            "grpo",
            {"veto": {"trigger_count": 3}},
            r"veto\.trigger_count 3 changes nothing; allowed: 1 as in preset grpo",
        ),
        ("grpo", {"regulariser": {"coefficient": 0.1}}, r"regulariser\.coefficient 0\.1 changes nothing"),
        ("dr_grpo", {"denominator": "kept"}, r"denominator kept changes nothing; .*aggregation token_mean or seq_mean"),
    ],
)
def test_a_field_that_changes_nothing_is_refused(preset: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        OptimizeSettings.parse({"preset": preset, "responses_per_update": 1, "objective": changes})


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_has_no_field_that_changes_nothing(preset: str) -> None:
    settings = OptimizeSettings.parse({"preset": preset, "responses_per_update": 1})
    own = flat(settings.objective.model_dump())
    assert not [name for name, value in own.items() if value != DEFAULTS[name] and not reads(name, own)]
    assert OptimizeSettings.parse(settings.model_dump(mode="json")) == settings
