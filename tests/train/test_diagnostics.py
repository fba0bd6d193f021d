"""The row of an update against numbers worked by hand and against numpy."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given

from tasks.settings import ObjectiveSettings
from tasks.train.diagnostics import UpdateStatistics
from tasks.train.histogram import EDGES
from tasks.train.objective import objective
from tasks.train.tokens import TokenBatch
from tests.train.test_objective import (
    LONGEST,
    Response,
    any_settings,
    batch_of,
    nav,
    preset,
    some_responses,
    steady,
)

RATIOS = ["mean", "max", "p01", "p50", "p99"]
HISTOGRAMS = list(EDGES)
COLUMNS = [
    *HISTOGRAMS,
    *["tokens", "responses", "loss", "clip_fraction", "veto_fraction", "veto_fraction_negative", "reject_fraction"],
    *["trigger_share_negative", "trigger_position", "ess", "kl_k1", "kl_k3", "entropy", "zero_advantage_share"],
    *[f"ratio_{name}_{sign}" for sign in ("negative", "positive") for name in RATIOS],
]
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
        statistics.add(objective(batch, settings, LONGEST), batch, entropy_T)
    return statistics.row()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_by_hand(dtype: torch.dtype) -> None:
    row = row_of([batch_of(UPDATE, dtype)], nav())
    before, kept = row.pop("advantage_histogram"), row.pop("advantage_histogram_kept")
    assert sum(before) - sum(kept) == 2
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
def test_the_row_does_not_know_how_the_update_was_split(rows: list[Response], settings: ObjectiveSettings) -> None:
    whole = row_of([batch_of(rows)], settings)
    assert sorted(whole) == sorted(COLUMNS)
    histograms = [whole.pop(name) for name in HISTOGRAMS]
    known = {name: value for name, value in whole.items() if value is not None}
    for batches in (
        [batch_of([row]) for row in rows],
        [batch_of(rows[::-1])],
        [batch_of(rows[:1]), batch_of(rows[1:])],
    ):
        other = row_of(batches, settings)
        assert [other.pop(name) for name in HISTOGRAMS] == histograms
        assert {name: value for name, value in other.items() if value is not None} == pytest.approx(
            known, rel=1e-10, abs=1e-12
        )


def test_numbers_about_nothing_are_none() -> None:
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


def test_on_policy_nothing_has_moved() -> None:
    row = row_of([batch_of([(1.0, [1.0] * 3), (-1.0, [1.0] * 5)])], preset("grpo"))
    assert (row["ess"], row["kl_k1"], row["kl_k3"], row["clip_fraction"]) == (1, 0, 0, 0)
    assert row["trigger_share_negative"] == 0


def test_triggers_of_other_signs_are_not_counted_as_negative() -> None:
    settings = nav(veto={"advantage_sign": "all"})
    row = row_of([batch_of([(1.0, [0.05, 1.0]), (-1.0, [1.0, 1.0])])], settings)
    assert row["veto_fraction"] == 0.25
    assert (row["veto_fraction_negative"], row["trigger_share_negative"], row["trigger_position"]) == (0, 0, None)


def test_the_position_is_that_of_the_first_trigger_of_a_response() -> None:
    rows = [(-1.0, [1.0, 0.05, 1.0, 0.05]), (-1.0, [1.0, 1.0]), (-1.0, [1.0, 1.0, 1.0, 0.05])]
    assert row_of([batch_of(rows)], nav())["trigger_position"] == (0.25 + 0.75) / 2


def test_kl_is_that_of_the_behavior_policy_to_the_current_one() -> None:
    behavior, current = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.25, 0.25, 0.5])
    token_T = torch.arange(3).repeat_interleave(torch.tensor([5, 3, 2]))  # as often as the behavior policy draws them
    batch = replace(
        batch_of([(1.0, [1.0] * 10)], torch.float32),
        logp_T=current.log()[token_T].requires_grad_(),
        behavior_logp_T=behavior.log()[token_T],
    )
    exact = float((behavior * (behavior / current).log()).sum())
    row = row_of([batch], preset("grpo"))
    assert row["kl_k1"] == pytest.approx(exact, rel=1e-6)
    assert row["kl_k3"] == pytest.approx(exact, rel=1e-6)


def test_small_ratios_keep_their_kl() -> None:
    batch = batch_of([(1.0, [1.0001] * 4)])
    assert row_of([batch], preset("grpo"))["kl_k3"] == pytest.approx(math.log(1.0001) ** 2 / 2, rel=1e-3)
