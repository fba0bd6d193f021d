"""Stale data on a policy that can be seen whole: two tokens out of three, each from a table of logits.

The rollouts hold two responses. (1, 0) was bad, so updates push its first token away until the policy never begins with
it; (0, 0) was good.
"""

from functools import cache
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from tasks.train.objective import objective
from tasks.train.tokens import TokenBatch
from tests.train.test_objective import BELOW, preset

FIRST, SECOND = torch.tensor([1, 0]), torch.tensor([0, 0])
ADVANTAGE = torch.tensor([-1.0, 1.0], dtype=torch.float64)


@cache
def train(name: str, updates: int) -> tuple[list[float], list[Tensor]]:
    """Ratio of the bad response's first token, and the second token's logits after it, before every update."""
    first_logits = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    # The bad second token was unlikely, so that it is the first that is abandoned.
    second_logits = torch.tensor([[0.0, 0.0, 0.0], [-2.0, 0.5, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    second_logits.requires_grad_()
    optimizer = torch.optim.SGD([first_logits, second_logits], lr=0.5)

    def logp() -> Tensor:
        first_R = first_logits.log_softmax(0)[FIRST]
        second_R = second_logits.log_softmax(1)[FIRST, SECOND]
        return torch.stack([first_R, second_R], dim=1).flatten()

    behavior_T, settings = logp().detach(), preset(name, veto=BELOW if name == "mu_grpo" else {})
    ratios, logits = [], []
    for _ in range(updates):
        batch = TokenBatch(logp(), behavior_T, ADVANTAGE.repeat_interleave(2), torch.tensor([0, 0, 1, 1]), 2)
        result = objective(batch, settings, 2)
        ratios.append(float(batch.ratio_T[0]))
        logits.append(second_logits[1].detach().clone())
        optimizer.zero_grad()
        (result.loss_sum / result.denominator).backward()
        optimizer.step()
    return ratios, logits


def crossing_of(ratios: list[float]) -> int:
    """The first update at which the token is abandoned."""
    return next(update for update, ratio in enumerate(ratios) if ratio < 0.1)


@pytest.mark.parametrize("name", ["relaxed", "mu_grpo"])
def test_the_first_token_is_abandoned_before_the_second(name: str) -> None:
    ratios, logits = train(name, 120)
    assert ratios[0] == 1
    assert ratios[-1] < 0.1
    assert logits[crossing_of(ratios)].softmax(0)[0] / logits[0].softmax(0)[0] > 0.1


def test_without_the_veto_the_suffix_of_an_abandoned_token_keeps_moving() -> None:
    ratios, logits = train("relaxed", 120)
    crossing = crossing_of(ratios)
    steps = [float((late - early).abs().max()) for early, late in pairwise(logits[crossing:])]
    assert min(steps) > 0
    assert float((logits[-1] - logits[crossing]).abs().max()) > 0.1


def test_with_the_veto_the_suffix_of_an_abandoned_token_freezes() -> None:
    ratios, logits = train("mu_grpo", 120)
    crossing = crossing_of(ratios)
    assert crossing < 100
    assert not torch.equal(logits[crossing], logits[crossing - 1])
    assert all(torch.equal(later, logits[crossing]) for later in logits[crossing:])
    # Until then the two are the same run.
    plain_ratios, plain_logits = train("relaxed", crossing + 1)
    assert plain_ratios == ratios[: crossing + 1]
    assert torch.equal(plain_logits[crossing], logits[crossing])
