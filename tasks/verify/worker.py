"""The program of a worker process: reads ``[gold, answer]`` as JSON lines, writes one outcome per line.

It says ``ready`` first. Everything about it is expendable: the verifier kills and replaces it.
"""

import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tasks.verify.code.confine import die_with
from tasks.verify.verdicts import Outcome

READY = "ready"
SPENT = "spent"
"""Stands after an outcome when the worker has used so much memory that it should be replaced."""


Judge = Callable[[str, str], tuple[Outcome, bool]]
"""From gold answer and answer to the outcome, and whether the worker is spent."""


def main(parent: int, settings: Mapping[str, Any]) -> None:
    """Serves until standard input ends."""
    for asked in (signal.SIGINT, signal.SIGTERM):  # Meant for the parent, which then ends its workers.
        signal.signal(asked, signal.SIG_IGN)
    die_with(parent)  # Even in the middle of an answer; between answers standard input ends.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logging.disable(logging.CRITICAL)  # math-verify warns that its own timeouts are off.
    replies = os.dup(1)
    judge = {"math": _mathematics, "code": _programs}[settings["kind"]](settings, replies)
    with Path(os.devnull).open("w") as nowhere:  # Nothing that a library prints gets between the replies.
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    os.write(replies, f"{READY}\n".encode())
    for line in sys.stdin.buffer:
        gold, answer = json.loads(line)
        outcome, spent = judge(gold, answer)
        os.write(replies, f"{outcome} {SPENT if spent else ''}\n".encode())


def _mathematics(settings: Mapping[str, Any], replies: int) -> Judge:  # noqa: ARG001 (as _programs)
    memory_mib, deadline_seconds = settings["memory_mib"], settings["deadline_seconds"]
    _limit_memory(memory_mib)

    from tasks.verify.judge import judge  # Under the limits, so that one that is too low shows here.

    if judge(r"\frac{1}{2}", "0.5") is not Outcome.CORRECT:  # Also warms the parser up.
        raise RuntimeError(r"math-verify does not find \frac{1}{2} and 0.5 equal")

    def bounded(gold: str, answer: str) -> tuple[Outcome, bool]:
        # CPU time, so that what else the machine does changes no outcome. The signal ends this process even where
        # Python code would not be reached for long.
        signal.setitimer(signal.ITIMER_PROF, deadline_seconds)
        outcome = judge(gold, answer)
        signal.setitimer(signal.ITIMER_PROF, 0)
        spent = _peak_mib() > memory_mib / 2
        if spent and outcome is not Outcome.CORRECT:
            # math-verify swallows MemoryError and goes on as if the two were different: so near to the limit it may
            # have. One allocation beyond the limit leaves no trace, and its answer is wrong.
            outcome = Outcome.CRASHED
        return outcome, spent

    return bounded


def _programs(settings: Mapping[str, Any], replies: int) -> Judge:
    from tasks.verify.code.judge import DisturbedError, ProgramJudge

    judge = ProgramJudge(settings["code"], before_each=lambda: os.write(replies, b"\n"))
    _limit_memory(settings["memory_mib"])  # Of this process alone: a program has limits of its own.

    def bounded(gold: str, answer: str) -> tuple[Outcome, bool]:
        try:
            return judge(gold, answer), False
        except DisturbedError:
            os.kill(os.getpid(), signal.SIGKILL)  # What a worker dies of that was killed from outside: ask another.
            raise

    return bounded


def _limit_memory(memory_mib: int) -> None:
    if sys.platform == "linux":  # macOS refuses a limit of address space.
        resource.setrlimit(resource.RLIMIT_AS, (memory_mib << 20, memory_mib << 20))


def _peak_mib() -> float:
    """Most address space that this process has had, MiB; 0 where the system does not tell.

    Not getrusage: its maximum outlives exec and would be that of the parent.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except FileNotFoundError:
        return 0.0
    return int(status.partition("VmPeak:")[2].split(maxsplit=1)[0]) / 1024


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
