"""The program of a worker: reads jobs as JSON lines, such as ``[gold, answer]``, and writes a ``Judgement`` for each.

The process loads what judging takes and forks a judge, which answers; when that ends, it says how and forks the next
without loading anything again. A judge says ``ready`` with its number and its process id, and
passes over all lines until one that is its number: they were meant for its predecessor. Everything about a judge is
expendable.
"""

import gc
import json
import logging
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

from tasks.verify.code.confine import die_with
from tasks.verify.verdicts import Judgement, Outcome

READY = "ready"
ENDED = "ended"
"""Stands before the exit status of a judge, as subprocess has it."""
SPENT = 3
"""The exit status of a judge that should be replaced: it used much memory, or what it judged raised."""
STOP = signal.SIGUSR1
"""Ends the judge and the worker."""
_CANNOT_START = 4
_KNOWN = (
    (r"\frac{1}{2}", "0.5", Outcome.CORRECT),
    (r"2\sqrt{2}", r"\sqrt{8}", Outcome.CORRECT),
    (r"\{1, 2\}", r"\{2, 1\}", Outcome.CORRECT),
    ("(1, 2]", "(1, 2]", Outcome.CORRECT),
    ("x^2+2x+1", "(x+1)^2", Outcome.CORRECT),
    ("41", "42", Outcome.WRONG),
    (r"\frac{1}{2}", r"\frac{1}{3}", Outcome.WRONG),
    (r"2\sqrt{2}", r"2\sqrt{3}", Outcome.WRONG),
    (r"\{11, 2\}", r"\{11, 3\}", Outcome.WRONG),
    ("(1, 2]", "(1, 3]", Outcome.WRONG),
    ("x^2+2x+1", "x^2+3x+1", Outcome.WRONG),
)
"""Golds and answers that are judged when a worker starts. What the parser learns of their forms, every judge has."""

_FRAME_WORDS = 100_000

Judge = Callable[..., tuple[Judgement, bool]]
"""From a job's texts to the judgement, and whether the judge is spent."""
Maker = Callable[[], Judge]


def main(parent: int, settings: Mapping[str, Any]) -> None:
    """Serve until standard input ends."""
    for asked in (signal.SIGINT, signal.SIGTERM):  # Meant for the parent, which then ends its workers.
        signal.signal(asked, signal.SIG_IGN)
    die_with(parent)  # Even in the middle of an answer; between answers standard input ends.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logging.disable(logging.CRITICAL)  # math-verify warns that its own timeouts are off.
    replies = os.dup(1)
    make = {"math": _mathematics, "code": _programs, "function": _function}[settings["kind"]](settings, replies)
    gc.collect()
    gc.freeze()  # A collection in a judge would touch, and so copy, all that it shares with this process.
    own, judge = os.getpid(), 0
    try:
        signal.signal(STOP, lambda *_: sys.exit())
        for number in count(1):
            judge = os.fork()
            if not judge:
                _judge(own, number, make, replies)
            status = os.waitstatus_to_exitcode(os.waitpid(judge, 0)[1])
            judge = 0
            if status in (0, _CANNOT_START):
                sys.exit(status)
            os.write(replies, f"{ENDED} {status}\n".encode())
    finally:
        if judge:
            os.kill(judge, signal.SIGKILL)
            os.waitpid(judge, 0)


def _judge(parent: int, number: int, make: Maker, replies: int) -> NoReturn:
    """Live as a judge and end the process; this never returns to the worker's code."""
    status = _CANNOT_START
    try:
        signal.signal(STOP, signal.SIG_DFL)
        die_with(parent)
        judge = make()
        with Path(os.devnull).open("w") as nowhere:  # Nothing that a library prints gets between the replies.
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        status = 1
        status = _answer(number, judge, replies)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _answer(number: int, judge: Judge, replies: int) -> int:
    os.write(replies, f"{READY} {number} {os.getpid()}\n".encode())
    mine = f"{number}\n".encode()
    lines = iter(sys.stdin.buffer)
    for line in lines:
        if line == mine:
            break
    for line in lines:
        judgement, spent = judge(*json.loads(line))
        os.write(replies, json.dumps(judgement).encode() + b"\n")
        if spent or judgement.outcome is Outcome.CRASHED:
            return SPENT
    return 0


# CPython keeps frames in chunks of 16 KiB and unmaps one as soon as it is empty. Calls that go to and fro over the end
# of a chunk, some 90 times for an answer, each map it again. A frame as large as this gets a chunk that has room for
# the frames of all that it calls.
_answer.__code__ = _answer.__code__.replace(co_stacksize=_FRAME_WORDS)


def _mathematics(settings: Mapping[str, Any], _replies: int) -> Maker:
    memory_mib, deadline_seconds = settings["memory_mib"], settings["deadline_seconds"]
    _limit_memory(memory_mib)

    from tasks.verify.judge import judge  # Under the limits, so that one that is too low shows here.

    for gold, answer, known in _KNOWN:
        if (found := judge(gold, answer)) is not known:
            raise RuntimeError(f"math-verify finds the answer {answer} {found} where {gold} is right")

    def bounded(gold: str, answer: str) -> tuple[Judgement, bool]:
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
        return Judgement(outcome), spent

    return lambda: bounded


def _programs(settings: Mapping[str, Any], replies: int) -> Maker:
    from tasks.verify.code.judge import DisturbedError, ProgramJudge

    def make() -> Judge:
        judge = ProgramJudge(settings["code"], before_each=lambda: os.write(replies, b"\n"))
        _limit_memory(settings["memory_mib"])  # Of this process alone: a program has limits of its own.

        def bounded(gold: str, answer: str) -> tuple[Judgement, bool]:
            try:
                return Judgement(judge(gold, answer)), False
            except DisturbedError:
                os.kill(os.getpid(), signal.SIGKILL)  # What a judge dies of that was killed from outside: ask another.
                raise

        return bounded

    return make


def _function(settings: Mapping[str, Any], _replies: int) -> Maker:
    memory_mib, deadline_seconds, correct_from = (
        settings[name] for name in ("memory_mib", "deadline_seconds", "correct_from")
    )
    _limit_memory(memory_mib)

    from tasks.verify.function import judgement_of, load  # Under the limits, as the user's module is.

    score = load(settings["function"])
    spent_mib = (_peak_mib() + memory_mib) / 2
    """A judge that has used half of what loading left is replaced, so that no response pays for those before it."""

    def bounded(prompt: str, response: str, answer: str) -> tuple[Judgement, bool]:
        signal.setitimer(signal.ITIMER_PROF, deadline_seconds)
        judgement = judgement_of(score, prompt, response, answer, correct_from)
        signal.setitimer(signal.ITIMER_PROF, 0)
        return judgement, _peak_mib() > spent_mib

    return lambda: bounded


def _limit_memory(memory_mib: int) -> None:
    if sys.platform == "linux":  # macOS refuses a limit of address space.
        resource.setrlimit(resource.RLIMIT_AS, (memory_mib << 20, memory_mib << 20))


def _peak_mib() -> float:
    """Return the most address space that this process has had, MiB; 0 where the system does not tell.

    Not getrusage: its maximum outlives exec and would be that of the parent.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except FileNotFoundError:
        return 0.0
    return int(status.partition("VmPeak:")[2].split(maxsplit=1)[0]) / 1024


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
