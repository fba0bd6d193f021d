"""The objective against numbers worked by hand and an independent surrogate; test_preset_properties.py has the rest."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tasks.settings import ObjectiveSettings
from tasks.settings.presets import resolve
from tasks.train.tokens import TokenBatch
from tests.train.batches import result_of, update

steady = hypothesis_settings(deadline=None, derandomize=True, max_examples=150)
Response = tuple[float, Sequence[float]]
TWO: list[Response] = [(1.0, [2.0, 6.0]), (-1.0, [0.5, 0.05, 3.0, 1.0])]
AGGREGATIONS = ["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "const"]
"""The first two can count kept tokens alone."""
BELOW = {"direction": "below", "kappa": 0.1}


def preset(name: str, modifier: str = "none", /, **over: Any) -> ObjectiveSettings:
    return ObjectiveSettings(**ObjectiveSettings.merge(resolve(name, modifier), over))


def nav(**over: Any) -> ObjectiveSettings:
    """mu_grpo with triggers below 0.1, as in most worked numbers."""
    return preset("mu_grpo", **{**over, "veto": {**BELOW, **over.get("veto", {})}})


def batch_of(responses: Sequence[Response], dtype: torch.dtype = torch.float64) -> TokenBatch:
    """Packed tokens of responses, each an advantage and its tokens' ratios."""
    ratios = torch.tensor([ratio for _, row in responses for ratio in row], dtype=torch.float64)
    behavior = -0.5 - (torch.arange(len(ratios), dtype=torch.float64) % 5) / 4
    return TokenBatch(
        logp_T=(behavior + ratios.log()).to(dtype).requires_grad_(),
        behavior_logp_T=behavior.to(dtype),
        advantage_T=torch.tensor([advantage for advantage, row in responses for _ in row], dtype=dtype),
        response_T=torch.tensor([index for index, (_, row) in enumerate(responses) for _ in row], dtype=torch.int64),
        responses=len(responses),
    )


def close(values: Any, precision: float = 6e-8) -> Any:
    return pytest.approx(values, rel=1e-6, abs=precision)


def test_the_loss_of_minpro_is_clipped_by_the_ratio_of_each_token() -> None:
    batch = batch_of([(-1, [1.0, 0.5, 6.0, 0.05])], torch.float64)
    assert result_of(batch, preset("minpro")).surrogate_T.tolist() == close([1, 0.8, 3, 0.4])
    assert update([batch], preset("minpro")) == (close(1.3), close([0.25, 0, 0.75, 0]))


@pytest.mark.parametrize(
    ("settings", "loss", "gradient"),
    [
        (preset("relaxed"), -0.4083333, [-0.3333333, 0, 0.0833333, 0.0083333, 0.5, 0.1666667]),
        (nav(), -1.075, [-0.3333333, 0, 0.0833333, 0.0083333, 0, 0]),
        (nav(denominator="kept"), -1.6125, [-0.5, 0, 0.125, 0.0125, 0, 0]),
        (nav(aggregation="seq_mean_token_mean"), -1.68125, [-0.5, 0, 0.0625, 0.00625, 0, 0]),
        (nav(aggregation="const"), -0.80625, [-0.25, 0, 0.0625, 0.00625, 0, 0]),
        (nav(aggregation="seq_mean_token_mean", denominator="kept"), -1.6125, [-0.5, 0, 0.125, 0.0125, 0, 0]),
        (nav(aggregation="seq_mean_token_sum"), -3.225, [-1, 0, 0.25, 0.025, 0, 0]),
        (preset("rec_twoside_is"), 0.2333333, [0, 0, 0, 0, 0, 0.1666667]),
        (preset("rec_oneside_nois"), 0.3333333, [0, 0, 0, 0, 0.1666667, 0.1666667]),
        (preset("rec_ring_nois", weight={"kind": "ratio"}, gate={"outer_high": 2}), 2 / 3, [0, 0, 0, 0, 1 / 2, 1 / 6]),
    ],
)
def test_aggregations_worked_numbers(settings: ObjectiveSettings, loss: float, gradient: list[float]) -> None:
    expected = close(loss), close(gradient)
    assert update([batch_of(TWO)], settings) == expected
    assert update([batch_of(TWO, torch.float32)], settings) == expected


def test_responses_without_tokens_count_and_nothing_divides_by_zero() -> None:
    settings = nav(aggregation="seq_mean_token_mean")
    hollow = batch_of([(-1.0, []), (1.0, [1.0]), (-1.0, [])])
    assert update([hollow], settings) == (close(-1 / 3), close([-1 / 3]))
    for aggregation in AGGREGATIONS:
        denominator = "kept" if aggregation.endswith("token_mean") else "original"
        over = {"aggregation": aggregation, "denominator": denominator, "veto": {"scope": "response"}}
        assert update([batch_of([(-1.0, [0.01, 0.5])])], nav(**over)) == (0, [0, 0])
        assert update([batch_of([])], nav(**over)) == (0, [])


def test_ratios_beyond_float_range_are_clamped() -> None:
    batch = batch_of([(-1.0, [1.0, 1.0])], torch.float32)
    far_T = batch.behavior_logp_T + torch.tensor([500.0, -500.0])
    far = replace(batch, logp_T=far_T.requires_grad_())
    assert far.log_ratio_T.tolist() == [20, -20]
    assert all(math.isfinite(g) for g in update([far], preset("relaxed"))[1])


BOUNDS = [0.1, 0.8, 1.2, 2.0, 3.0, 5.0]
ratio = st.floats(0.02, 9.0).filter(lambda r: all(abs(math.log(r / bound)) > 1e-3 for bound in BOUNDS))
advantage = st.sampled_from([-1.7, -1.0, -0.2, 0.0, 0.4, 1.0, 2.5])
some_responses = st.lists(st.tuples(advantage, st.lists(ratio, max_size=6)), min_size=1, max_size=5)
scopes = st.sampled_from(["off", "suffix", "suffix_nontrigger", "suffix_inclusive", "response", "trigger_only"])
means = st.sampled_from([*((way, "original") for way in AGGREGATIONS), *((way, "kept") for way in AGGREGATIONS[:2])])
any_settings = st.builds(
    lambda name, mean, **over: preset(name, aggregation=mean[0], denominator=mean[1], **over),
    st.sampled_from(["mu_grpo", "grpo"]),
    means,
    gate=st.builds(dict, kind=st.sampled_from(["one_side", "two_side"]), dual_clip=st.sampled_from([None, 3.0])),
    veto=st.builds(dict, scope=scopes),
)


@steady
@given(some_responses, st.sampled_from(["relaxed", "grpo"]), st.sampled_from([None, 3.0]))
def test_gradient_is_that_of_the_plain_surrogate(rows: list[Response], name: str, dual: float | None) -> None:
    settings, batch = preset(name, gate={"dual_clip": dual}, aggregation="token_mean"), batch_of(rows)
    logp_T = batch.logp_T.detach().clone().requires_grad_()
    ratio_T, a_T = (logp_T - batch.behavior_logp_T).exp(), batch.advantage_T
    gain_T = torch.min(ratio_T * a_T, ratio_T.clamp(*settings.gate.interval) * a_T)
    if dual is not None:
        gain_T = torch.where(a_T < 0, torch.max(gain_T, dual * a_T), gain_T)
    (-gain_T.sum()).backward()
    result = result_of(batch, settings)
    result.loss_sum.backward()
    torch.testing.assert_close(result.surrogate_T, -gain_T.detach(), rtol=1e-12, atol=1e-12)
    assert float(result.loss_sum.detach()) == pytest.approx(-float(gain_T.detach().sum()), abs=1e-12)
    torch.testing.assert_close(batch.logp_T.grad, logp_T.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "over", "what"),
    [
        ("off_policy_grpo", {}, "the proximal policy"),
        ("decoupled_ppo", {}, "the proximal policy"),
        ("grpo", {"mismatch": {"kind": "mask"}}, "the engine"),
        ("grpo", {"regulariser": {"kind": "reference_kl", "coefficient": 0.1}}, "the base policy"),
    ],
)
def test_a_policy_that_is_asked_for_and_missing_is_named(name: str, over: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=f"the objective needs log-probabilities of {what}"):
        result_of(batch_of([(1.0, [1.0])]), preset(name, **over))
