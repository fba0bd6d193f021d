"""Trained tokens per second: the trainer beside TRL's, on one frozen rollout file, the same model and update.

python -m tests.benchmarks.trl
"""

import tempfile
from pathlib import Path

import torch

from tests.benchmarks.measured import Measured, in_turn, ratio
from tests.benchmarks.trl.frozen import SIGMA, Frozen, Shape
from tests.benchmarks.trl.sides import Ours, Theirs

FROZEN = Frozen(Shape(vocabulary=8192, width=256, layers=4), groups=4, group_size=8, median=60, longest=512)
BUDGET = 2048
MICRO_BATCHES = (1, 2, 4, 8, 16, 32)
REPEATS = 5


def main() -> None:
    torch.set_num_threads(2)
    found = training()
    print(found)


def training() -> Measured:
    """Row by row."""
    with tempfile.TemporaryDirectory() as folder:
        ours = Ours(FROZEN, BUDGET)
        defaults = Theirs(FROZEN, Path(folder))
        tried = {size: Theirs(FROZEN, Path(folder), size, checkpointing=False) for size in MICRO_BATCHES}
        trials = {size: min(one.update(), one.update()) for size, one in tried.items()}
        best = min(trials, key=trials.__getitem__)
        ours.update(), defaults.update()
        ways = {"ours": ours.update, "TRL, its defaults": defaults.update, "TRL, its best": tried[best].update}
        seconds = in_turn(ways, REPEATS, "training")
    rates = {name: [FROZEN.tokens / one for one in values] for name, values in seconds.items()}
    return Measured(
        name="training",
        what="",
        unit="tokens/s",
        ways=rates,
        ratios=[
            ratio(rates, "ours", "TRL, its best", 1.5),
            ratio(rates, "ours", "TRL, its defaults", 2.5),
        ],
        facts={"tokens": FROZEN.tokens, "sigma": SIGMA, "TRL's micro-batches, s": trials},
    )


if __name__ == "__main__":
    main()
