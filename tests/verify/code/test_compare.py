import json
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.verify.code.compare import same_text, same_value
from tasks.verify.code.values import pack, unpack


@pytest.mark.parametrize(
    ("expected", "given_text", "same"),
    [
        ("5\n", "5", True),
        ("5", "5 \n\n", True),
        ("1 2\n3\n", "1  2\n3", True),
        ("1 2\n3\n", "1 2 3", False),  # lines count
        ("1\n\n2", "1\n2", False),  # also empty ones
        ("5", "6", False),
        ("5", "", False),
        ("", "\n", True),
        ("YES", "yes", False),
        ("5", "5.0", True),  # by value, as in LiveCodeBench
        ("5", "05", True),
        ("5", "5.0000001", False),  # a whole number is exact
        ("50000000000000000", "50000000000000001", False),
        ("0.5", "0.5000004", True),
        ("0.5", "0.500002", False),
        ("1e9", "1000000500", True),
        ("1e9", "1000002000", False),
        ("Case 1: 0.25", "Case 1: 0.2500000001", True),
        ("0.5", "1/2", False),
        ("0.5", "nan", False),
        ("0.5", "1e999", False),
        ("0.5", "1e99999999999999999999", False),
        ("0.5", "0_5", False),
    ],
)
def test_texts(expected, given_text, same):
    assert same_text(expected, given_text, 1e-6) is same


def test_a_long_line_that_is_nearly_a_number_is_compared_at_once():
    before = time.process_time()
    assert not same_text("5", "1" * 10**6 + "x", 0)
    assert not same_text("1" * 10**6 + "x", "1" * 10**6, 0)
    assert time.process_time() - before < 5


def test_without_a_tolerance_values_are_compared():
    assert same_text("0.50", "0.5", 0)
    assert not same_text("0.5", "0.50000000001", 0)


@pytest.mark.parametrize(
    ("expected", "given_value", "same"),
    [
        ([1, 2], (1, 2), True),
        (1.5, 10**400, False),
        ([1, 2], [1, 2, 3], False),
        ([1, 2], {1, 2}, False),
        ([[0.1]], [[0.1 + 1e-9]], True),
        ([[0.1]], [[0.1 + 1e-5]], False),
        (5, 5.0, True),
        (5, 5.0000001, False),
        (5.0, 5, True),
        (True, True, True),
        (True, False, False),
        (None, None, True),
        (None, 0, False),
        ("a", "a", True),
        (0.5, "0.5", False),
        ({"a": 1.0}, {"a": 1.0000000001}, True),
        ({"a": 1}, {"b": 1}, False),
        ({"a": 1}, [["a", 1]], False),
    ],
)
def test_values(expected, given_value, same):
    assert same_value(expected, given_value, 1e-6) is same


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=12,
) | st.sets(st.integers() | st.tuples(st.text(), st.booleans()))


@given(PLAIN)
def test_values_of_plain_types_come_back(value):
    back = unpack(json.loads(json.dumps(pack(value))))
    assert back == value
    assert type(back) is type(value)


@given(PLAIN.filter(lambda value: not isinstance(value, set)))
def test_what_json_says_equals_itself(value):
    expected = json.loads(json.dumps(value))
    assert same_value(expected, json.loads(json.dumps(value)), 0)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(-1e-7, 1e-7))
def test_the_tolerance_holds_on_both_sides(value, share):
    off = value * (1 + share)
    if math.isfinite(off):
        assert same_value(value, off, 1e-6)
        assert same_text(repr(float(value)), repr(off), 1e-6)


@pytest.mark.parametrize("packed", [{"what": []}, {"set": [[1]]}, {"dict": [1]}, {"tuple": 1}, {}, {"a": 1, "b": 2}])
def test_what_was_not_packed_is_refused(packed):
    with pytest.raises((ValueError, TypeError)):
        unpack(packed)


def test_other_types_are_refused():
    with pytest.raises(TypeError, match="object is no plain type"):
        pack([object()])
