import json
import signal
import time
from pathlib import Path

import pytest

from tasks.verify.code.calls import known_machines, numbers
from tasks.verify.code.gold import AssertTest, CallTest, TextTest, read_gold
from tests.verify.code.helpers import asserts, calls, texts

LONGEST = 1 << 20


def test_texts():
    assert read_gold(texts(("2 3\n", "5\n"), ("", "0")), LONGEST) == [TextTest("2 3\n", "5\n"), TextTest("", "0")]
    assert read_gold('{"inputs": ["1"], "outputs": ["2"], "fn_name": null}', LONGEST) == [TextTest("1", "2")]


def test_calls_also_as_livecodebench_writes_them():
    expected = [CallTest("add", [[2, 3], "a"], [5])]
    assert read_gold(calls("add", ([[2, 3], "a"], [5])), LONGEST) == expected
    assert read_gold('{"fn_name": "add", "inputs": ["[2, 3]\\n\\"a\\""], "outputs": ["[5]"]}', LONGEST) == expected


@pytest.mark.parametrize(
    ("line", "functions", "expressions", "check"),
    [
        ("assert f(2) == 3", ["f"], ["f(2)"], "assert value_0 == 3"),
        ("assert not f(2)", ["f"], ["f(2)"], "assert not value_0"),
        ("assert f(g(2), [1]) == (1, 2), 'why'", ["f", "g"], ["f(g(2), [1])"], "assert value_0 == (1, 2), 'why'"),
        ("assert abs(f(2) - 3.1) < 1e-3", ["f"], ["f(2)"], "assert abs(value_0 - 3.1) < 0.001"),
        ("assert set(f(2)) == set(f(3))", ["f"], ["f(2)", "f(3)"], "assert set(value_0) == set(value_1)"),
        ("assert math.isclose(f(2), 3, rel_tol=0.1)", ["f"], ["f(2)"], "assert math.isclose(value_0, 3, rel_tol=0.1)"),
        ("assert Solution().f(2) == 3", ["Solution"], ["Solution().f(2)"], "assert value_0 == 3"),
        ("assert ''.join(f('a')) == 'a'", ["f"], ["f('a')"], "assert ''.join(value_0) == 'a'"),
        ("assert sum(10, 15) == 6", ["sum"], ["sum(10, 15)"], "assert value_0 == 6"),  # a program's own sum
        ("assert f(math.pi) == 3", ["f"], ["f(math.pi)"], "assert value_0 == 3"),
    ],
)
def test_an_assertion_is_cut_in_two(line, functions, expressions, check):
    (test,) = read_gold(asserts(line, setup="import math"), LONGEST)
    assert test == AssertTest("import math", functions, expressions, f"import math\n{check}")
    assert json.loads(test.given) == {"setup": "import math", "functions": functions, "expressions": expressions}


def test_modules_that_are_always_there_are_not_the_programs():
    (test,) = read_gold(asserts("assert math.isclose(copy(math.pi), operator.neg(f(2)))"), LONGEST)
    assert test.functions == ["copy", "f"]
    assert test.expressions == ["copy(math.pi)", "f(2)"]
    assert test.check == "\nassert math.isclose(value_0, operator.neg(value_1))"
    (test,) = read_gold(asserts("assert copy(math.floor(2.5)) == 2"), LONGEST)
    assert (test.functions, test.expressions) == (["copy"], ["copy(math.floor(2.5))"])


@pytest.mark.parametrize(
    ("gold", "why"),
    [
        ("42", "no JSON object"),
        ("{", "Expecting"),
        ("", "Expecting"),
        ("[" * 100_000, "nested too deeply"),
        ("{}", "lists of the same length"),
        ('{"inputs": [], "outputs": []}', "no tests"),
        ('{"inputs": ["1"], "outputs": []}', "lists of the same length"),
        ('{"inputs": [1], "outputs": [2]}', "must be texts"),
        ('{"inputs": [[1]], "outputs": [2], "fn_name": 3}', "no name"),
        ('{"inputs": [1], "outputs": [2], "fn_name": "f"}', "no list of arguments"),
        ('{"inputs": ["x"], "outputs": ["2"], "fn_name": "f"}', "Expecting value"),
        ('{"asserts": []}', "no tests"),
        ('{"asserts": "assert f(1)"}', "list of texts"),
        (asserts("f(1) == 2"), "not one assertion"),
        (asserts("assert 1 == 1"), "calls no function"),
        (asserts("assert f(1"), "was never closed"),
        (asserts("assert all(f(x) == x for x in [1, 2])"), "a name of its own"),
        (json.dumps({"inputs": ["1"], "outputs": ["x" * (LONGEST + 1)]}), "longer than"),
    ],
)
def test_what_cannot_be_read_says_why(gold, why):
    with pytest.raises((ValueError, SyntaxError), match=why):
        read_gold(gold, LONGEST)


def test_what_takes_long_to_read_is_not_read_to_the_end(monkeypatch):
    """All these numbers have the hash 0, so that every one is compared with all before it."""
    monkeypatch.setattr("tasks.verify.code.gold.READING_SECONDS", 0.2)
    output = json.dumps([{"set": [number * (2**61 - 1) for number in range(30_000)]}]).encode()
    before, began = signal.getsignal(signal.SIGPROF), time.process_time()
    for test in (CallTest("f", [], [1]), AssertTest("", ["f"], ["f()"], "assert value_0")):
        with pytest.raises(ValueError, match=r"not read within 0\.2 s"):
            test.holds(output, 0.0, None)
    assert time.process_time() - began < 2
    assert signal.getsignal(signal.SIGPROF) == before
    assert signal.getitimer(signal.ITIMER_PROF)[0] == 0
    assert CallTest("f", [], [1, 2]).holds(b'[{"tuple": [1, 2]}]', 0.0, None)


@pytest.mark.parametrize(
    ("machine", "header"),
    [
        ("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        ("aarch64", "/usr/include/asm-generic/unistd.h"),
    ],
)
def test_numbers_of_calls_are_the_kernels(machine, header):
    if not Path(header).exists():
        pytest.skip(f"{header} is missing: install linux-libc-dev")
    words = [line.split() for line in Path(header).read_text().splitlines() if line.startswith("#define __NR")]
    known = {word[1].split("_", 3)[3]: int(word[2]) for word in words if len(word) > 2 and word[2].isdigit()}
    known.setdefault("newfstatat", known.get("fstatat"))
    assert {name: known[name] for name in numbers(machine)} == numbers(machine)
    assert len(numbers(machine)) > 80


def test_a_machine_has_its_own_numbers():
    assert known_machines() == ["x86_64", "aarch64"]
    for machine in known_machines():
        assert len(set(numbers(machine).values())) == len(numbers(machine))
