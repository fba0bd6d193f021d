"""Ratios of whole responses, of prefixes and of other policies: by hand, and against plain loops over the tokens."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tasks.settings import ObjectiveSettings
from tasks.settings.presets import PRESETS
from tasks.train.bounds import Bounds
from tasks.train.objective import ObjectiveResult, objective
from tests.train.batches import LONGEST, result_of, with_policies
from tests.train.test_objective import Response, batch_of, preset, ratio, some_responses, steady

E = math.e


def result(rows: Sequence[Response], settings: ObjectiveSettings, **policies: Sequence[float]) -> ObjectiveResult:
    batch = with_policies(batch_of(rows), **policies)
    return result_of(batch, settings)


def coefficients(rows: Sequence[Response], settings: ObjectiveSettings, **policies: Sequence[float]) -> list[float]:
    return result(rows, settings, **policies).coefficient_T.tolist()


def by_loop(row: Sequence[float], level: str) -> list[float]:
    """The ratios of a response at a level."""
    return {
        "token": list(row),
        "sequence_product": [math.prod(row)] * len(row),
        "sequence_geometric": [math.prod(row) ** (1 / max(len(row), 1))] * len(row),
    }[level]


@steady
@given(
    some_responses,
    st.sampled_from(sorted(PRESETS)),
    st.sampled_from(["tis", "mis"]),
    st.sampled_from(["token", "sequence_geometric", "sequence_product"]),
    st.data(),
)
def test_tis_and_mis_multiply_any_preset(
    rows: list[Response], name: str, modifier: str, level: str, data: st.DataObject
) -> None:
    count = sum(len(row) for _, row in rows)
    lags = data.draw(st.lists(ratio, min_size=count, max_size=count))
    rhos = data.draw(st.lists(st.floats(0.3, 3.0), min_size=count, max_size=count))
    policies = {"proximal": lags, "engine": [1 / rho for rho in rhos]}
    rest = iter(rhos)
    weights = [weight for _, row in rows for weight in by_loop([next(rest) for _ in row], level)]
    assume(all(abs(weight / bound - 1) > 1e-6 for weight in weights for bound in (0.5, 2.0)))
    factors = [min(w, 2.0) if modifier == "tis" else w * (0.5 <= w <= 2.0) for w in weights]
    settings = preset(name, modifier, mismatch={"level": level})
    plain, got = result(rows, preset(name), **policies), result(rows, settings, **policies)
    products = [c * factor for c, factor in zip(plain.coefficient_T.tolist(), factors, strict=True)]
    assert got.coefficient_T.tolist() == pytest.approx(products, rel=1e-6, abs=1e-9)
    values = [x * factor for x, factor in zip(plain.surrogate_T.tolist(), factors, strict=True)]
    assert got.surrogate_T.tolist() == pytest.approx(values, rel=1e-6, abs=1e-9)
    left_out = [was or (f == 0) for was, f in zip(plain.rejected_T.tolist(), factors, strict=True)]
    assert got.rejected_T.tolist() == left_out


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
        objective(batch_of([(1.0, [1.0])]), preset(name, **over), LONGEST, Bounds(0.0, math.inf))
