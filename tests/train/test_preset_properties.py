"""What holds for every preset: at the behavior policy, for small steps, cut up in any way, corrected for the engine."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import Tensor

from tasks.settings import MODIFIERS, PRESETS, ObjectiveSettings
from tasks.train.bounds import Bounds
from tasks.train.objective import ObjectiveResult, objective
from tasks.train.tokens import TokenBatch
from tests.train.batches import LONGEST, OTHERS, result_of, update, with_policies
from tests.train.test_objective import Response, advantage, batch_of, close, preset, ratio, steady

brief = hypothesis_settings(steady, max_examples=15)
modifiers = st.sampled_from(sorted(MODIFIERS))
REGULARISERS: list[dict[str, Any]] = [
    {},
    {"kind": "behavior_l2", "coefficient": 0.3},
    {"kind": "reference_kl", "coefficient": 0.3, "unbiased": True},
]
KEPT: dict[str, Any] = {"denominator": "kept", "regulariser": {"kind": "none"}}
MEANS: list[dict[str, Any]] = [KEPT, *({"regulariser": one} for one in REGULARISERS)]
lengths = st.lists(st.tuples(advantage, st.integers(0, 4)), min_size=1, max_size=5)
# Ratios of the current, proximal, reference and engine policy to the behavior policy.
policies = st.tuples(ratio, st.floats(0.3, 3.0), ratio, st.floats(0.3, 3.0))
levels = st.sampled_from(["token", "sequence_geometric", "sequence_product"])
many_policies = st.lists(st.tuples(advantage, st.lists(policies, max_size=4)), min_size=1, max_size=5)
Row = tuple[float, list[tuple[float, float, float, float]]]


def divisors(rows: Sequence[Response], settings: ObjectiveSettings) -> list[float]:
    """What each token's share of the loss is divided by."""
    total, responses = sum(len(row) for _, row in rows), len(rows)
    by_response = {
        "token_mean": [total] * responses,
        "seq_mean_token_mean": [responses * len(row) for _, row in rows],
        "seq_mean_token_sum": [responses] * responses,
        "const": [responses * LONGEST] * responses,
    }[settings.aggregation]
    return [divisor for divisor, (_, row) in zip(by_response, rows, strict=True) for _ in row]


@pytest.mark.parametrize("name", PRESETS)
@brief
@given(lengths, modifiers, st.sampled_from([torch.float32, torch.float64]))
def test_at_the_behavior_policy_every_preset_is_reinforce(
    name: str, shape: list[tuple[float, int]], modifier: str, dtype: torch.dtype
) -> None:
    settings, rows = preset(name, modifier), [(a, [1.0] * length) for a, length in shape]
    batch = batch_of(rows, dtype)
    batch = replace(batch, **{f"{other}_logp_T": batch.behavior_logp_T for other in OTHERS})
    exponential = settings.weight.kind == "exponential"
    flat = [a * (math.exp(a) if exponential else 1) for a, row in rows for _ in row]
    reinforce = [-a / divisor for a, divisor in zip(flat, divisors(rows, settings), strict=True)]
    assert update([batch], settings)[1] == close(reinforce, 1e-6)
    result = result_of(batch, settings)
    assert not (result.trigger_T | result.clipped_T | result.rejected_T).any()


def batch_from(rows: Sequence[Row], dtype: torch.dtype = torch.float64) -> TokenBatch:
    """Packed tokens, each with the ratios of all policies."""
    columns = list(zip(*[token for _, row in rows for token in row], strict=True)) or [[], [], [], []]
    batch = batch_of([(a, [token[0] for token in row]) for a, row in rows], dtype)
    return with_policies(batch, **dict(zip(OTHERS, columns[1:], strict=True)))


def is_min_type(settings: ObjectiveSettings) -> bool:
    """Return True if the loss is a function of the ratio alone: PPO's min, or nothing outside an interval."""
    weighs_by_the_gated_ratio = settings.weight.kind == "ratio" and settings.ratio.level != "prefix_minimum"
    return weighs_by_the_gated_ratio and settings.gate.kind in ("one_side", "two_side", "centred")


@pytest.mark.parametrize("name", [name for name in PRESETS if is_min_type(preset(name))])
@brief
@given(many_policies, modifiers, st.sampled_from(REGULARISERS), st.sampled_from([(0.7, 1.45), (0.0, 2.2)]))
def test_the_gradient_of_a_min_is_its_slope_away_from_the_bounds(
    name: str, rows: list[Row], modifier: str, regulariser: dict[str, Any], interval: tuple[float, float]
) -> None:
    # A response's ratio has a slope of its own only where all its tokens have one weight.
    level = "token" if preset(name).ratio.level == "token" else "sequence_product"
    mismatch = {"level": level} if modifier in ("tis", "mis") else {}
    settings = preset(name, modifier, regulariser=regulariser, mismatch=mismatch)
    batch = batch_from(rows)
    # Means over a response are in fixed point, which a small step would see.
    step, precision = (1e-5, 1e-7) if level == "token" else (1e-4, 1e-4)
    bounds = Bounds(*(settings.gate.interval or interval))

    def at(shift_T: Tensor) -> ObjectiveResult:
        moved = replace(batch, logp_T=batch.logp_T.detach() + shift_T)
        return objective(moved, settings, LONGEST, bounds)

    result = objective(batch, settings, LONGEST, bounds)
    result.loss_sum.backward()
    slopes = []
    for shift_T in step * torch.eye(len(batch.logp_T), dtype=torch.float64):
        above, below = at(shift_T), at(-shift_T)
        for column in ("clipped_T", "vetoed_T"):
            assume(torch.equal(getattr(above, column), getattr(below, column)))
        slopes.append(float(above.loss_sum - below.loss_sum) / (2 * step))
    assert batch.logp_T.grad.tolist() == pytest.approx(slopes, rel=precision, abs=precision)


@pytest.mark.parametrize("name", PRESETS)
@brief
@given(many_policies, modifiers, st.sampled_from(MEANS), st.data())
def test_any_split_and_order_gives_the_same_update(
    name: str, rows: list[Row], modifier: str, mean: dict[str, Any], data: st.DataObject
) -> None:
    counts_tokens = preset(name).aggregation in ("token_mean", "seq_mean_token_mean")
    settings = preset(name, modifier, **(mean if counts_tokens else {}))
    loss, gradient = update([batch_from([row]) for row in rows], settings)
    rest = iter(gradient)
    by_response = [[next(rest) for _ in tokens] for _, tokens in rows]
    order = data.draw(st.permutations(range(len(rows))))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    parts = [order[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    got_loss, got = update([batch_from([rows[index] for index in part]) for part in parts if part], settings)
    assert got_loss == pytest.approx(loss, rel=1e-9, abs=1e-9)
    assert got == pytest.approx([g for index in order for g in by_response[index]], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", PRESETS)
@brief
@given(many_policies, modifiers)
def test_only_the_current_policy_gets_a_gradient(name: str, rows: list[Row], modifier: str) -> None:
    settings, batch = preset(name, modifier), batch_from(rows)
    others = {f"{other}_logp_T": getattr(batch, f"{other}_logp_T").requires_grad_() for other in OTHERS}
    advantage_T = batch.advantage_T.clone().requires_grad_()
    behavior_T = batch.behavior_logp_T.clone().requires_grad_()
    watched = replace(batch, advantage_T=advantage_T, behavior_logp_T=behavior_T, **others)
    bounds = Bounds(*(settings.gate.interval or (0.7, 1.45)))
    result = objective(watched, settings, LONGEST, bounds)
    result.loss_sum.backward()
    assert all(column_T.grad is None for column_T in (advantage_T, *others.values()))
    assert behavior_T.grad is None or name == "opmd"
    assert [field for field, value in vars(result).items() if value.requires_grad] == ["loss_sum"]
    plain = objective(batch, settings, LONGEST, bounds)
    assert torch.equal(plain.coefficient_T, result.coefficient_T)


def by_loop(row: Sequence[float], level: str) -> list[float]:
    """The ratios of a response at a level."""
    return {
        "token": list(row),
        "sequence_product": [math.prod(row)] * len(row),
        "sequence_geometric": [math.prod(row) ** (1 / max(len(row), 1))] * len(row),
    }[level]


@pytest.mark.parametrize("name", PRESETS)
@brief
@given(many_policies, st.sampled_from(["tis", "mis"]), levels)
def test_tis_and_mis_multiply_every_preset(name: str, rows: list[Row], modifier: str, level: str) -> None:
    weights = [weight for _, row in rows for weight in by_loop([1 / engine for *_, engine in row], level)]
    assume(all(abs(weight / bound - 1) > 1e-6 for weight in weights for bound in (0.5, 2.0)))
    factors = [min(w, 2.0) if modifier == "tis" else w * (0.5 <= w <= 2.0) for w in weights]
    batch = batch_from(rows)
    batch = replace(batch, proximal_logp_T=batch.reference_logp_T)  # Beyond the cap of decoupled PPO too.
    plain, got = result_of(batch, preset(name)), result_of(batch, preset(name, modifier, mismatch={"level": level}))
    for column in ("coefficient_T", "surrogate_T"):
        products = [x * factor for x, factor in zip(getattr(plain, column).tolist(), factors, strict=True)]
        assert getattr(got, column).tolist() == pytest.approx(products, rel=1e-6, abs=1e-9)
    left_out = [was or (f == 0) for was, f in zip(plain.rejected_T.tolist(), factors, strict=True)]
    assert got.rejected_T.tolist() == left_out
