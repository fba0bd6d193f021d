"""What an update notes of two of its responses is what the objective made of them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tasks.artifacts.tables import EXAMPLES, to_table
from tasks.train.advantages import select
from tasks.train.batches import Responses, plan_batches
from tasks.train.diagnostics import CloseUp, noted_updates
from tasks.train.objective import objective
from tasks.train.objective import veto as veto_of
from tasks.train.outcome import Outcome, Row
from tasks.train.stage import load_trainer
from tasks.train.tokens import TokenBatch
from tests.train import test_trainer
from tests.train.test_advantages import responses_of
from tests.train.test_trainer import Small, settings, untimed

responses = test_trainer.responses
SENSITIVE = {"veto": {"kappa": 1.02}}
"""Vetoes much of what the small policy learns from."""


def trained(small: Small, responses: Responses, **changes: Any) -> Outcome:
    store, policy = small
    chosen = settings(**{"objective": SENSITIVE, **changes})
    trainer = load_trainer(store.path(policy), chosen, 12, 0)
    plan = plan_batches(responses, 16, (0, 0))
    return trainer.train(responses, plan, 0, untimed, Outcome(len(responses.group_R), noted=[0, 2]))


@given(st.integers(1, 5000))
def test_noted_are_the_first_update_the_last_and_some_between(updates: int) -> None:
    noted = noted_updates(updates)
    assert noted == sorted(set(noted))
    assert (noted[0], noted[-1]) == (0, updates - 1)
    assert len(noted) == min(5, updates) or updates < 8
    gaps = np.diff(noted)
    assert not len(gaps) or gaps.max() - gaps.min() <= 1


def test_the_marks_are_those_of_the_veto(small: Small, responses: Responses) -> None:
    """Found again from the noted log-probabilities, response by response."""
    examples = trained(small, responses).examples
    assert [row["staleness"] for row in examples] == [0, 0, 2, 2]
    vetoed = 0
    for row in examples:
        logp_T, behavior_T = torch.tensor(row["logp"]), torch.tensor(row["behavior_logp"])
        advantage_T = torch.full_like(logp_T, row["advantage"])
        veto = settings(objective=SENSITIVE).objective.veto
        response_T = torch.zeros(len(logp_T), dtype=torch.int64)
        trigger_T, vetoed_T = veto_of(TokenBatch(logp_T, behavior_T, advantage_T, response_T, 1), veto)
        assert row["trigger"] == trigger_T.tolist()
        assert row["vetoed"] == vetoed_T.tolist()
        assert row["ratio"] == pytest.approx((logp_T - behavior_T).exp().tolist(), rel=1e-6)
        assert len(row["response_token_ids"]) == len(logp_T)
        vetoed += sum(row["vetoed"])
    assert vetoed > 0
    assert [row["ratio"] for row in examples[:2]] == [[1.0] * len(row["ratio"]) for row in examples[:2]]


def test_best_and_worst_are_of_one_group(small: Small, responses: Responses) -> None:
    examples = trained(small, responses).examples
    for best, worst in zip(examples[::2], examples[1::2], strict=True):
        assert best["prompt_token_ids"] == worst["prompt_token_ids"]
        assert (best["reward"], worst["reward"]) == (1.0, 0.0)
        assert best["advantage"] > 0 > worst["advantage"]
        assert best["update"] == worst["update"]


def test_noting_changes_no_weight_and_no_number(small: Small, responses: Responses) -> None:
    store, policy = small
    plain = load_trainer(store.path(policy), settings(objective=SENSITIVE), 12, 0)
    rows = plain.train(responses, plan_batches(responses, 16, (0, 0)), 0, untimed)
    assert rows.examples == []
    assert rows.rows == trained(small, responses).rows


def test_micro_batches_do_not_change_what_is_noted(small: Small, responses: Responses) -> None:
    whole = trained(small, responses, tokens_per_micro_batch=100_000).examples
    split = trained(small, responses, tokens_per_micro_batch=40).examples
    alike(whole, split, 1e-3)


def alike(ones: list[Row], others: list[Row], within: float) -> None:
    """The same responses with the same marks; numbers within rounding."""
    assert len(ones) == len(others) > 0
    for one, other in zip(ones, others, strict=True):
        for name, value in one.items():
            close = name in ("ratio", "logp", "behavior_logp", "advantage")
            assert other[name] == (pytest.approx(value, rel=within, abs=within) if close else value), name


def test_rows_fit_their_table(small: Small, responses: Responses) -> None:
    examples = trained(small, responses).examples
    assert to_table(examples, EXAMPLES).to_pylist() == examples
    assert set(examples[0]) == set(EXAMPLES.names)


REWARDS = [[1.0, 1.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 1.0]]


def noted(rewards: list[list[float]], vetoed: list[int], dropped: int | None = None) -> list[tuple[float | None, int]]:
    """Reward and number of vetoed tokens of the responses that an update over all groups notes; each has three tokens.

    Args:
        rewards: by group.
        vetoed: tokens that the veto takes from the end of each response.
        dropped: a response that takes no part.
    """
    made = responses_of(rewards)
    count = len(made.reward_R)
    dropped_R = np.arange(count) == (-1 if dropped is None else dropped)
    selection = select(made, settings(), 20, dropped_R, (0, 0, 0))
    rows = np.flatnonzero(selection.takes_part_R)
    close_up = CloseUp(made, selection, rows)
    for own in np.array_split(rows, 2):
        tokens = 3 * len(own)
        logp_T = torch.zeros(tokens)
        response_T = torch.arange(tokens) // 3
        batch = TokenBatch(logp_T, logp_T, torch.zeros(tokens), response_T, len(own))
        left = torch.tensor([place >= 3 - vetoed[row] for row in own for place in range(3)])
        close_up.add(own, batch, replace(objective(batch, settings().objective, 20), vetoed_T=left))
    place = {"stage": 1, "update": 1, "staleness": 0}
    return [(row["reward"], sum(row["vetoed"])) for row in close_up.examples(place)]


@pytest.mark.parametrize(
    ("groups", "vetoed", "dropped", "expected"),
    [
        (REWARDS, 12 * [0], None, [(1.0, 0), (0.0, 0)]),
        # The first group with a vetoed token.
        (REWARDS, [0, 0, 0, 0, 0, 0, 1, 0, 2, 3, 0, 0], None, [(1.0, 0), (0.0, 2)]),
        # Groups of one reward only where there is no other, also where the veto took tokens of them.
        (REWARDS[:1], 3 * [0], None, [(1.0, 0)]),
        (REWARDS[:2], [3, 3, 3, 0, 0, 0], None, [(1.0, 0), (0.0, 0)]),
        # No response that takes no part.
        (REWARDS[1:2], [0, 2, 1], 1, [(1.0, 0), (0.0, 1)]),
    ],
)
def test_the_group_that_is_noted(
    groups: list[list[float]], vetoed: list[int], dropped: int | None, expected: list[tuple[float, int]]
) -> None:
    assert noted(groups, vetoed, dropped) == expected
