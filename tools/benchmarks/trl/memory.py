"""Peak memory of an update beside TRL's, each in a process of its own.

    python -m tools.benchmarks memory

A Qwen2 with the true vocabulary of 151,936 tokens on a small body, so that the output embedding dominates. The peak is
that of an update after a first one, above what the process held before it.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from tools.benchmarks.measured import Measured, in_turn, ratio
from tools.benchmarks.trl.frozen import Frozen, Shape
from tools.benchmarks.trl.sides import Ours, Theirs

QWEN = Shape(vocabulary=151_936, width=128, layers=2)
FROZEN = Frozen(QWEN, groups=1, group_size=8, median=60, longest=512)
BUDGET = 1024
OURS, THEIRS, THEIRS_BEST = "ours", "TRL, its defaults", "TRL, its best"
FINDING = (
    "Resident memory is sampled every millisecond. The peak is in the backward pass of the output embedding. There "
    "the gradient so far, the gradient of this micro-batch, the logits of a chunk and their log-probabilities exist"
    " at the same time. A chunk is freed before the next one is made, and the gradient of the embedding is summed "
    "in place."
)


def side(name: str, frozen: Frozen, folder: Path) -> Ours | Theirs:
    """One of the three; ours and TRL's both compute activations again in the backward pass, as TRL does by default."""
    if name == OURS:
        return Ours(frozen, BUDGET, checkpointing=True)
    return Theirs(frozen, folder, 8 if name == THEIRS else 1)


def child(name: str) -> None:
    """Prints MiB of the peak."""
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        trained = side(name, FROZEN, Path(folder))
        trained.update()
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
        before = status("VmRSS")
        trained.update()
        print((status("VmHWM") - before) / 1024)


def status(name: str) -> int:
    """KiB of this process, as Linux names it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def peak(name: str) -> float:
    """MiB of an update's peak in a process of its own.

    Raises:
        RuntimeError: it failed.
    """
    command = [sys.executable, "-m", "tools.benchmarks.trl.memory", name]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"{name}: {ended.stderr[-2000:]}")
    return float(ended.stdout.splitlines()[-1])


def measure(repeats: int) -> Measured:
    """Peak memory of one update."""
    ways = {name: lambda name=name: peak(name) for name in (OURS, THEIRS, THEIRS_BEST)}
    values = in_turn(ways, repeats, "memory")
    return Measured(
        name="memory",
        what="Peak memory of an update, minus the memory of the process before it.",
        unit="MiB",
        ways=values,
        ratios=[ratio(values, OURS, other, 0.6, at_most=True) for other in (THEIRS, THEIRS_BEST)],
        facts={"tokens": FROZEN.tokens, "vocabulary": QWEN.vocabulary, "budget": BUDGET},
        finding=FINDING,
    )


if __name__ == "__main__":
    child(sys.argv[1])
