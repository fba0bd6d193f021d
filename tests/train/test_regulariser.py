"""The penalty: its value and gradient, what its estimators estimate, and its pull whatever gate and veto do."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tasks.settings import RegulariserSettings
from tasks.train.objective import penalty
from tasks.train.tokens import TokenBatch
from tests.train.batches import update, with_policies
from tests.train.test_objective import Response, batch_of, close, nav


def regulariser(coefficient: float = 0.3, **over: Any) -> RegulariserSettings:
    return RegulariserSettings.parse({"coefficient": coefficient, **over})


def kl(**over: Any) -> RegulariserSettings:
    return regulariser(1.0, **{"kind": "reference_kl", **over})


def batch_with_reference(row: Sequence[float], reference: Sequence[float]) -> TokenBatch:
    return with_policies(batch_of([(1.0, row)]), reference=reference)


@pytest.mark.parametrize(
    ("over", "values", "gradient"),
    [
        ({"kind": "likelihood"}, [0.5 - math.log(3), 0.75 + math.log(4)], [-1, -1]),
        ({"kind": "behavior_l2"}, [1.2069490, 1.9218121], [2 * math.log(3), -2 * math.log(4)]),
        ({"estimator": "k1"}, [math.log(2), -math.log(2)], [1, 1]),
        ({"estimator": "k2"}, [0.2402265, 0.2402265], [math.log(2), -math.log(2)]),
        ({"estimator": "k3"}, [0.1931472, 0.3068528], [0.5, -1]),
        # Ratios to the behavior policy 3 and 1/4, to the reference 2 and 1/2; the gradient is r (k + k').
        ({"estimator": "k1", "unbiased": True}, [3 * math.log(2), -math.log(2) / 4], [5.0794415, 0.0767132]),
        ({"estimator": "k2", "unbiased": True}, [0.7206795, 0.0600566], [2.8001211, -0.1132302]),
        ({"estimator": "k3", "unbiased": True}, [0.5794415, 0.0767132], [2.0794415, -0.1732868]),
    ],
)
def test_penalties_worked_numbers(over: dict[str, Any], values: list[float], gradient: list[float]) -> None:
    batch = batch_with_reference([3.0, 0.25], [1.5, 0.5])
    got_T = penalty(batch, kl(**over))
    got_T.sum().backward()
    assert got_T.tolist() == close(values)
    assert batch.logp_T.grad.tolist() == close(gradient)


def expected_gradient(behavior: Tensor, policy: Tensor, settings: RegulariserSettings, reference: Tensor) -> Tensor:
    """Mean gradient of the penalty over tokens of the behavior policy, with respect to the policy's logits."""
    logits = policy.log().clone().requires_grad_()
    logp_T, advantage_T, response_T = logits.log_softmax(0), torch.zeros(3), torch.arange(3)
    batch = TokenBatch(logp_T, behavior.log(), advantage_T, response_T, 3, reference_logp_T=reference.log())
    (behavior * penalty(batch, settings)).sum().backward()
    return logits.grad


def test_kl_estimators_are_unbiased_or_biased_as_stated() -> None:
    behavior, policy, reference = torch.tensor([[2, 5, 3], [6, 3, 1], [2.5, 2.5, 5]], dtype=torch.float64) / 10
    logits = policy.log().clone().requires_grad_()
    logp = logits.log_softmax(0)
    forward = torch.autograd.grad((logp.exp() * (logp - reference.log())).sum(), logits, retain_graph=True)[0]
    backward = torch.autograd.grad((reference * (reference.log() - logp)).sum(), logits)[0]
    for estimator in ("k1", "k3"):
        unbiased = kl(estimator=estimator, unbiased=True)
        torch.testing.assert_close(expected_gradient(behavior, policy, unbiased, reference), forward)
    # On-policy k2 has the gradient of KL(policy || reference), k3 that of KL(reference || policy), k1 none.
    torch.testing.assert_close(expected_gradient(policy, policy, kl(estimator="k2"), reference), forward)
    torch.testing.assert_close(expected_gradient(policy, policy, kl(estimator="k3"), reference), backward)
    none = expected_gradient(policy, policy, kl(estimator="k1"), reference)
    torch.testing.assert_close(none, torch.zeros(3, dtype=torch.float64))


@pytest.mark.parametrize(
    ("aggregation", "over"), [("token_mean", [6] * 6), ("seq_mean_token_mean", [4] * 2 + [8] * 4), ("const", [8] * 6)]
)
def test_a_penalty_is_aggregated_as_the_loss_and_reaches_all_tokens(aggregation: str, over: list[int]) -> None:
    rows: list[Response] = [(1.0, [1.0, 8.0]), (-1.0, [0.05, 2.0, 0.5, 1.0])]
    settings = nav(aggregation=aggregation, regulariser={"kind": "behavior_l2", "coefficient": 0.5})
    ratios, coefficients = [r for _, row in rows for r in row], [1, 0, -0.05, 0, 0, 0]
    expected = [(math.log(r) - c) / divisor for r, c, divisor in zip(ratios, coefficients, over, strict=True)]
    assert update([batch_of(rows)], settings)[1] == close(expected)


def test_a_token_beyond_the_clamp_is_still_pulled_back() -> None:
    batch = batch_of([(0.0, [1.0, 1.0])])
    far = replace(batch, logp_T=(batch.behavior_logp_T + torch.tensor([-50.0, 50.0])).requires_grad_())
    penalty(far, regulariser(0.1, kind="behavior_l2")).sum().backward()
    assert far.logp_T.grad.tolist() == close([-0.2 * 20, 0.2 * 20])
