"""The program of a worker process: reads ``[gold, answer]`` as JSON lines, writes one outcome per line.

It says ``ready`` first. Everything about it is expendable: the verifier kills and replaces it.
"""

import ctypes
import json
import logging
import os
import resource
import signal
import sys
from pathlib import Path

from tasks.verify.verdicts import Outcome

READY = "ready"
SPENT = "spent"
"""Stands after an outcome when the worker has used so much memory that it should be replaced."""
_PR_SET_PDEATHSIG = 1


def main(parent: int, memory_mib: int, deadline_seconds: float) -> None:
    """Serves until standard input ends."""
    for asked in (signal.SIGINT, signal.SIGTERM):  # Meant for the parent, which then ends its workers.
        signal.signal(asked, signal.SIG_IGN)
    _die_with(parent)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":  # macOS refuses a limit of address space.
        resource.setrlimit(resource.RLIMIT_AS, (memory_mib << 20, memory_mib << 20))
    logging.disable(logging.CRITICAL)  # math-verify warns that its own timeouts are off.

    from tasks.verify.judge import judge  # Under the limits, so that one that is too low shows here.

    if judge(r"\frac{1}{2}", "0.5") is not Outcome.CORRECT:  # Also warms the parser up.
        raise RuntimeError(r"math-verify does not find \frac{1}{2} and 0.5 equal")
    replies = os.dup(1)
    with Path(os.devnull).open("w") as nowhere:  # Nothing that a library prints gets between the replies.
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    os.write(replies, f"{READY}\n".encode())
    for line in sys.stdin.buffer:
        gold, answer = json.loads(line)
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
        os.write(replies, f"{outcome} {SPENT if spent else ''}\n".encode())


def _die_with(parent: int) -> None:
    """Ends this process with its parent even in the middle of an answer; between answers standard input ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit("the parent is gone")


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
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
