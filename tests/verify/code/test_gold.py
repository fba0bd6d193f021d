import json
import signal
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.verify.code.confine import allowed_calls
from tasks.verify.code.gold import read_gold, same_text, same_value
from tasks.verify.code.launcher import pack, unpack
from tests.verify.helpers import asserts, calls

LONGEST, IMPORTS = 1 << 20, "import math, os.path, cmath as c"
SETUP = f"{IMPORTS}\nfound = [2]\nfound.append(3)\ndef reference(x):\n    return found[x]"
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=12,
) | st.sets(st.integers() | st.tuples(st.text(), st.booleans()) | st.frozensets(st.text()))


def asked(gold):
    """The mode of every test that calls functions, and what its program is asked."""
    return [(test.mode, json.loads(test.given)) for test in read_gold(gold, LONGEST)]


@pytest.mark.parametrize(
    "gold",
    [calls("add", ([[2, 3], "a"], [5])), '{"fn_name": "add", "inputs": ["[2, 3]\\n\\"a\\""], "outputs": ["[5]"]}'],
    ids=["ours", "LiveCodeBench's"],
)
def test_tests_that_call_a_function(gold):
    assert asked(gold) == [("call", {"call": "add", "arguments": [[2, 3], "a"]})]
    assert asked(calls("f", ([{"1": {"a": 2}}], 3)))[0][1]["arguments"] == [{"dict": [[1, {"dict": [["a", 2]]}]]}]
    assert read_gold('{"inputs": [["2", "3"]], "outputs": [["5"]]}', LONGEST)[0].given == b"2\n3"
    (test,) = read_gold(gold, LONGEST)
    assert [test.holds(output, 0.0, None) for output in (b'[{"tuple": [5]}]', b"[[6]]")] == [True, False]


@pytest.mark.parametrize(
    ("line", "functions", "expressions", "check"),
    [
        ("assert not A.f(2)", ["A"], ["A.f(2)"], "assert not value_0"),
        ("assert f(g(2), [1]) == (1, 2), 'why'", ["f", "g"], ["f(g(2), [1])"], "assert value_0 == (1, 2), 'why'"),
        ("assert set(f(2)) == set(f(3))", ["f"], ["f(2)", "f(3)"], "assert set(value_0) == set(value_1)"),
        ("assert math.isclose(f(2), 3, rel_tol=0.1)", ["f"], ["f(2)"], "assert math.isclose(value_0, 3, rel_tol=0.1)"),
        ("assert Solution().f(2).x == 3", ["Solution"], ["Solution().f(2).x"], "assert value_0 == 3"),
        ("assert c.sin(os.path.join('', f('a')))", ["f"], ["f('a')"], "assert c.sin(os.path.join('', value_0))"),
        ("assert sum(10, 15) == 6", ["sum"], ["sum(10, 15)"], "assert value_0 == 6"),  # a program's own sum
        # Modules that are always there are not the program's, whatever functions it has.
        ("assert copy(math.pi) == 2", ["copy"], ["copy(math.pi)"], "assert value_0 == 2"),
        ("assert operator.neg(f(math.floor(2)))", ["f"], ["f(math.floor(2))"], "assert operator.neg(value_0)"),
    ],
)
def test_an_assertion_is_cut_in_two(line, functions, expressions, check):
    gold = asserts(line, setup=SETUP)
    assert asked(gold) == [("call", {"setup": IMPORTS, "functions": functions, "expressions": expressions})]
    (test,) = read_gold(gold, LONGEST)
    ran, output = [], json.dumps([1] * len(expressions)).encode()
    assert test.holds(output, 0.0, lambda *given: ran.append(given) or b"")
    assert ran == [(f"{IMPORTS}\n{check}", "check", output)]
    assert not test.holds(output, 0.0, lambda *_: None)
    assert not test.holds(b"[]", 0.0, lambda *_: b"")


@pytest.mark.parametrize(
    ("gold", "why"),
    [
        ("{", "Expecting"),
        ("[" * 100_000, "nested too deeply"),
        ('{"inputs": "1", "outputs": ["2"]}', "lists of the same length"),
        ('{"inputs": ["1"], "outputs": "2"}', "lists of the same length"),
        ('{"inputs": [], "outputs": []}', "no tests"),
        ('{"inputs": ["1"], "outputs": []}', "lists of the same length"),
        ('{"inputs": ["1"], "outputs": [2]}', "must be texts"),
        (json.dumps({"inputs": ["\ud83d"], "outputs": ["2"]}), "can't encode"),
        ('{"inputs": [[1]], "outputs": [2], "fn_name": 3}', "not a name"),
        ('{"inputs": ["1"], "outputs": [2], "fn_name": "f"}', "not a list of arguments"),
        ('{"inputs": ["x"], "outputs": ["2"], "fn_name": "f"}', "Expecting value"),
        ('{"asserts": "assert f(1)"}', "list of texts"),
        ('{"asserts": [1]}', "list of texts"),
        ('{"asserts": ["assert f(1)"], "setup": 1}', "setup a text"),
        (asserts("assert f(1); print(f(2))"), "not one assertion"),
        (asserts("f(1) == 2"), "not one assertion"),
        (asserts("assert 1 == 1"), "calls no function"),
        (asserts("assert f(1"), "was never closed"),
        (asserts("assert all(f(x) == x for x in [1, 2])"), "a name that the assertion binds"),
        (asserts("assert all(map(lambda x: f(x) == x, [1, 2]))"), "a name that the assertion binds"),
        (asserts("assert f(1) == Color.RED", setup="import math"), "uses Color"),
        (json.dumps({"inputs": ["1"], "outputs": ["x" * (LONGEST + 1)]}), "longer than"),
    ],
)
def test_unreadable_gold_answers_say_why(gold, why):
    with pytest.raises((ValueError, SyntaxError), match=why):
        read_gold(gold, LONGEST)


def test_what_takes_long_to_read_is_not_read_to_the_end(monkeypatch):
    """All these numbers have the hash 0, so that every one is compared with all before it."""
    monkeypatch.setattr("tasks.verify.code.gold.READING_SECONDS", 0.2)
    output = json.dumps([{"set": [number * (2**61 - 1) for number in range(30_000)]}]).encode()
    before, began = signal.getsignal(signal.SIGPROF), time.process_time()
    tests = [test for gold in (calls("f", ([], [1, 2])), asserts("assert f()")) for test in read_gold(gold, LONGEST)]
    for test in tests:
        with pytest.raises(ValueError, match=r"not read within 0\.2 s"):
            test.holds(output, 0.0, None)
    assert time.process_time() - began < 2
    assert signal.getsignal(signal.SIGPROF) == before
    assert signal.getitimer(signal.ITIMER_PROF)[0] == 0
    assert tests[0].holds(b'[{"tuple": [1, 2]}]', 0.0, None)


@pytest.mark.parametrize(
    ("machine", "header"), [("x86_64", "x86_64-linux-gnu/asm/unistd_64.h"), ("aarch64", "asm-generic/unistd.h")]
)
def test_numbers_of_system_calls_are_those_of_the_kernel(machine, header):
    path = Path("/usr/include", header)
    if not path.exists():
        pytest.skip(f"{path} is missing: install linux-libc-dev")
    words = [line.split() for line in path.read_text().splitlines() if line.startswith("#define __NR")]
    known = {word[1].split("_", 3)[3]: int(word[2]) for word in words if len(word) > 2 and word[2].isdigit()}
    known.setdefault("newfstatat", known.get("fstatat"))
    allowed = allowed_calls(machine)
    assert {name: known[name] for name in allowed} == allowed
    assert len(set(allowed.values())) == len(allowed) > 80


@pytest.mark.parametrize(
    ("expected", "given_text", "same"),
    [
        ("5\n", "5", True),
        ("1 2\n3\n", "1  2\n3", True),
        ("1 2\n3\n", "1 2 3", False),  # lines count
        ("1\n\n2", "1\n2", False),  # also empty ones
        ("", "\n", True),
        ("5", "5.0", True),  # by value, as in LiveCodeBench
        ("5", "5.0000001", False),  # a whole number is exact
        ("50000000000000000", "50000000000000001", False),
        ("0.5", "0.5000004", True),
        ("0.5", "0.500002", False),
        ("0.5", "0.499998", False),
        ("0.0", "0.0000005", True),
        ("1e9", "1000000500", True),
        ("1e9", "1000002000", False),
        ("Case 1: 0.25", "Case 1: 0.2500000001", True),
        ("0.5", "nan", False),
        ("0.5", "1e999", False),
        ("1e400", "1e500", False),
        ("1e400", "10e399", True),
        ("0.5", "1e99999999999999999999", False),
        ("5", "0_5", False),
    ],
)
def test_texts_are_compared_by_lines_and_numbers_by_value(expected, given_text, same):
    assert same_text(expected, given_text, 1e-6) is same
    assert not same_text("0.5", "0.50000000001", 0)
    assert not same_text("0.1", "0.1000000000000000055", 0)  # the same float, and another number


def test_a_long_line_that_is_nearly_a_number_is_compared_at_once():
    before = time.process_time()
    assert not same_text("5", "1" * 10**6 + "x", 0)
    assert not same_text("1" * 10**6 + "x", "1" * 10**6, 0)
    assert time.process_time() - before < 5


@pytest.mark.parametrize(
    ("expected", "given_value", "same"),
    [
        ([1, 2], (1, 2), True),
        (1.5, 10**400, False),
        ([1, 2], {1, 2}, False),
        ([{"a": 1.0, "2": 1}], [{"a": 1.0000000001, 2: 1}], True),
        ([[0.1]], [[0.1 + 1e-5]], False),
        (5, 5.0, True),
        (1e9, 1000000500, True),
        (5, 5.0000001, False),
        (None, 0, False),
        (0.5, "0.5", False),
        ({"a": 1.0}, {"a": 1.1}, False),
        ({"a": 1}, {"b": 1}, False),
        ({"1": 1}, {1: 1, "1": 1}, False),
        ({"a": 1}, [["a", 1]], False),
    ],
)
def test_values_are_compared_by_type_and_within_the_tolerance(expected, given_value, same):
    assert same_value(expected, given_value, 1e-6) is same


@given(PLAIN)
def test_values_of_plain_types_come_back(value):
    back = unpack(json.loads(json.dumps(pack(value))))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize("packed", [{"x": []}, {"set": [[1]]}, {"Fraction": "1"}, {"tuple": 1}, {}, {"a": 1, "b": 2}])
def test_unpack_refuses_other_values(packed):
    with pytest.raises((ValueError, TypeError)):
        unpack(packed)
