"""The row of an update against numbers worked by hand and numpy, and what it notes of two of its responses."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tasks.settings import ObjectiveSettings
from tasks.train.advantages import select
from tasks.train.batches import Responses
from tasks.train.diagnostics import UpdateExamples, UpdateStatistics, example_updates
from tasks.train.objective import veto as veto_of
from tasks.train.results import EDGES, Row
from tasks.train.tokens import TokenBatch
from tests.train.batches import result_of
from tests.train.small import Small, settings, train
from tests.train.test_advantages import responses_of
from tests.train.test_objective import Response, any_settings, batch_of, nav, preset, some_responses, steady

RATIOS = ["mean", "max", "p01", "p50", "p99"]
HISTOGRAMS = list(EDGES)
SENSITIVE = {"veto": {"kappa": 1.02}}
"""Vetoes much of what the small policy learns from."""
REWARDS = [[1.0, 1.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 1.0]]
UPDATE: list[Response] = [
    (-1.0, [1.0, 0.5, 0.05, 2.0]),  # a trigger at 2 of 4, the last token vetoed
    (-2.0, [0.05, 3.0]),  # a trigger at 0 of 2, the last token vetoed
    (-1.0, [1.0]),
    (1.0, [0.05, 6.0]),  # clipped
    (0.0, [7.0]),
]


def row_of(batches: Sequence[TokenBatch], settings: ObjectiveSettings) -> dict[str, Any]:
    statistics = UpdateStatistics()
    for batch in batches:
        # An entropy that goes with the token, not with its place in the micro-batch.
        entropy_T = (batch.logp_T.detach() - batch.behavior_logp_T).exp() / 10
        statistics.add(result_of(batch, settings), batch, entropy_T)
    return statistics.row()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_diagnostics_worked_numbers(dtype: torch.dtype) -> None:
    row = row_of([batch_of(UPDATE, dtype)], nav())
    before, kept = row.pop("advantage_histogram"), row.pop("advantage_histogram_kept")
    assert (len(before), len(kept), sum(before) - sum(kept)) == (17, 17, 2)
    assert (sum(before[:8]), before[8], sum(before[9:])) == (7, 1, 2)
    assert (sum(kept[:8]), kept[8], sum(kept[9:])) == (5, 1, 2)
    negative, positive = row.pop("ratio_histogram_negative"), row.pop("ratio_histogram_positive")
    # Bins are 0.2 nats wide: 0.05 is e^-3.00, 0.5 e^-0.69, 1 e^0, 2 e^0.69, 3 e^1.10, 6 e^1.79.
    assert {place - 15: count for place, count in enumerate(negative) if count} == {-15: 2, -3: 1, 0: 2, 3: 1, 5: 1}
    assert {place - 15: count for place, count in enumerate(positive) if count} == {-15: 1, 9: 1}
    r = [1.0, 0.5, 0.05, 2.0, 0.05, 3.0, 1.0, 0.05, 6.0, 7.0]
    expected = {
        "tokens": 10,
        "responses": 5,
        "loss": (1.55 + 0.1 + 1.0 - 5.05) / 10,
        "clip_fraction": 0.1,
        "veto_fraction": 0.2,
        "reject_fraction": 0.0,
        "veto_fraction_negative": 2 / 7,
        "trigger_share_negative": 2 / 3,
        "trigger_position": 0.25,
        "ess": sum(r) ** 2 / (10 * sum(x * x for x in r)),
        "kl_k1": -sum(map(math.log, r)) / 10,
        "kl_k3": sum(x - 1 - math.log(x) for x in r) / 10,
        "entropy": sum(r) / 100,
        "zero_advantage_share": 0.2,
    }
    for sign, values in (("negative", r[:7]), ("positive", r[7:9])):
        quantiles = np.quantile(values, [0.01, 0.5, 0.99])
        row_values = [np.mean(values), max(values), *quantiles]
        expected |= {f"ratio_{name}_{sign}": value for name, value in zip(RATIOS, row_values, strict=True)}
    assert row == pytest.approx(expected, rel=1e-5 if dtype == torch.float32 else 1e-12)
    assert all(type(value) in (int, float) for value in row.values())


@steady
@given(some_responses, any_settings)
def test_the_row_does_not_depend_on_micro_batches(rows: list[Response], settings: ObjectiveSettings) -> None:
    whole = row_of([batch_of(rows)], settings)
    assert whole.keys() == row_of([batch_of(UPDATE)], nav()).keys()
    histograms = [whole.pop(name) for name in HISTOGRAMS]
    known = {name: value for name, value in whole.items() if value is not None}
    for parts in ([[row] for row in rows], [rows[::-1]], [rows[:1], rows[1:]]):
        other = row_of([batch_of(part) for part in parts], settings)
        assert [other.pop(name) for name in HISTOGRAMS] == histograms
        found = {name: value for name, value in other.items() if value is not None}
        assert found == pytest.approx(known, rel=1e-10, abs=1e-12)


def test_means_over_no_tokens_are_none_and_of_huge_rewards_finite() -> None:
    assert responses_of([[3e38, 3e38, math.nan]]).mean_reward(np.arange(3)) == pytest.approx(3e38)
    row = row_of([batch_of([(1.0, [1.0, 1.0])])], nav())
    absent = {name for name, value in row.items() if value is None}
    negative = {f"ratio_{name}_negative" for name in RATIOS}
    assert absent == negative | {"veto_fraction_negative", "trigger_share_negative", "trigger_position"}
    for batches in ([], [batch_of([])]):
        row = row_of(batches, nav())
        known = {name for name, value in row.items() if value is not None}
        assert known == {"tokens", "responses", "loss", *HISTOGRAMS}
        assert not any(row["advantage_histogram"])
        assert (row["tokens"], row["responses"], row["loss"]) == (0, 0, 0.0)


@pytest.mark.parametrize(
    ("rows", "settings", "expected"),
    [
        # Triggers of other signs are not counted as negative.
        (
            [(1.0, [0.05, 1.0]), (-1.0, [1.0, 1.0])],
            nav(veto={"advantage_sign": "all"}),
            {"veto_fraction": 0.25, "veto_fraction_negative": 0, "trigger_share_negative": 0, "trigger_position": None},
        ),
        # The position is that of the first trigger of a response.
        (
            [(-1.0, [1.0, 0.05, 1.0, 0.05]), (-1.0, [1.0, 1.0]), (-1.0, [1.0, 1.0, 1.0, 0.05])],
            nav(),
            {"trigger_position": (0.25 + 0.75) / 2},
        ),
        ([(4.0, [1.0] * 4)], preset("grpo"), {"advantage_histogram": [*[0] * 16, 4]}),
        # Small ratios keep their KL.
        ([(1.0, [1.0001] * 4)], preset("grpo"), {"kl_k3": pytest.approx(math.log(1.0001) ** 2 / 2, rel=1e-3)}),
    ],
)
def test_single_numbers_of_a_row(rows: list[Response], settings: ObjectiveSettings, expected: dict[str, Any]) -> None:
    row = row_of([batch_of(rows)], settings)
    assert {name: row[name] for name in expected} == expected


@given(st.integers(1, 5000))
def test_the_first_the_last_and_some_updates_between_store_examples(updates: int) -> None:
    noted = example_updates(updates)
    assert noted == sorted(set(noted))
    assert (noted[0], noted[-1]) == (0, updates - 1)
    assert len(noted) == min(5, updates) or updates < 8
    gaps = np.diff(noted)
    assert not len(gaps) or gaps.max() - gaps.min() <= 1


def test_the_marks_are_those_of_the_veto_and_change_neither_weights_nor_diagnostics(
    small: Small, responses: Responses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found again from the stored log-probabilities, response by response."""
    _, noted, noted_weights = train(small, responses, objective=SENSITIVE)
    examples = noted.examples
    assert [row["staleness"] for row in examples] == [0, 0, 1, 1, 2, 2]
    assert any(any(row["vetoed"]) for row in examples)
    chosen = settings(objective=SENSITIVE).objective.veto
    for row in examples:
        logp_T, behavior_T = torch.tensor(row["logp"]), torch.tensor(row["behavior_logp"])
        advantage_T = torch.full_like(logp_T, row["advantage"])
        batch = TokenBatch(logp_T, behavior_T, advantage_T, torch.zeros_like(logp_T, dtype=torch.int64), 1)
        trigger_T, vetoed_T = veto_of(batch, chosen)
        assert row["trigger"] == trigger_T.tolist()
        assert row["vetoed"] == vetoed_T.tolist()
        assert row["ratio"] == pytest.approx((logp_T - behavior_T).exp().tolist(), rel=1e-6)
        assert len(row["response_token_ids"]) == len(logp_T)
    assert [row["ratio"] for row in examples[:2]] == [[1.0] * len(row["ratio"]) for row in examples[:2]]
    monkeypatch.setattr("tasks.train.trainer.example_updates", lambda _: [])
    _, plain, weights = train(small, responses, objective=SENSITIVE)
    assert (len(examples), plain.examples) == (6, [])
    assert plain.rows == noted.rows
    assert all(torch.equal(weights[name], noted_weights[name]) for name in weights)


def assert_close_rows(ones: list[Row], others: list[Row], within: float) -> None:
    """The same responses with the same marks; numbers within rounding."""
    assert len(ones) == len(others) > 0
    for one, other in zip(ones, others, strict=True):
        for name, value in one.items():
            close = name in ("ratio", "logp", "behavior_logp", "advantage")
            assert other[name] == (pytest.approx(value, rel=within, abs=within) if close else value), name


@pytest.mark.parametrize(
    ("groups", "vetoed", "dropped", "expected"),
    [
        (REWARDS, 12 * [0], [], [(1.0, 0), (0.0, 0)]),
        # The first group with a vetoed token.
        (REWARDS, [0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 0, 0], [], [(1.0, 1), (0.0, 2)]),
        # Groups of one reward only where there is no other, also where the veto took tokens of them.
        ([[math.nan] * 3], 3 * [0], [], [(None, 0)]),
        (REWARDS[:2], [3, 3, 3, 0, 0, 0], [], [(1.0, 0), (0.0, 0)]),
        # No response without a reward where others have one, although its advantage is 0.
        ([[math.nan, -2.0, -3.0], [math.nan] * 3], 6 * [0], [1], [(-3.0, 0)]),
        # No response that takes no part.
        (REWARDS[1:2], [0, 2, 1], [1], [(1.0, 0), (0.0, 1)]),
    ],
)
def test_an_update_notes_a_group_in_which_the_veto_acts_or_else_one_that_teaches(
    groups: list[list[float]], vetoed: list[int], dropped: list[int], expected: list[tuple[float, int]]
) -> None:
    """Each response has three tokens, of which the veto takes some from the end; the update has two micro-batches."""
    made = responses_of(groups)
    dropped_R = np.isin(np.arange(len(made.reward_R)), dropped)
    selection = select(made, settings(preset="dr_grpo").objective, 20, dropped_R, torch.zeros(len(dropped_R)))
    rows = np.flatnonzero(selection.takes_part_R)
    examples = UpdateExamples(made, selection, rows)
    for own in np.array_split(rows, 2):
        zero_T = torch.zeros(3 * len(own))
        batch = TokenBatch(zero_T, zero_T, zero_T, torch.arange(3 * len(own)) // 3, len(own))
        left_T = torch.tensor([place >= 3 - vetoed[row] for row in own for place in range(3)])
        examples.add(own, batch, replace(result_of(batch, settings().objective), vetoed_T=left_T))
    assert [(row["reward"], sum(row["vetoed"])) for row in examples.rows({})] == expected
