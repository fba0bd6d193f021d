"""Peak memory of an update of the trainer and of TRL's, each in its own process.

    python -m tools.benchmarks memory

The model is a small Qwen2 with the original vocabulary of 151,936 tokens, so that its output embedding needs most of
the memory. The peak is that of the second update, minus the memory of the process before this update.
"""

import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import torch

from tools.benchmarks.measurement import Measurement, measure_interleaved, memory_mib, ratio
from tools.benchmarks.trl.frozen import FrozenRollouts, Shape
from tools.benchmarks.trl.trainers import BEST, DEFAULTS, OURS, OurTrainer, TrlTrainer

QWEN = Shape(vocabulary=151_936, width=128, layers=2)
FROZEN = FrozenRollouts(QWEN, groups=1, group_size=8, median=60, longest=512)
BUDGET = 1024
FINDING = (
    "In samples of the resident memory, one per millisecond, the peak is in the backward pass of the output embedding, "
    "where the gradient of earlier micro-batches, the gradient of this micro-batch, the logits of a chunk and their "
    "log-probabilities exist at the same time. A chunk is freed before the next one is computed, and the gradient of "
    "the embedding is summed in place."
)


def make_trainer(name: str, frozen: FrozenRollouts, folder: Path) -> OurTrainer | TrlTrainer:
    """Return one of the three trainers. All use gradient checkpointing, which is the default of TRL."""
    if name == OURS:
        return OurTrainer(frozen, BUDGET, checkpointing=True)
    return TrlTrainer(frozen, folder, 8 if name == DEFAULTS else 1)


def print_peak(name: str) -> None:
    """Make two updates, and print the peak of the second one, MiB."""
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(name, FROZEN, Path(folder))
        trainer.update()
        Path("/proc/self/clear_refs").write_text("5")  # This resets the peak.
        before = memory_mib("VmRSS")
        trainer.update()
        print(memory_mib("VmHWM") - before)


def peak(name: str) -> float:
    """Return the peak of an update in a new process, MiB.

    Raises:
        RuntimeError: the process failed.
    """
    command = [sys.executable, "-m", "tools.benchmarks.trl.memory", name]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"{name}: {ended.stderr[-2000:]}")
    return float(ended.stdout.splitlines()[-1])


def measure(repeats: int) -> Measurement:
    """Measure all three trainers."""
    ways = {name: partial(peak, name) for name in (OURS, DEFAULTS, BEST)}
    values = measure_interleaved(ways, repeats, "memory")
    return Measurement(
        name="memory",
        what="Peak memory of an update, minus the memory of the process before the update.",
        unit="MiB",
        ways=values,
        ratios=[ratio(values, OURS, other, 0.6, at_most=True) for other in (DEFAULTS, BEST)],
        facts={"tokens": FROZEN.tokens, "vocabulary": QWEN.vocabulary, "budget": BUDGET},
        finding=FINDING,
    )


if __name__ == "__main__":
    print_peak(sys.argv[1])
