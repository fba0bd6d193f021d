"""Program of a worker: it reads jobs as lines of JSON, such as ``[gold, answer]``, and writes a judgement for each.

The worker loads the libraries and forks a judge, which does the jobs. When a judge ends, the worker reports its exit
status and forks the next one, without loading the libraries again. A new judge writes ``ready`` with its process
id. It skips all lines before the one with its id, because they were sent to the judge before it.
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
from pathlib import Path
from typing import Any, NoReturn

from tasks.formats import printable
from tasks.verify.code.confine import die_with
from tasks.verify.code.launcher import DIGITS
from tasks.verify.verdicts import Judgement, Outcome

READY, SPENT, ENDED, ALIVE = "ready", "spent", "ended", "alive"
"""Messages of a worker besides judgements: a judge is ready for jobs; it ends, because it used much memory or its last
job crashed; it has ended, with an exit status as that of subprocess; it starts the next run of a program."""
_FORMS = (
    (r"\frac{1}{2}", "0.5", r"\frac{1}{3}"),
    (r"2\sqrt{2}", r"\sqrt{8}", r"2\sqrt{3}"),
    (r"\{11, 2\}", r"\{2, 11\}", r"\{11, 3\}"),
    ("(1, 2]", "(1, 2]", "(1, 3]"),
    ("x^2+2x+1", "(x+1)^2", "x^2+3x+1"),
)
"""Gold answers, each with a right and a wrong answer, that a worker judges before it forks judges, so that the caches
of the parser are filled for all of them."""
_STOPS = (signal.SIGINT, signal.SIGTERM)

Judge = Callable[..., tuple[Judgement, bool]]
"""A function from a job's texts to the judgement, and whether the judge must be replaced."""
Score = Callable[[str, str, str], Any]


def main(parent: int, settings: Mapping[str, Any]) -> None:
    """Fork one judge after another until standard input ends."""
    for stop_signal in _STOPS:  # They are for the parent, which then ends its workers.
        signal.signal(stop_signal, signal.SIG_IGN)
    # In the middle of a job, the end of standard input would not be noticed.
    signal.signal(signal.SIGHUP, _end_group)
    die_with(parent, signal.SIGHUP)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logging.disable(logging.CRITICAL)  # math-verify warns that its own timeouts are off.
    jobs, replies = os.dup(0), os.dup(1)
    # A user's module, and the programs that it starts, must not read or write the pipes.
    for standard, flag in ((0, os.O_RDONLY), (1, os.O_WRONLY)):
        os.dup2(os.open(os.devnull, flag), standard)
    make = {"math": _mathematics, "code": _programs, "function": _function}[settings["kind"]](settings, replies)
    gc.collect()
    gc.freeze()  # A garbage collection in a judge would write to, and so copy, the memory that judges share.
    pid = os.getpid()
    while True:
        judge = os.fork()
        if not judge:
            _serve(pid, make, settings.get("deadline_seconds", 0), jobs, replies)
        status = os.waitstatus_to_exitcode(os.waitpid(judge, 0)[1])
        if status == 0:
            return
        try:
            _reply(replies, ENDED, status)
        except BrokenPipeError:
            _end_group()


def _end_group(*_: object) -> None:
    """Kill a worker, its judge and all that a user's function has started, because their parent has ended."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _serve(parent: int, make: Callable[[], Judge], deadline_seconds: float, jobs: int, replies: int) -> NoReturn:
    """Run as a judge: read jobs and write judgements.

    SIGPROF ends the process when a job takes more CPU time than ``deadline_seconds``, even inside of C code.
    """
    status = 0
    try:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        die_with(parent)
        judge = make()
        os.dup2(1, 2)  # Warnings of judged answers are dropped, as is what a user's function prints.
        pid = os.getpid()
        _reply(replies, READY, pid)
        start = f"{pid}\n".encode()
        lines = iter(os.fdopen(jobs, "rb"))
        next((line for line in lines if line == start), None)
        for line in lines:
            job = json.loads(line)
            signal.setitimer(signal.ITIMER_PROF, deadline_seconds)
            judgement, spent = judge(*job)
            if os.getpid() != pid:  # A user's function has forked, and this is the child.
                break
            signal.setitimer(signal.ITIMER_PROF, 0)
            _reply(replies, *judgement)
            if spent or judgement.outcome is Outcome.CRASHED:
                _reply(replies, SPENT)
                status = 1
                break
        else:  # The pipes of a parent that ends are closed before the worker gets its signal.
            _end_group()
    except BaseException:
        status = 1
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _reply(replies: int, *words: Any) -> None:
    os.write(replies, json.dumps(words).encode() + b"\n")


def _mathematics(settings: Mapping[str, Any], _replies: int) -> Callable[[], Judge]:
    """Load math-verify, and return a function that makes a judge of answers.

    Raises:
        RuntimeError: math-verify judges an answer of ``_FORMS`` wrongly.
    """
    _limit_memory(settings["memory_mib"])

    from tasks.verify.judge import judge  # Imported under the limit, so that a limit that is too low fails here.

    for gold, *answers in _FORMS:
        outcomes = [str(judge(gold, answer)) for answer in answers]
        if outcomes != [Outcome.CORRECT, Outcome.WRONG]:
            raise RuntimeError(
                f"math-verify judged {answers} as {outcomes} for the gold answer {gold}; allowed: correct, wrong"
            )

    def judge_answer(gold: str, answer: str) -> tuple[Judgement, bool]:
        outcome = judge(gold, answer)
        spent = _peak_mib() > settings["memory_mib"] / 2
        # math-verify swallows MemoryError and then finds the answers different, so that "wrong" is not certain when the
        # peak is near the limit. One huge allocation that fails does not raise the peak, and its answer is wrong.
        return Judgement(Outcome.CRASHED if spent and outcome is not Outcome.CORRECT else outcome), spent

    return lambda: judge_answer


def _programs(settings: Mapping[str, Any], replies: int) -> Callable[[], Judge]:
    """Return a function that makes a judge of programs, with a sandbox of its own."""
    from tasks.verify.code.judge import DisturbedError, Sandbox, judge_program

    def make() -> Judge:
        sys.set_int_max_str_digits(DIGITS)
        sandbox = Sandbox(settings["code"], before_each=lambda: _reply(replies, ALIVE))
        _limit_memory(settings["memory_mib"])  # This process only: programs have limits of their own.

        def judge(gold: str, answer: str) -> tuple[Judgement, bool]:
            try:
                return Judgement(judge_program(sandbox, gold, answer)), False
            except DisturbedError:
                os.kill(os.getpid(), signal.SIGKILL)  # The pool gives the job of a killed judge to another judge.
                raise

        return judge

    return make


def _function(settings: Mapping[str, Any], _replies: int) -> Callable[[], Judge]:
    """Load a user's function, and return a function that makes a judge of responses."""
    _limit_memory(settings["memory_mib"])
    score = _load(settings["function"])  # Loaded under the limit, so that a module that is too large fails here.
    # A judge is replaced after it used half of the free memory, so that earlier responses leave enough for later ones.
    spent_mib = (_peak_mib() + settings["memory_mib"]) / 2

    def judge_response(prompt: str, response: str, answer: str) -> tuple[Judgement, bool]:
        judgement = judgement_of(score, prompt, response, answer, settings["correct_from"])
        return judgement, _peak_mib() > spent_mib

    def make() -> Judge:
        for stop_signal in _STOPS:  # Else terminate() could not end the processes that the function starts.
            signal.signal(stop_signal, signal.SIG_DFL)
        return judge_response

    return make


def _load(name: str) -> Score:
    """Import and return the function ``module:name``.

    Raises:
        TypeError: the function cannot be called with three arguments.
    """
    module, _, function = name.partition(":")
    # Python takes bytecode for that of any source with the same size and time, which may have another digest.
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(Path.cwd()))  # Not before: files there may have names of modules of this project or Python.
    score: Score = getattr(import_module(module), function)
    try:
        inspect.signature(score).bind("", "", "")
    except TypeError as error:
        raise TypeError(f"{name} cannot be called with three arguments, prompt, response and answer: {error}") from None
    except ValueError:  # A function in C may have no signature.
        pass
    return score


def judgement_of(score: Score, prompt: str, response: str, answer: str, correct_from: float) -> Judgement:
    """Return the judgement of a user's function; ``crashed`` if it raises or returns an invalid reward.

    The function must return a finite number, an ``Outcome`` but ``MISSING``, or None for ``no_answer``. A number is
    ``correct`` if it is at least ``correct_from``.
    """
    try:
        value = score(prompt, response, answer)
        if value is None:
            return Judgement(Outcome.NO_ANSWER)
        if isinstance(value, Outcome) and value is not Outcome.MISSING:
            return Judgement(value)
        if isinstance(value, str) or not hasattr(value, "__float__") or not math.isfinite(value):
            raise TypeError(
                f"the function returned {ascii(value)[:200]}, a {type(value).__name__}; allowed: a finite number, an "
                "Outcome that is not missing, or None"
            )
        reward = float(value)
        struct.pack("<f", reward)  # Rewards are stored as 32-bit floats; this raises if the number is too large.
        return Judgement(Outcome.CORRECT if reward >= correct_from else Outcome.WRONG, reward)
    except BaseException as error:  # Such as SystemExit, and the panics of libraries in Rust.
        # The message can be a response: its middle is cut, so that it fits into one write to a pipe.
        text = "".join(traceback.format_exception(error)).rstrip().encode("ascii", "backslashreplace").decode()
        return Judgement(Outcome.CRASHED, None, printable(text))


def _limit_memory(memory_mib: int) -> None:
    if sys.platform == "linux":  # macOS refuses a limit of address space.
        resource.setrlimit(resource.RLIMIT_AS, (memory_mib << 20, memory_mib << 20))


def _peak_mib() -> float:
    """Return the peak address space of this process in MiB; 0 where the system has no /proc.

    getrusage is of no use here: its maximum survives exec and would be that of the parent.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except FileNotFoundError:
        return 0.0
    return int(status.partition("VmPeak:")[2].split(maxsplit=1)[0]) / 1024


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
