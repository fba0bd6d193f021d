"""Intervals that are found over a whole update (M2PO, BAPO): by hand, by a plain loop, and across processes."""

import math
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tasks.errors import ArtifactError
from tasks.settings import ObjectiveSettings
from tasks.train import distributed
from tasks.train.bounds import Bounds, update_bounds
from tests.train.batches import bounds_of
from tests.train.test_objective import Response, batch_of, close, preset, steady
from tests.train.together import run_in_group

E = math.e
UNBOUNDED = Bounds(0.0, math.inf)
# Squares of these are exact, and no mean of sixteen of them is 0.04 or 0.11.
eighths = st.sampled_from([0.125, 0.25, 0.375, 0.5, 1.0])
signs = st.sampled_from([-1.0, 1.0])
harmful = st.lists(st.tuples(eighths, signs), max_size=12)
harmless = st.lists(st.tuples(eighths.map(lambda log: -log), st.sampled_from([-1.0, 0.0, 1.0])), max_size=4)
# A 64th off the eighths, so that no ratio is on an end of an interval.
fractions = st.integers(0, 30).map(lambda n: Fraction(n, 8) + Fraction(1, 64))
quarters = st.integers(-4, 4).map(lambda n: Fraction(n, 4))
BALANCE: list[Response] = [(1.0, [1.5, 0.5]), (-1.0, [0.3, 0.3, 1.0, 1.0])]


def m2po(**second_moment: Any) -> ObjectiveSettings:
    return preset("m2po", gate={"second_moment": second_moment})


def bapo(low: float = 0.6, high: float = 1.2, **balance: Any) -> ObjectiveSettings:
    return preset("bapo", gate={"low": low, "high": high, "balance": balance})


def test_a_mean_that_is_over_its_threshold_by_rounding_alone_is_bounded_too() -> None:
    generator = torch.Generator().manual_seed(0)
    for size in range(20, 60):
        log_ratio_N = torch.rand(size, generator=generator, dtype=torch.float64)
        moment = float((log_ratio_N**2).mean())
        for threshold in (math.nextafter(moment, 0), moment, math.nextafter(moment, 1)):
            for form in ("winsorize", "drop"):
                gate = m2po(form=form, threshold=threshold).gate
                low, high = update_bounds(log_ratio_N, torch.ones(size), gate)
                assert low < 1 < high
    exact = update_bounds(torch.tensor([0.5, 1.0]), torch.ones(2), m2po(form="drop", threshold=0.25).gate)
    assert exact.high == close(math.exp(math.sqrt(0.625))), "a mean that is equal to its threshold is kept"


@steady
@given(harmful, harmless, st.booleans(), st.sampled_from([0.04, 0.11]))
def test_the_second_moments_interval_is_the_widest_that_a_loop_finds(
    harmful: list[tuple[float, float]], harmless: list[tuple[float, float]], harmful_only: bool, threshold: float
) -> None:
    tokens = [(log * sign, sign) for log, sign in harmful + harmless]
    log_ratio_N, advantage_N = torch.tensor(tokens, dtype=torch.float64).reshape(-1, 2).unbind(1)
    squares = sorted(log * log for log, _ in (tokens[: len(harmful)] if harmful_only else tokens))
    capped = [mean(min(square, cap) for square in squares) for cap in squares]
    kept = [mean(square for square in squares if square <= most) for most in squares]
    winsorised, dropped = (
        update_bounds(log_ratio_N, advantage_N, m2po(form=form, harmful_only=harmful_only, threshold=threshold).gate)
        for form in ("winsorize", "drop")
    )
    if not squares or capped[-1] <= threshold:
        assert winsorised == dropped == UNBOUNDED
        return
    cap = max([0.0, *(square for square, moment in zip(squares, capped, strict=True) if moment < threshold)])
    assert winsorised == close((E ** -math.sqrt(cap), E ** math.sqrt(cap)))
    most = max([0.0, *(square for square, moment in zip(squares, kept, strict=True) if moment <= threshold)])
    following = min(square for square in squares if square > most)
    assert most <= math.log(dropped.high) ** 2 < following
    assert dropped.low == close(1 / dropped.high)


@pytest.mark.parametrize(
    ("over", "interval"),
    [
        # 1.7 / 3.2 = .53125 at the start, 1.7 / 3.6 = .4722 once low is .8, 1.95 / 3.6 = .5417 at high 1.45, and
        # 2.0 / 3.6 = .5556 from high 1.5 on.
        ({}, (0.8, 2.0)),
        ({"target": 0.5312}, (0.6, 1.2)),
        ({"target": 0.5313}, (0.8, 1.45)),
        ({"low": 0.8, "target": 0.4722}, (0.8, 1.2)),
        # It stops at its maxima, whatever the step.
        ({"low_max": 0.62, "high_max": 1.27}, (0.62, 1.27)),
        ({"low_max": 0.6, "high_max": 1.2}, (0.6, 1.2)),
    ],
)
def test_balance_worked_numbers(over: dict[str, Any], interval: tuple[float, float]) -> None:
    assert bounds_of([batch_of(BALANCE)], bapo(**over)) == close(interval)


@steady
@given(st.lists(st.tuples(fractions, quarters), max_size=10), st.sampled_from(["code", "gradient"]))
def test_balance_is_what_a_loop_over_exact_fractions_gives(rows: list[tuple[Fraction, Fraction]], form: str) -> None:
    low, high, step, target = Fraction("0.6"), Fraction("1.2"), Fraction("0.05"), Fraction("0.973")

    def enough() -> bool:
        if form == "code":
            positive = sum(min(r, high) * a for r, a in rows if a >= 0)
            negative = sum(max(r, low) * -a for r, a in rows if a < 0)
        else:
            positive = sum(r * a for r, a in rows if a >= 0 and r <= high)
            negative = sum(r * -a for r, a in rows if a < 0 and r >= low)
        return positive >= target * negative

    while low < Fraction("0.8") and not enough():
        low += step
    while high < 2 and not enough():
        high += step
    log_ratio_N = torch.tensor([float(r) for r, _ in rows], dtype=torch.float64).log()
    advantage_N = torch.tensor([float(a) for _, a in rows], dtype=torch.float64)
    got = update_bounds(log_ratio_N, advantage_N, bapo(statistic=form, target=float(target)).gate)
    assert got == close((float(low), float(high)))


ALL = [m2po(), m2po(form="drop"), m2po(harmful_only=False), bapo(), bapo(statistic="gradient")]


def shares(count: int, cut: int) -> tuple[Tensor, Tensor, int]:
    """Log-ratios and advantages of an update, and how many of its tokens the first process has."""
    columns = torch.randn(2, count, generator=torch.Generator().manual_seed(count))
    return 0.4 * columns[0], columns[1].sign(), cut


UPDATES = [shares(7, 5), shares(7, 7), shares(40, 1), shares(3, 0), shares(0, 0)]


def find(out: Path) -> None:
    """What a process of a distributed trainer finds, written to a file of its own."""
    intervals, rows = [], []
    for log_ratio_N, advantage_N, cut in UPDATES:
        mine = slice(0, cut) if distributed.rank() == 0 else slice(cut, None)
        intervals.append([tuple(update_bounds(log_ratio_N[mine], advantage_N[mine], one.gate)) for one in ALL])
        rows.append(torch.cat(distributed.all_gather(log_ratio_N[mine])))
    torch.save((intervals, rows), out / f"{distributed.rank()}.pt")
    assert distributed.all_reduce_sum(torch.ones(2, 2**20)).eq(2).all()
    found = distributed.rank() == 0 or None
    unlike = pytest.raises(ArtifactError, match="train 4: process 1 does not find what the leader found")
    with nullcontext() if found else unlike:
        assert distributed.find_on_all_ranks("train", 4, lambda: found)


@pytest.mark.whole
def test_two_processes_find_the_interval_of_one_that_has_all_tokens(tmp_path: Path) -> None:
    run_in_group(2, tmp_path / "meeting", find, tmp_path)
    alone = [
        [tuple(update_bounds(log_ratio_N, advantage_N, settings.gate)) for settings in ALL]
        for log_ratio_N, advantage_N, _ in UPDATES
    ]
    assert len({interval for row in alone for interval in row}) > 7
    for rank in range(2):
        intervals, rows = torch.load(tmp_path / f"{rank}.pt")
        assert intervals == alone
        assert all(torch.equal(got, log_ratio_N) for got, (log_ratio_N, _, _) in zip(rows, UPDATES, strict=True))
