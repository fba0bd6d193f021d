"""Intervals and paired tests against what scipy and closed forms say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy import stats

from tasks.statistics import (
    bootstrap_p,
    cohen_dz,
    draws,
    equivalence_p,
    holm,
    interval,
    interval_of,
    mean,
    rank_biserial,
    run_means,
    signed_rank_p,
)


def test_an_interval_of_one_seed_is_that_of_its_problems() -> None:
    accuracy_SP = (np.random.default_rng(1).random((1, 400)) < 0.3).astype(float)
    got = interval(accuracy_SP)
    width = 1.96 * accuracy_SP.std() / np.sqrt(400)
    assert got.value == accuracy_SP.mean()
    assert got.low == pytest.approx(got.value - width, abs=0.006)
    assert got.high == pytest.approx(got.value + width, abs=0.006)


def test_seeds_that_differ_widen_the_interval() -> None:
    same, apart = np.full((3, 100), 0.5), np.repeat([[0.2], [0.5], [0.8]], 100, axis=1)
    assert (interval(same).low, interval(same).high) == pytest.approx((0.5, 0.5))
    assert interval(apart).low <= 0.31
    assert interval(apart).high >= 0.69


def test_an_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(3)
    found = []
    for _ in range(30):
        level = np.clip(random.normal(0.5, 0.02, (12, 1)) + random.normal(0, 0.2, (1, 100)), 0, 1)
        drawn = interval((random.random((12, 100)) < level).astype(float))
        found.append(drawn.low <= 0.5 <= drawn.high)
    assert np.mean(found) > 0.8


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@hypothesis_settings(deadline=None, derandomize=True)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_keeps_the_order_and_lies_between_raw_and_bonferroni(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    for raw, more in zip(p_values, adjusted, strict=True):
        assert raw <= more <= min(1.0, len(p_values) * raw) + 1e-12
    order = np.argsort(p_values, kind="stable")
    assert all(a <= b + 1e-12 for a, b in zip(np.array(adjusted)[order], np.array(adjusted)[order][1:], strict=False))


def test_the_mean_gives_models_and_benchmarks_the_same_weight() -> None:
    one, other = np.full((2, 10), 0.2), np.full((2, 1000), 0.8)
    assert mean([{"a": one, "b": other}]) == pytest.approx(0.5)
    assert mean([{"a": one, "b": one, "c": one}, {"b": other}]) == pytest.approx(0.5)
    assert interval_of([{"a": one, "b": other}]).low == pytest.approx(0.5)


def test_a_seed_is_drawn_for_all_benchmarks_of_a_model_at_once() -> None:
    """Seeds that are good on one benchmark and as bad on the other leave no spread; independent draws would."""
    good = np.repeat([[0.2], [0.5], [0.8]], 50, axis=1)
    assert np.ptp(draws([{"a": good, "b": 1 - good}])) == pytest.approx(0, abs=1e-12)
    assert np.ptp(draws([{"a": good}, {"b": 1 - good}])) > 0.3


def test_problems_are_drawn_for_all_models_at_once() -> None:
    """Five models that differ alike on the same problems say no more than one of them."""
    difference_SP = np.random.default_rng(4).normal(0, 0.3, (1, 30))
    one, five = (draws([{"a": difference_SP}] * count) for count in (1, 5))
    assert np.std(five) == pytest.approx(np.std(one), rel=0.05)
    apart = draws([{name: difference_SP} for name in "abcde"])
    assert np.std(apart) == pytest.approx(np.std(one) / np.sqrt(5), rel=0.05)


def test_a_run_is_one_pair_however_many_benchmarks_it_was_measured_on() -> None:
    first, second = np.array([[0.0, 0.2], [0.4, 0.4]]), np.array([[0.3], [0.6]])
    assert run_means([{"a": first, "b": second}, {"b": second}]) == pytest.approx([0.2, 0.5, 0.3, 0.6])


def test_arms_that_are_alike_are_seldom_told_apart_when_runs_differ() -> None:
    """Three runs of each, a point apart; a test over problems alone would find a difference in 10 % of the cases."""
    random, found = np.random.default_rng(8), []
    for _ in range(200):
        level_SP = np.clip(0.5 + random.normal(0, 0.2, (1, 100)) + random.normal(0, 0.01, (2, 3, 1)), 0, 1)
        one, other = random.binomial(4, level_SP) / 4
        found.append(bootstrap_p(draws([{"": one - other}])) < 0.05)
    assert np.mean(found) < 0.06


def test_p_of_the_bootstrap_is_that_of_a_t_test_on_many_problems() -> None:
    random = np.random.default_rng(5)
    values_SP = random.normal(0.02, 0.2, (1, 500))
    expected = stats.ttest_1samp(values_SP[0], 0).pvalue
    assert bootstrap_p(draws([{"a": values_SP}])) == pytest.approx(expected, abs=0.01)
    assert bootstrap_p(draws([{"a": values_SP - values_SP.mean()}])) > 0.9


def test_two_one_sided_tests_ask_whether_the_difference_is_small() -> None:
    random = np.random.default_rng(6)
    near, wide = random.normal(0, 0.05, (1, 400)), random.normal(0, 2, (1, 400))
    assert equivalence_p(draws([{"a": near}]), 0.02) < 0.001
    assert equivalence_p(draws([{"a": wide}]), 0.02) > 0.2  # Not different, and not shown to be equal either.
    assert equivalence_p(draws([{"a": near + 0.02}]), 0.02) == pytest.approx(0.5, abs=0.4)
    assert equivalence_p(draws([{"a": near + 0.1}]), 0.02) > 0.999


def test_effect_sizes_by_hand() -> None:
    difference_N = np.array([1.0, 2.0, -3.0, 4.0, 0.0])
    assert cohen_dz(difference_N) == pytest.approx(0.8 / np.sqrt((30 - 5 * 0.8**2) / 4))
    assert rank_biserial(difference_N) == pytest.approx((1 + 2 - 3 + 4) / 10)
    assert rank_biserial(np.array([0.1, 0.3])) == 1
    assert rank_biserial(np.zeros(3)) is None
    assert cohen_dz(np.ones(3)) is None


def test_signed_ranks_over_runs_are_scipys_and_need_six_pairs() -> None:
    difference_N = np.array([0.01, 0.02, 0.03, -0.005, 0.04, 0.06])
    assert signed_rank_p(difference_N) == pytest.approx(stats.wilcoxon(difference_N).pvalue)
    assert signed_rank_p(np.abs(difference_N)) == pytest.approx(2 / 2**6)
    assert signed_rank_p(difference_N[:5]) is None
    assert signed_rank_p(np.zeros(6)) == 1.0
