"""Tests of programs that the verifier runs per second of CPU time, compared with one start of Python per program.

    python -m tools.benchmarks programs

The CPU time is that of all processes that take part, so that other programs of the machine affect it little. The
programs compute almost nothing, so that the benchmark measures the cost of judging them.
"""

import json
import resource
import subprocess
import sys
from contextlib import closing
from functools import partial

from tasks.settings import CodeSettings
from tasks.verify.code.judge import Sandbox, judge_program
from tasks.verify.verdicts import Outcome
from tools.benchmarks.measurement import Measurement, measure_interleaved, ratio

PROGRAMS, TESTS = 100, 10
READING_PROGRAM = "print(sum(map(int, input().split())))"
FUNCTION_PROGRAM = "def add(a, b): return a + b"
NOT_JUDGED = "python -I -c, judged by nobody"


def cases() -> dict[str, tuple[str, str, int]]:
    """Return gold answer, program and number of tests that run, by the name of the case."""
    pairs = [(f"{i} {i}\n", f"{2 * i}\n") for i in range(TESTS)]
    standard_input = json.dumps({"inputs": [one for one, _ in pairs], "outputs": [other for _, other in pairs]})
    function = {"fn_name": "add", "inputs": [[i, i] for i in range(TESTS)], "outputs": [2 * i for i in range(TESTS)]}
    assertions = {"asserts": [f"assert add({i}, {i}) == {2 * i}" for i in range(TESTS)]}
    return {
        "standard input, right": (standard_input, READING_PROGRAM, TESTS),
        "standard input, wrong at once": (standard_input, "print(-1)", 1),
        "function, right": (json.dumps(function), FUNCTION_PROGRAM, TESTS),
        "assertions, right": (json.dumps(assertions), FUNCTION_PROGRAM, TESTS),
    }


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its descendants that have ended and were waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def judged_tests_per_second(gold: str, program: str, tests: int) -> float:
    """Return the tests per second of CPU time of a new judge, its start and end included."""
    expected = Outcome.CORRECT if tests > 1 else Outcome.WRONG
    before = cpu_seconds()
    with closing(Sandbox(CodeSettings().model_dump())) as sandbox:
        outcomes = {judge_program(sandbox, gold, program) for _ in range(PROGRAMS)}
    assert outcomes == {expected}, outcomes
    return PROGRAMS * tests / (cpu_seconds() - before)


def starts_per_second() -> float:
    """Return the programs per second of CPU time if a new Python process runs each, without a judge."""
    before = cpu_seconds()
    for _ in range(PROGRAMS):
        subprocess.run(
            [sys.executable, "-I", "-c", READING_PROGRAM], input=b"2 3\n", stdout=subprocess.DEVNULL, check=True
        )
    return PROGRAMS / (cpu_seconds() - before)


def measure(repeats: int) -> Measurement:
    """Measure all cases."""
    ways = {name: partial(judged_tests_per_second, *case) for name, case in cases().items()}
    values = measure_interleaved({**ways, NOT_JUDGED: starts_per_second}, repeats, "programs")
    return Measurement(
        name="programs",
        what=f"Tests per second of CPU time, with {PROGRAMS} programs of each kind.",
        unit="tests/s",
        ways=values,
        ratios=[ratio(values, name, NOT_JUDGED) for name in ways],
        facts={"tests of a program": {name: tests for name, (_, _, tests) in cases().items()}},
    )
