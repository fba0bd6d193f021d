"""Intervals and paired tests against what scipy and closed forms say."""

import tracemalloc

import numpy as np
import pytest
from scipy import stats

from tasks.evaluate import statistics
from tasks.evaluate.statistics import DIFFERENCES, Extremes, bootstrap_p, draws, interval
from tools.benchmarks import coverage


@pytest.mark.parametrize(("correct", "problems"), [(0, 1), (0, 3), (1, 1), (1, 30), (8, 10), (150, 500), (500, 500)])
def test_the_interval_of_shares_is_that_of_clopper_and_pearson(correct: int, problems: int) -> None:
    got = interval([{"": np.array([[1.0] * correct + [0.0] * (problems - correct)])}])
    exact = stats.binomtest(correct, problems).proportion_ci(0.95, method="exact")
    assert (got.low, got.high) == pytest.approx((exact.low, exact.high), abs=0.008)


def test_means_of_seeds_have_a_t_distribution() -> None:
    means = np.array([0.50, 0.51, 0.53, 0.54])
    got = interval([{"": np.repeat(means[:, None], 100_000, axis=1)}])
    low, high = stats.t.interval(0.95, 3, means.mean(), means.std(ddof=1) / np.sqrt(4))
    assert (got.low, got.high) == pytest.approx((low, high), abs=0.003)
    apart = interval([{"": np.repeat([[0.2], [0.5], [0.8]], 1000, axis=1)}])
    assert (apart.low, apart.high) == (0, 1)


@pytest.mark.parametrize("extremes", [statistics.SHARES, DIFFERENCES])
@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_no_interval_is_without_width_or_exceeds_the_extremes(seeds: int, extremes: Extremes) -> None:
    for value in (*extremes, 0.5):
        got = interval([{"": np.full((seeds, 7), value)}], extremes)
        assert extremes[0] <= got.low <= value <= got.high <= extremes[1]
        assert got.high - got.low > 0.3


def test_problems_are_resampled_within_their_benchmark() -> None:
    certain, spread = np.ones((1, 500)), np.array([[0.0, 1.0] * 25])
    alone, beside = interval([{"b": spread}]), interval([{"a": certain, "b": spread}])
    assert beside.high - beside.low == pytest.approx((alone.high - alone.low) / 2, rel=0.1)


def test_the_interval_of_many_problems_is_that_of_their_mean_and_takes_bounded_memory() -> None:
    correct_SP = np.random.default_rng(0).random((1, 10_000))
    tracemalloc.start()
    got = interval([{"": correct_SP}])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 250 * 2**20  # 10,000 draws of 10,000 weights and their products would be 1526 MiB
    error = 1.96 * correct_SP.std() / 100
    assert got.value == correct_SP.mean()
    assert (got.low, got.high) == pytest.approx((got.value - error, got.value + error), abs=0.1 * error)


def test_with_equal_differences_p_is_that_of_a_sign_test() -> None:
    for pairs in (3, 8):
        p = bootstrap_p(draws([{"": np.ones((1, pairs))}], DIFFERENCES))
        assert p == pytest.approx(stats.binomtest(pairs, pairs).pvalue, rel=0.2)
    assert bootstrap_p(draws([{"": np.ones((1, 99))}], DIFFERENCES)) == pytest.approx(2 / 10_001)


@pytest.mark.parametrize(
    "cell",
    [
        coverage.one_policy("equal", 0.1, 1, 8),
        coverage.one_policy("few at 1/2", 0.03, 30, 4),
        coverage.two_benchmarks("few at 1/2", 0.03, 10, 4),
        coverage.of_seeds(3, 0.5, 30, 0.05, False),
        coverage.of_seeds(3, 0.5, 30, 0.05, True),
    ],
    ids=lambda cell: f"{cell.kind}, {cell.problems}, {cell.case}",
)
def test_intervals_of_means_cover_the_truth(cell: coverage.Cell) -> None:
    """A few cells of what ``python -m tools.benchmarks.coverage`` looks at."""
    assert cell.coverage(60) >= 0.93


def test_holm_adjustment_worked_numbers() -> None:
    assert statistics.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert statistics.holm([0.6, 0.9]) == [1.0, 1.0]
    assert statistics.holm([]) == []


def test_a_seed_is_drawn_for_all_benchmarks_of_a_model_at_once() -> None:
    """Seeds that are good on one benchmark and as bad on the other leave no spread; independent draws would."""
    good = np.repeat([[0.2], [0.5], [0.8]], 50, axis=1)
    together, apart = interval([{"a": good, "b": 1 - good}]), interval([{"a": good}, {"b": 1 - good}])
    assert together.high - together.low < 0.1
    assert apart.high - apart.low > 0.5


def test_problems_are_drawn_for_all_models_at_once() -> None:
    """Five models that differ alike on the same problems say no more than one of them."""
    difference_SP = np.random.default_rng(4).uniform(-1, 1, (1, 300))
    one, five = (draws([{"a": difference_SP}] * count, DIFFERENCES) for count in (1, 5))
    assert np.std(five.low_D) == pytest.approx(np.std(one.low_D), rel=0.05)
    apart = draws([{name: difference_SP} for name in "abcde"], DIFFERENCES)
    assert np.std(apart.low_D) == pytest.approx(np.std(one.low_D) / np.sqrt(5), rel=0.05)


def test_p_of_the_bootstrap_is_that_of_a_t_test_on_many_problems() -> None:
    random = np.random.default_rng(5)
    values_SP = np.clip(random.normal(0.02, 0.2, (1, 1000)), -1, 1)
    values_SP += 0.012 - values_SP.mean()
    expected = stats.ttest_1samp(values_SP[0], 0).pvalue
    found = bootstrap_p(draws([{"a": values_SP}], DIFFERENCES))
    assert expected - 0.005 < found < expected + 0.03  # it allows for one more problem at the end of the range
    assert bootstrap_p(draws([{"a": values_SP - values_SP.mean()}], DIFFERENCES)) > 0.9


def test_equivalence_is_found_for_small_differences_alone() -> None:
    random = np.random.default_rng(6)
    near, wide = random.normal(0, 0.05, (1, 400)), random.choice([-1, 1], (1, 400))
    assert statistics.equivalence_p(draws([{"a": near}], DIFFERENCES), 0.02) < 0.001
    # Not different, and not shown to be equal either.
    assert statistics.equivalence_p(draws([{"a": wide}], DIFFERENCES), 0.02) > 0.2
    assert statistics.equivalence_p(draws([{"a": near + 0.1}], DIFFERENCES), 0.02) == 1


def test_effect_sizes_worked_numbers() -> None:
    difference_N = np.array([1.0, 2.0, -3.0, 4.0, 0.0])
    assert statistics.cohen_dz(difference_N / 10) == pytest.approx(0.8 / np.sqrt((30 - 5 * 0.8**2) / 4))
    assert statistics.rank_biserial(difference_N) == pytest.approx((1 + 2 - 3 + 4) / 10)
    assert statistics.rank_biserial(np.array([1.0, 1.0, -1.0, 2.0])) == pytest.approx((2 + 2 - 2 + 4) / 10)
    assert statistics.rank_biserial(np.zeros(3)) is None
    tenths = [[0.1, 0.2, 0.3, -0.4], [-0.4, 0.1, 0.2, 0.3], [0.1, 0.2, -0.4, 0.3]]
    assert statistics.cohen_dz(statistics.run_means([{"easy": np.array(tenths)}])) is None


def test_signed_rank_p_is_that_of_scipy_and_needs_six_pairs() -> None:
    difference_N = np.array([0.01, 0.02, 0.03, -0.005, 0.04, 0.06])
    assert statistics.signed_rank_p(difference_N) == pytest.approx(stats.wilcoxon(difference_N).pvalue)
    assert statistics.signed_rank_p(np.abs([*difference_N, 0])) == pytest.approx(2 / 2**6)
    assert statistics.signed_rank_p(difference_N[:5]) is None
    assert statistics.signed_rank_p(np.zeros(6)) == 1.0
