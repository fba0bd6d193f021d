"""Programs that a core judges per second, beside starting Python for each of them.

    python -m tests.benchmarks.verify_code

By CPU time of all processes that take part, so that what else the machine does counts little. A program's own work is
next to nothing here: this is what judging costs.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from tasks.settings import CodeSettings
from tasks.verify.code.judge import ProgramJudge

READS = "print(sum(map(int, input().split())))"
ADDS = "def add(a, b): return a + b"
TESTS = 10


def golds() -> dict[str, tuple[str, str, int]]:
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
    """Of this process and of all below it that have ended and were waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def measured(count: int, judge_one: Callable[[], object], close: Callable[[], None]) -> tuple[float, float]:
    """Times per second of a core, and per second by the clock, that something is done."""
    before, start = cpu_seconds(), time.perf_counter()
    for _ in range(count):
        judge_one()
    elapsed = time.perf_counter() - start
    close()
    return count / (cpu_seconds() - before), count / elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=100)
    options = parser.parse_args()
    table = Table("programs", "tests each", "programs/s of a core", "tests/s of a core", "programs/s by the clock")
    for name, (gold, program, tests) in golds().items():
        judge = ProgramJudge(CodeSettings().model_dump())
        assert judge(gold, program) == ("correct" if tests > 1 else "wrong")
        rate, clock = measured(options.programs, lambda judge=judge, g=gold, p=program: judge(g, p), judge.close)
        table.add_row(name, str(tests), f"{rate:,.0f}", f"{rate * tests:,.0f}", f"{clock:,.0f}")

    def start_python() -> None:
        subprocess.run([sys.executable, "-I", "-c", READS], input=b"2 3\n", stdout=subprocess.DEVNULL, check=True)

    rate, clock = measured(options.programs, start_python, lambda: None)
    table.add_row("python -I -c, judged by nobody", "1", f"{rate:,.0f}", f"{rate:,.0f}", f"{clock:,.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
