"""The program of a clean process that forks a confined one for every program that is to run.

It knows no gold answer and reads no program: these come as descriptors of files in memory, which the forked process
alone reads. Its environment is a few constants; its folder is empty, and gone.
"""

import gc
import json
import os
import random
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn

_ROOT = str(Path(__file__).parents[3])
if __name__ == "__main__":  # With python -P and an empty environment only Python's own modules are found.
    sys.path.insert(0, _ROOT)

from tasks.verify.code.confine import Confinement, die_with  # noqa: E402 (found by the line above)
from tasks.verify.code.play import PREAMBLE, play  # noqa: E402 (as above)

PATIENCE = 5
"""Times a program's CPU time that it gets by the clock, while it waits for nothing but itself."""
LONGEST = 4 * PATIENCE
"""Times its CPU time after which a program that waits for a CPU is given up."""
_LOOK_MILLISECONDS = 20
_TICKS = os.sysconf("SC_CLK_TCK")


class End(StrEnum):
    """The end of a program."""

    WELL = "well"
    FAILED = "failed"
    """It raised, ended with another status than 0, or brought a signal upon itself."""
    LIMIT = "limit"
    """It took too much CPU time, made too many threads, or slept."""
    STARVED = "starved"
    """The machine gave it no CPU."""
    KILLED = "killed"
    """It was killed from outside: perhaps the machine ran out of memory."""


def main(parent: int, descriptor: int, limits: Mapping[str, Any]) -> None:
    """Serve until the channel closes: answer a mode and descriptors of source, input and output by an ``End``."""
    die_with(parent)
    channel = socket.socket(fileno=descriptor)
    names: dict[str, Any] = {}
    exec(PREAMBLE, names)  # noqa: S102 (a constant)
    sys.path.remove(_ROOT)
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    os.rmdir(folder)  # noqa: PTH106 (nothing can be made in it any more)
    confinement = Confinement(limits)
    gc.collect()
    gc.freeze()
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, 16, 3)
        if not message:
            return
        process = os.fork()
        if not process:
            channel.close()
            _become(confinement, message.decode(), descriptors, names)
        for one in descriptors:
            os.close(one)
        channel.send(_watch(process, limits).encode())


def _become(confinement: Confinement, mode: str, descriptors: list[int], names: dict[str, Any]) -> NoReturn:
    """Become the program, in the forked process: only its source, input and output stay open."""
    try:
        source, given, output = descriptors
        nowhere = os.open(os.devnull, os.O_RDWR)
        for one, place in ((given, 0), (output, 1), (nowhere, 2)):
            os.dup2(one, place)
            os.close(one)
        random.seed(0)  # A program that draws at random gets the same verdict again.
        confinement.enter()
    except BaseException as error:
        os.write(1, str(error).encode())
        os.kill(os.getpid(), signal.SIGKILL)  # Not the program's fault.
    play(mode, source, names)


def _watch(process: int, limits: Mapping[str, Any]) -> End:
    """Wait for the end of a process, and kill it where it breaks a limit."""
    handle = os.pidfd_open(process)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    start = time.monotonic()
    found = None
    while found is None and not poll.poll(_LOOK_MILLISECONDS):
        cpu_seconds, threads = _used(process)
        elapsed = time.monotonic() - start
        slow = cpu_seconds > limits["seconds"] or elapsed - _waited(process) > PATIENCE * limits["seconds"]
        if slow or threads > limits["threads"]:
            found = End.LIMIT
        elif elapsed > LONGEST * limits["seconds"]:
            found = End.STARVED
    if found is not None:
        os.kill(process, signal.SIGKILL)
    os.close(handle)
    _, status, usage = os.wait4(process, 0)
    if found is None and usage.ru_utime + usage.ru_stime > limits["seconds"]:
        found = End.LIMIT
    return found or (End.KILLED if status == signal.SIGKILL else End.FAILED if status else End.WELL)


def _used(process: int) -> tuple[float, int]:
    """Return the CPU time of a process in seconds, and its number of threads."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS, int(fields[17])


def _waited(process: int) -> float:
    """Return the seconds that the first thread was ready without a CPU; 0 where the kernel does not count them."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) / 1e9
    except FileNotFoundError:
        return 0.0


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
