"""Judge of a program by the tests of its gold answer. Every run of the program has its own confined process."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tasks.verify.code import launcher
from tasks.verify.code.gold import Test, read_gold
from tasks.verify.code.launcher import End
from tasks.verify.verdicts import Outcome

_TRIAL = """
import errno, os, socket
for what, attempt in (
    ("reach the network", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM)),
    ("start processes", os.fork),
    ("write files", lambda: open("/tmp/mu-grpo", "w")),
):
    try:
        attempt()
        print(f"a program could {what}")
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES):
            print(f"a program that tries to {what} gets {error}")
"""
"""First program of a sandbox: it prints each forbidden action that the confinement does not prevent."""


class RunResult(NamedTuple):
    """The result of a run: end of the program, and its output up to ``output_mib``."""

    end: End
    output: bytes


class Sandbox:
    """A sandbox for programs: a launcher process, until it is closed.

    Args:
        limits: the fields of the settings ``verify.code``.
        before_each: called before every run of a program.

    Raises:
        RuntimeError: programs cannot be confined on this machine.
    """

    def __init__(self, limits: Mapping[str, Any], before_each: Callable[[], object] = lambda: None) -> None:
        self.limits, self._before_each = limits, before_each
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # -s -P keep the user's modules out, as -I does, but PYTHONHASHSEED, which fixes the order of sets, has
            # effect. numpy computes in one thread, because every thread takes address space.
            self._launcher = subprocess.Popen(
                [
                    *(sys.executable, "-s", "-P", launcher.__file__),
                    *(str(os.getpid()), str(theirs.fileno()), json.dumps(dict(limits))),
                ],
                env={"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
            )
        end, problem = self.run(_TRIAL, "run", b"")
        if end is not End.WELL or problem:
            errors = self.close()
            last_line = (problem or errors).decode(errors="replace").strip().rpartition("\n")[2]
            raise RuntimeError(last_line or "the process that starts programs did not start")

    def close(self) -> bytes:
        """End the launcher and a running program; return the launcher's standard error."""
        self._launcher.kill()
        self._channel.close()
        return self._launcher.communicate()[1]

    def run(self, program: str, mode: str, given: bytes) -> RunResult:
        """Run a program to its end, in a mode of the launcher, with ``given`` as standard input."""
        self._before_each()
        source, standard_input, output = files = [os.memfd_create(name) for name in ("source", "input", "output")]
        try:
            for descriptor, data in ((source, program.encode(errors="surrogatepass")), (standard_input, given)):
                with os.fdopen(descriptor, "wb", closefd=False) as file:
                    file.write(data)
                os.lseek(descriptor, 0, os.SEEK_SET)
            try:
                socket.send_fds(self._channel, [mode.encode()], files)
                end = self._channel.recv(16).decode()
            except (BrokenPipeError, ConnectionResetError):
                end = ""
            os.lseek(output, 0, os.SEEK_SET)
            with os.fdopen(output, "rb", closefd=False) as file:
                return RunResult(End(end or End.KILLED), file.read())
        finally:
            for descriptor in files:
                os.close(descriptor)


class DisturbedError(Exception):
    """A program or the launcher was killed from outside."""


def judge_program(sandbox: Sandbox, gold: str, program: str) -> Outcome:
    """Return the outcome of a program.

    A program is correct if it passes every test; after the first test that fails, no others are run. A program that
    fails or breaks a limit is wrong. The outcome is ``timeout`` only if the machine gave the program no CPU time.

    Raises:
        DisturbedError: the program was killed from outside.
    """
    try:
        tests = read_gold(gold, sandbox.limits["output_mib"] << 20)
    except (ValueError, SyntaxError):
        return Outcome.GOLD_UNPARSABLE
    try:
        return Outcome.CORRECT if all(_passes(sandbox, program, test) for test in tests) else Outcome.WRONG
    except TimeoutError:
        return Outcome.TIMEOUT


def _passes(sandbox: Sandbox, program: str, test: Test) -> bool:
    def run(program: str, mode: str, given: bytes) -> bytes | None:
        end, output = sandbox.run(program, mode, given)
        if end is End.STARVED:
            raise TimeoutError
        if end is End.KILLED:
            raise DisturbedError
        return output if end is End.WELL else None

    output = run(program, test.mode, test.given)
    try:
        return output is not None and test.holds(output, sandbox.limits["float_tolerance"], run)
    except (ValueError, TypeError, ArithmeticError, RecursionError, MemoryError):  # The output can be anything.
        return False
