"""The program of a worker: it reads jobs as lines of JSON, such as ``[gold, answer]``, and writes a judgement for each.

The process loads the packages and forks a judge, which answers. When the judge ends, the worker writes its exit status
and forks the next one, without loading anything again. A judge writes ``ready`` with its number and process id, and
skips all lines until one with its number, since they were meant for the judge before.
"""

import gc
import inspect
import json
import logging
import math
import os
import resource
import signal
import struct
import sys
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

from tasks.verify.code.confine import die_with
from tasks.verify.verdicts import Judgement, Outcome

READY, ENDED, ALIVE = "ready", "ended", "alive"
"""Messages of a worker besides judgements: a judge can take jobs; a judge has ended, with its exit status; the judge
has begun another run of a program."""
SPENT = 3
"""Exit status of a judge that should be replaced, because it used much memory or an answer made it raise."""
_FORMS = (
    (r"\frac{1}{2}", "0.5", r"\frac{1}{3}"),
    (r"2\sqrt{2}", r"\sqrt{8}", r"2\sqrt{3}"),
    (r"\{11, 2\}", r"\{2, 11\}", r"\{11, 3\}"),
    ("(1, 2]", "(1, 2]", "(1, 3]"),
    ("x^2+2x+1", "(x+1)^2", "x^2+3x+1"),
)
"""Gold answers, each with a right and a wrong answer, that a worker judges at its start, so that the parser has learned
their forms before judges are forked."""
_LONGEST_ERROR = 2000
"""Last characters of a traceback that are sent; with their escapes they fit into one write to a pipe."""

Judge = Callable[..., tuple[Judgement, bool]]
"""Function from a job to the judgement, and whether the judge must be replaced."""
Score = Callable[[str, str, str], Any]


def main(parent: int, settings: Mapping[str, Any]) -> None:
    """Serve until standard input ends."""
    for asked in (signal.SIGINT, signal.SIGTERM):  # Signals for the parent, which ends its workers.
        signal.signal(asked, signal.SIG_IGN)
    die_with(parent)  # Also during an answer; between answers standard input ends.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logging.disable(logging.CRITICAL)  # math-verify warns that its own timeouts are off.
    replies = os.dup(1)
    make = {"math": _mathematics, "code": _programs, "function": _function}[settings["kind"]](settings, replies)
    gc.collect()
    gc.freeze()  # Garbage collection in a judge would copy all memory that it shares with this process.
    own = os.getpid()
    for number in count(1):
        judge = os.fork()
        if not judge:
            _serve(own, number, make, settings.get("deadline_seconds", 0), replies)
        status = os.waitstatus_to_exitcode(os.waitpid(judge, 0)[1])
        if status == 0:
            return
        _reply(replies, ENDED, status)


def _serve(parent: int, number: int, make: Callable[[], Judge], deadline_seconds: float, replies: int) -> NoReturn:
    """Answer jobs as a judge. SIGPROF ends the process when a job takes too much CPU time, also outside of Python."""
    status = 0
    try:
        die_with(parent)
        judge = make()
        with Path(os.devnull).open("w") as nowhere:  # Output of libraries must not mix with the replies.
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        _reply(replies, READY, number, os.getpid())
        mine = f"{number}\n".encode()
        lines = iter(sys.stdin.buffer)
        for line in lines:
            if line == mine:
                break
        for line in lines:
            job = json.loads(line)
            signal.setitimer(signal.ITIMER_PROF, deadline_seconds)
            judgement, spent = judge(*job)
            signal.setitimer(signal.ITIMER_PROF, 0)
            _reply(replies, *judgement)
            if spent or judgement.outcome is Outcome.CRASHED:
                status = SPENT
                break
    except BaseException:
        status = 1
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _reply(replies: int, *words: Any) -> None:
    os.write(replies, json.dumps(words).encode() + b"\n")


def _mathematics(settings: Mapping[str, Any], _replies: int) -> Callable[[], Judge]:
    _limit_memory(settings["memory_mib"])

    from tasks.verify.judge import judge  # Under the limit, so that a limit that is too low shows here.

    for gold, *answers in _FORMS:
        found = [judge(gold, answer) for answer in answers]
        if found != [Outcome.CORRECT, Outcome.WRONG]:
            raise RuntimeError(f"math-verify finds {answers} {found} where {gold} is right; allowed: correct, wrong")

    def judged(gold: str, answer: str) -> tuple[Judgement, bool]:
        outcome = judge(gold, answer)
        spent = _peak_mib() > settings["memory_mib"] / 2
        # math-verify swallows MemoryError, and then finds the two different. Near the limit this may have happened. A
        # single allocation beyond the limit leaves no trace, and its answer is wrong.
        return Judgement(Outcome.CRASHED if spent and outcome is not Outcome.CORRECT else outcome), spent

    return lambda: judged


def _programs(settings: Mapping[str, Any], replies: int) -> Callable[[], Judge]:
    from tasks.verify.code.judge import DisturbedError, ProgramJudge

    def make() -> Judge:
        judge = ProgramJudge(settings["code"], before_each=lambda: _reply(replies, ALIVE))
        _limit_memory(settings["memory_mib"])  # Of the judge alone; programs have their own limits.

        def judged(gold: str, answer: str) -> tuple[Judgement, bool]:
            try:
                return Judgement(judge(gold, answer)), False
            except DisturbedError:
                os.kill(os.getpid(), signal.SIGKILL)  # As if killed from outside, so that another judge gets the job.
                raise

        return judged

    return make


def _function(settings: Mapping[str, Any], _replies: int) -> Callable[[], Judge]:
    _limit_memory(settings["memory_mib"])
    score = _load(settings["function"])  # Under the limit, so that a module that is too large shows here.
    # A judge that has used half of the memory after loading is replaced, so that responses do not affect later ones.
    spent_mib = (_peak_mib() + settings["memory_mib"]) / 2

    def judged(prompt: str, response: str, answer: str) -> tuple[Judgement, bool]:
        judgement = judgement_of(score, prompt, response, answer, settings["correct_from"])
        return judgement, _peak_mib() > spent_mib

    return lambda: judged


def _load(name: str) -> Score:
    """Import and return the function that ``module:name`` names, if it can be called with three arguments."""
    module, _, function = name.partition(":")
    score: Score = getattr(import_module(module), function)
    try:
        inspect.signature(score).bind("", "", "")
    except TypeError as error:
        raise TypeError(f"{name} cannot be called with three arguments, prompt, response and answer: {error}") from None
    except ValueError:  # A function in C may have no signature.
        pass
    return score


def judgement_of(score: Score, prompt: str, response: str, answer: str, correct_from: float) -> Judgement:
    """Call a user's function for a response; ``crashed`` if it raises or returns no reward.

    The function returns a finite number, which is correct from ``correct_from`` on, an ``Outcome``, or None for
    ``no_answer``.
    """
    try:
        value = score(prompt, response, answer)
        if value is None or isinstance(value, Outcome):
            return Judgement(value or Outcome.NO_ANSWER)
        if isinstance(value, str) or not hasattr(value, "__float__") or not math.isfinite(value):
            raise TypeError(
                f"the function returned {ascii(value)[:200]}, a {type(value).__name__}; allowed: a finite number, an "
                "Outcome, or None"
            )
        reward = float(value)
        struct.pack("<f", reward)  # Rewards are stored as 32-bit floats; a larger number raises.
        return Judgement(Outcome.CORRECT if reward >= correct_from else Outcome.WRONG, reward)
    except (Exception, SystemExit) as error:
        told = "".join(traceback.format_exception(error)).rstrip().encode("ascii", "backslashreplace").decode()
        return Judgement(Outcome.CRASHED, None, told[-_LONGEST_ERROR:])


def _limit_memory(memory_mib: int) -> None:
    if sys.platform == "linux":  # macOS refuses a limit of address space.
        resource.setrlimit(resource.RLIMIT_AS, (memory_mib << 20, memory_mib << 20))


def _peak_mib() -> float:
    """Return the peak address space of this process in MiB; 0 if the system does not report it.

    The maximum of getrusage survives exec, so it would be that of the parent.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except FileNotFoundError:
        return 0.0
    return int(status.partition("VmPeak:")[2].split(maxsplit=1)[0]) / 1024


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
