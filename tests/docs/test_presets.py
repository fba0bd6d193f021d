"""Every preset's line in docs/objective.md holds all of its settings, and computes what the objective computes."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from tasks.cli.algorithms import describe
from tasks.errors import SettingsError
from tasks.settings import PRESETS, ObjectiveSettings
from tasks.train.advantages import group_advantages
from tasks.train.bounds import Bounds
from tasks.train.objective import objective
from tests.train.batches import bounds_of, with_policies
from tests.train.test_objective import batch_of


def line(settings: ObjectiveSettings) -> tuple[str, ...]:
    return tuple(describe(settings).values())


def with_a_default(row: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every field of a row, and the row with this field at its default."""
    for name, value in row.items():
        others = {other: row[other] for other in row if other != name}
        if isinstance(value, dict):
            yield from ((f"{name}.{field}", {**others, name: section}) for field, section in with_a_default(value))
        else:
            yield name, others


CHANGED = [
    pytest.param(name, row, id=f"{name}-{field}")
    for name, preset in PRESETS.items()
    for field, row in with_a_default(preset.row)
]


@pytest.mark.parametrize(("name", "row"), CHANGED)
def test_a_line_shows_every_setting_of_its_preset(name: str, row: dict[str, Any]) -> None:
    own = ObjectiveSettings.parse(PRESETS[name].row)
    try:
        other = ObjectiveSettings.parse(row)
    except SettingsError:
        return  # The field cannot be left out of this row.
    assert own == other or line(own) != line(other)


def one_side(r: Tensor, low: Any, high: Any, A: float) -> Tensor:
    return r >= low if A < 0 else r <= high


def two_side(r: Tensor, low: float, high: float, A: float) -> Tensor:
    return (r >= low) & (r <= high)


def ring(r: Tensor, low: float, high: float, outer_low: float, outer_high: float, A: float) -> Tensor:
    return two_side(r, low, high, A) | (r <= outer_low if A >= 0 else r >= outer_high)


def dual(r: Tensor, most: float, A: float) -> Tensor:
    return r <= most if A < 0 else r > 0


def preserve(r: Tensor, low: float, high: float, below: float, above: float, A: float) -> Tensor:
    return torch.where(r < low, below, r) if A < 0 else torch.where(r > high, above, r)


def veto(scope: str, trigger: Tensor, A: float) -> Tensor:
    trigger = trigger & torch.tensor(A < 0)
    if scope == "response":
        return ~trigger.any().expand(trigger.shape)
    assert scope == "suffix"
    return trigger.cumsum(0) - trigger.long() == 0


def coefficients(formula: str, A: float, r: Tensor, q: Tensor, bounds: Bounds) -> Tensor:
    """A line of the page, read as Python, for one response."""
    smallest = torch.cat([torch.ones(1, dtype=r.dtype), r[:-1]]).clamp(max=1).cummin(0).values
    names: dict[str, Any] = {
        **{"A": A, "r": r, "q": q, "r_min": smallest, "low": bounds.low, "high": bounds.high},
        **{"suffix": "suffix", "response": "response", "mask": lambda q, most: torch.where(q > most, 0, q)},
        "clip": lambda r, low, high: r.clamp(low, high),
        "exp": math.exp,
        **dict.fromkeys(("geometric", "sequence_geo"), lambda r: r.log().mean().exp().expand(r.shape)),
        "product": lambda r: r.log().sum().exp().expand(r.shape),
        **{
            gate.__name__: lambda *given, gate=gate: gate(*given, A=A).double()
            for gate in (one_side, two_side, ring, dual, veto, preserve)
        },
    }
    return torch.as_tensor(eval(formula, {}, names), dtype=r.dtype).expand(r.shape)


@pytest.mark.parametrize("name", PRESETS)
def test_the_line_of_a_preset_matches_the_objective(name: str) -> None:
    settings = ObjectiveSettings.parse(PRESETS[name].row)
    drawn = torch.Generator().manual_seed(7)
    ratios = (torch.randn(8, 10, generator=drawn, dtype=torch.float64) * 0.8).exp()
    near = 1 + torch.randn(4, 10, generator=drawn, dtype=torch.float64) * 1e-3
    ratios, proximal = torch.cat([ratios, near]), torch.rand(12, 10, generator=drawn, dtype=torch.float64) * 6 + 0.1
    advantages = [(-1) ** response * (0.5 + response / 10) for response in range(len(ratios))]
    plain = batch_of([(a, row.tolist()) for a, row in zip(advantages, ratios, strict=True)])
    batch = with_policies(plain, proximal=proximal.flatten().tolist())
    bounds = bounds_of([batch], settings)
    got = objective(batch, settings, 10, bounds).coefficient_T.reshape(ratios.shape)
    for a, row, q, found in zip(advantages, ratios, proximal, got, strict=True):
        torch.testing.assert_close(found, coefficients(line(settings)[1], a, row, q, bounds), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", PRESETS)
def test_the_advantage_of_a_preset_matches_its_line(name: str) -> None:
    settings = ObjectiveSettings.parse(PRESETS[name].row)
    reward = torch.tensor([1.0, 0, 0, 1, 0], dtype=torch.float64)
    got = group_advantages(reward, torch.zeros(5, dtype=torch.int64), settings.advantage)
    epsilon = settings.advantage.epsilon
    names = {"R": reward, "mean": reward.mean(), "std": reward.std() + epsilon}
    names["sqrt_eps"] = (reward.var(correction=0) + epsilon).sqrt()
    torch.testing.assert_close(got, eval(line(settings)[0], {}, names))


@pytest.mark.parametrize("name", PRESETS)
def test_the_divisor_of_a_preset_matches_its_line(name: str) -> None:
    settings = ObjectiveSettings.parse(PRESETS[name].row)
    if settings.regulariser.kind != "none":
        return
    rows = [(1.0, [1.0, 0.9]), (-1.0, [1.0, 1.1, 0.95, 1.0, 1.0])]
    batch = with_policies(batch_of(rows), proximal=[1.0] * 7)
    got = objective(batch, settings, 16, bounds_of([batch], settings))
    (gradient,) = torch.autograd.grad(got.loss_sum / got.denominator, batch.logp_T)
    names = {"tokens": 7, "responses": 2, "max_new_tokens": 16}
    over = [eval(line(settings)[2], {}, {**names, "n": len(row)}) for _, row in rows for _ in row]
    assert got.coefficient_T.abs().sum() > 0
    torch.testing.assert_close(gradient, -got.coefficient_T / torch.tensor(over))
