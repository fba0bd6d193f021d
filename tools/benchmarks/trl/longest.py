"""Longest response that the trainer and TRL's can train on with limited memory.

    python -m tools.benchmarks longest

An update over two responses of one length to one prompt runs in its own process, whose memory is limited before the
update. For TRL, the length is multiplied by the square root of two until an update fails. Models and trainers are those
of the benchmark ``memory``; TRL takes one response at a time.
"""

import resource
import subprocess
import sys
import tempfile
from itertools import count
from pathlib import Path

import torch

from tools.benchmarks.measurement import Measurement, memory_mib, ratio
from tools.benchmarks.trl.frozen import FrozenRollouts
from tools.benchmarks.trl.memory import QWEN, make_trainer
from tools.benchmarks.trl.trainers import BEST, OURS

LIMIT_MIB = 1024
"""Memory that an update may allocate, in addition to the memory of the process before the update."""
SHORTEST = 256
MULTIPLES = (4, 8)
_NO_MEMORY = ("can't allocate memory", "not enough memory", "MemoryError", "std::bad_alloc")


def length(step: int) -> int:
    """Return the tokens of a response at a step of the search."""
    return round(SHORTEST * 2 ** (step / 2))


def update_with_limit(name: str, tokens: int) -> None:
    """Make an update with limited memory, which fails if the memory is not enough."""
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(name, FrozenRollouts(QWEN, 1, 2, median=1e9, longest=tokens), Path(folder))
        limit = int((memory_mib("VmData") + LIMIT_MIB) * 2**20)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        trainer.update()


def fits(name: str, tokens: int) -> bool:
    """Return whether an update over responses of a length has enough memory.

    Raises:
        RuntimeError: the update failed for another reason.
    """
    command = [sys.executable, "-m", "tools.benchmarks.trl.longest", name, str(tokens)]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode and not any(sign in ended.stderr for sign in _NO_MEMORY):
        raise RuntimeError(f"{name}, {tokens} tokens: {ended.stderr[-2000:]}")
    return ended.returncode == 0


def measure(repeats: int) -> Measurement:
    """Search once, because the result is always the same: first for TRL, then for ours at multiples of its length."""
    trl = next(length(step) for step in count() if not fits(BEST, length(step + 1)))
    ours = max((times * trl for times in MULTIPLES if fits(OURS, times * trl)), default=0)
    values = {OURS: [float(ours)], BEST: [float(trl)]}
    return Measurement(
        name="longest",
        what=f"The longest response whose update allocates at most {LIMIT_MIB} MiB. Ours was only tried at "
        f"{' and '.join(map(str, MULTIPLES))} times the length of TRL's.",
        unit="tokens",
        ways=values,
        ratios=[ratio(values, OURS, BEST, 4)],
        facts={"vocabulary": QWEN.vocabulary},
    )


if __name__ == "__main__":
    update_with_limit(sys.argv[1], int(sys.argv[2]))
