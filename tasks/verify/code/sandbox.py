"""Runs programs, each in a confined process of its own. Belongs to a worker; keeps what is expected on this side."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tasks.verify.code import launcher
from tasks.verify.code.launcher import End


@dataclass(frozen=True)
class Ran:
    """How a program ended and what it wrote."""

    end: End
    output: bytes
    """What it wrote, up to the limit of a file."""


class Sandbox:
    """A sandbox for programs: a context manager around a launcher process.

    Args:
        limits: the fields of the settings ``verify.code``.
        before_each: called before a program runs.

    Raises:
        RuntimeError: programs cannot be confined here; says why.
    """

    def __init__(self, limits: Mapping[str, Any], before_each: Callable[[], object] = lambda: None) -> None:
        self._before_each = before_each
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # -s -P is -I without -E: nothing of the user's, but sets in the same order every time. numpy computes in
            # one thread, because more would take address space by the number of cores.
            self._launcher = subprocess.Popen(
                [
                    *(sys.executable, "-s", "-P", launcher.__file__),
                    *(str(os.getpid()), str(theirs.fileno()), json.dumps(dict(limits))),
                ],
                env={"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        try:
            problem = self._channel.recv(4096).decode()
        except ConnectionResetError:
            problem = ""
        if problem != "\n":
            self.close()
            raise RuntimeError(problem.strip() or "the process that starts programs did not start")

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the launcher, and with it a program that runs."""
        self._launcher.kill()
        self._launcher.wait()
        self._channel.close()

    def run(self, program: str, mode: str, given: bytes) -> Ran:
        """Runs a program to its end.

        Args:
            program: its source.
            mode: what to do with it, one of ``play.MODES``.
            given: its standard input.
        """
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
                return Ran(End(end or End.KILLED), file.read())
        finally:
            for descriptor in files:
                os.close(descriptor)
