"""Peak memory of an update, and the longest response that fits into a limit, each in a process of its own.

    python -m tests.benchmarks memory

A Qwen2 with the true vocabulary of 151,936 tokens on a small body, so that the output embedding dominates. The peak is
that of an update after a first one, above what the process held before it; the limit is one on what the process may
hold (RLIMIT_DATA) above what it holds with its model loaded.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import psutil
import torch

from tests.benchmarks.measured import Measured, in_turn, ratio
from tests.benchmarks.trl.frozen import Frozen, Shape
from tests.benchmarks.trl.sides import Ours, Theirs

MEBIBYTE = 2**20
QWEN = Shape(vocabulary=151_936, width=128, layers=2)
SAME_RUN = Frozen(QWEN, groups=2, group_size=8, median=60, longest=512)
BUDGET = 1024
OURS, THEIRS, THEIRS_BEST = "ours", "TRL, its defaults", "TRL, its best"
OUT_OF_MEMORY = 12


def side(name: str, frozen: Frozen, folder: Path) -> Ours | Theirs:
    """One of the three, with what saves memory where a response is long."""
    if name == OURS:
        return Ours(frozen, BUDGET, checkpointing=True)
    if name == THEIRS:
        return Theirs(frozen, folder, min(8, len(frozen.responses)))
    return Theirs(frozen, folder, 1)


def child(name: str, frozen: Frozen, limit_mib: int | None) -> None:
    """Prints MiB of the peak."""
    torch.set_num_threads(2)
    process = psutil.Process()
    with tempfile.TemporaryDirectory() as folder:
        trained = side(name, frozen, Path(folder))
        if limit_mib is not None:
            data = _status("VmData")
            resource.setrlimit(resource.RLIMIT_DATA, (data + limit_mib * MEBIBYTE,) * 2)
        try:
            trained.update()
            Path("/proc/self/clear_refs").write_text("5")
            before = process.memory_info().rss
            trained.update()
        except (RuntimeError, MemoryError) as error:
            if "memory" not in str(error) and not isinstance(error, MemoryError):
                raise
            os._exit(OUT_OF_MEMORY)
        print(json.dumps((_status("VmHWM") - before) / MEBIBYTE))


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def peak(name: str, frozen: Frozen, limit_mib: int | None = None) -> float | None:
    """MiB of an update's peak in a process of its own; None where it does not fit into the limit.

    Raises:
        RuntimeError: it failed for another reason.
    """
    shape = asdict(frozen)
    command = [sys.executable, "-m", "tests.benchmarks.trl.memory", json.dumps([name, shape, limit_mib])]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode == OUT_OF_MEMORY:
        return None
    if ended.returncode:
        raise RuntimeError(f"{name}: {ended.stderr[-2000:]}")
    return float(ended.stdout.splitlines()[-1])


def longest(name: str, limit_mib: int) -> float:
    """Response tokens of an update of two, within an eighth."""

    def fits(tokens: int) -> bool:
        frozen = Frozen(QWEN, groups=1, group_size=2, median=1e9, longest=tokens)
        return peak(name, frozen, limit_mib) is not None

    low, high = 0, 256
    while fits(high):
        low, high = high, high * 2
    while low and high > 1.125 * low:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return float(low)


def measure(repeats: int) -> Measured:
    """Peak memory of one update."""
    ways = {name: lambda name=name: float(peak(name, SAME_RUN) or 0) for name in (OURS, THEIRS, THEIRS_BEST)}
    values = in_turn(ways, repeats, "memory")
    return Measured(
        name="memory",
        what="Peak memory of an update above what the process holds before it.",
        unit="MiB",
        ways=values,
        ratios=[ratio(values, OURS, other, 0.6, at_most=True) for other in (THEIRS, THEIRS_BEST)],
        facts={"tokens": SAME_RUN.tokens, "vocabulary": QWEN.vocabulary, "budget": BUDGET},
    )


if __name__ == "__main__":
    of, made, limit = json.loads(sys.argv[1])
    child(of, Frozen(**made | {"shape": Shape(**made["shape"])}), limit)
