"""The longest response that can be learned from before memory runs out, beside TRL's trainer.

    python -m tools.benchmarks longest

Two responses of one length to one prompt, one update, in a process whose memory is limited before it. TRL's length
rises by the square root of two until an update fails. Model and sides are those of the benchmark of memory; TRL takes
one response at a time.
"""

import resource
import subprocess
import sys
import tempfile
from itertools import count
from pathlib import Path

import torch

from tools.benchmarks.measured import Measured, ratio
from tools.benchmarks.trl.frozen import Frozen
from tools.benchmarks.trl.memory import OURS, QWEN, THEIRS_BEST, side, status

LIMIT_MIB = 1024
"""Memory that an update may allocate, beyond what the process has once the trainer is made."""
SHORTEST = 256
MULTIPLES = (4, 8)
_NO_MEMORY = ("can't allocate memory", "not enough memory", "MemoryError", "std::bad_alloc")


def length(step: int) -> int:
    """Tokens at a step of the search."""
    return round(SHORTEST * 2 ** (step / 2))


def child(name: str, tokens: int) -> None:
    """One update, or a failure."""
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        trained = side(name, Frozen(QWEN, 1, 2, median=1e9, longest=tokens), Path(folder))
        limit = (status("VmData") + LIMIT_MIB * 1024) * 1024
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        trained.update()


def fits(name: str, tokens: int) -> bool:
    """Return True if an update over responses of that length ends.

    Raises:
        RuntimeError: it failed for another reason than memory.
    """
    command = [sys.executable, "-m", "tools.benchmarks.trl.longest", name, str(tokens)]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode and not any(sign in ended.stderr for sign in _NO_MEMORY):
        raise RuntimeError(f"{name}, {tokens} tokens: {ended.stderr[-2000:]}")
    return ended.returncode == 0


def measure(repeats: int) -> Measured:
    """Once, since what fits is the same every time. TRL first; ours at multiples of what TRL reaches."""
    steps = count()
    theirs = next(length(step) for step in steps if not fits(THEIRS_BEST, length(step + 1)))
    ours = max((times * theirs for times in MULTIPLES if fits(OURS, times * theirs)), default=0)
    values = {OURS: [float(ours)], THEIRS_BEST: [float(theirs)]}
    return Measured(
        name="longest",
        what=f"The longest response whose update allocates at most {LIMIT_MIB} MiB. Ours was tried at "
        f"{' and '.join(map(str, MULTIPLES))} times the length of TRL's, and not beyond.",
        unit="tokens",
        ways=values,
        ratios=[ratio(values, OURS, THEIRS_BEST, 4)],
        facts={"vocabulary": QWEN.vocabulary},
    )


if __name__ == "__main__":
    child(sys.argv[1], int(sys.argv[2]))
