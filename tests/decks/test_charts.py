import numpy as np
import pytest

from tasks.decks.charts import Bar, bars, curve, histogram

NAN = float("nan")


def test_a_curve_by_hand():
    drawn = curve("entropy", np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0]))
    assert drawn.path == "M4.0 68.0L120.0 4.0L236.0 36.0"
    assert (drawn.low, drawn.high, drawn.last) == ("1", "3", "2")


def test_a_curve_from_zero():
    drawn = curve("reward", np.array([1.0, 2.0]), np.array([0.5, 1.0]), from_zero=True)
    assert drawn.path == "M4.0 36.0L236.0 4.0"
    assert (drawn.low, drawn.high) == ("0", "1")


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ([NAN, 0.5, NAN], "M120.0 68.0h0"),
        ([0.0, 0.0, 0.0], "M4.0 68.0L120.0 68.0L236.0 68.0"),
        ([1.0, NAN, 2.0], "M4.0 68.0L236.0 4.0"),
        ([1.0, float("inf"), 2.0], "M4.0 68.0L236.0 4.0"),
    ],
    ids=["one value", "constant", "a gap", "infinite"],
)
def test_curves_of_little(values, path):
    assert curve("x", np.arange(3.0), np.array(values)).path == path


@pytest.mark.parametrize("values", [[], [NAN, NAN]])
def test_nothing_known_is_no_curve(values):
    assert curve("x", np.arange(float(len(values))), np.array(values)) is None


def test_a_long_curve_stays_small():
    drawn = curve("x", np.arange(10_000.0), np.sin(np.arange(10_000.0)))
    assert drawn.path.count("L") < 120
    assert len(drawn.path) < 2500


def test_bars_by_hand():
    assert bars({"correct": 3, "wrong": 1500}) == [Bar("correct", "3", 0.002), Bar("wrong", "1,500", 1.0)]
    assert bars({"none": 0}) == [Bar("none", "0", 0.0)]
    assert bars({}) == []


def test_a_histogram_by_hand():
    assert histogram([0, 1, 1, 3]) == {"0": 1, "1": 2, "2": 0, "3": 1}
    assert histogram([5, 23], bins=4) == {"0 to 5": 1, "6 to 11": 0, "12 to 17": 0, "18 to 23": 1}
    assert histogram([]) == {"0": 0}


@pytest.mark.parametrize("longest", [0, 1, 11, 12, 13, 100, 1023, 1024, 8192])
def test_a_histogram_counts_everything(longest):
    lengths = list(range(longest + 1))
    counted = histogram(lengths)
    assert sum(counted.values()) == len(lengths)
    assert len(counted) <= 13
