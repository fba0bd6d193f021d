"""Tests of programs that a core runs per second, beside starting Python for each of them.

    python -m tools.benchmarks programs

By CPU time of all processes that take part, so that what else the machine does counts little. A program's own work is
next to nothing here: this is what judging costs.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Callable

from tasks.settings import CodeSettings
from tasks.verify.code.judge import ProgramJudge
from tasks.verify.verdicts import Outcome
from tools.benchmarks.measured import Measured, in_turn, ratio

PROGRAMS, TESTS = 100, 10
READS = "print(sum(map(int, input().split())))"
ADDS = "def add(a, b): return a + b"
ALONE = "python -I -c, judged by nobody"


def cases() -> dict[str, tuple[str, str, int]]:
    """Gold answer, program, and tests that are run, by name."""
    pairs = [(f"{i} {i}\n", f"{2 * i}\n") for i in range(TESTS)]
    read = json.dumps({"inputs": [one for one, _ in pairs], "outputs": [other for _, other in pairs]})
    called = {"fn_name": "add", "inputs": [[i, i] for i in range(TESTS)], "outputs": [2 * i for i in range(TESTS)]}
    asserted = {"asserts": [f"assert add({i}, {i}) == {2 * i}" for i in range(TESTS)]}
    return {
        "standard input, right": (read, READS, TESTS),
        "standard input, wrong at once": (read, "print(-1)", 1),
        "function, right": (json.dumps(called), ADDS, TESTS),
        "assertions, right": (json.dumps(asserted), ADDS, TESTS),
    }


def cpu_seconds() -> float:
    """CPU seconds of this process and of all below it that have ended and were waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def judged(gold: str, program: str, tests: int) -> Callable[[], float]:
    """Tests per second of a core, by a judge of its own that ends with them."""
    expected = Outcome.CORRECT if tests > 1 else Outcome.WRONG

    def work() -> float:
        before, judge = cpu_seconds(), ProgramJudge(CodeSettings().model_dump())
        outcomes = {judge(gold, program) for _ in range(PROGRAMS)}
        judge.close()
        assert outcomes == {expected}, outcomes
        return PROGRAMS * tests / (cpu_seconds() - before)

    return work


def started() -> float:
    """Programs per second of a core, each in a Python of its own, with nothing around it."""
    before = cpu_seconds()
    for _ in range(PROGRAMS):
        subprocess.run([sys.executable, "-I", "-c", READS], input=b"2 3\n", stdout=subprocess.DEVNULL, check=True)
    return PROGRAMS / (cpu_seconds() - before)


def measure(repeats: int) -> Measured:
    """All in turn."""
    given = cases()
    values = in_turn({**{name: judged(*case) for name, case in given.items()}, ALONE: started}, repeats, "programs")
    return Measured(
        name="programs",
        what=f"Tests per second of CPU time, with {PROGRAMS} programs of each kind.",
        unit="tests/s",
        ways=values,
        ratios=[ratio(values, name, ALONE) for name in given],
        facts={"tests of a program": {name: tests for name, (_, _, tests) in given.items()}},
    )
