"""Trained tokens per second of the trainer and of TRL's, with the same model, rollouts and update.

    python -m tools.benchmarks training

Loss and gradients of one update of both must be equal, which is checked before the measurement.
"""

import tempfile
from pathlib import Path

from tools.benchmarks.measurement import Measurement, measure_interleaved, ratio
from tools.benchmarks.trl.frozen import SIGMA, FrozenRollouts, Shape
from tools.benchmarks.trl.trainers import BEST, DEFAULTS, OURS, OurTrainer, TrlTrainer

FROZEN = FrozenRollouts(Shape(vocabulary=8192, width=256, layers=4), groups=4, group_size=8, median=60, longest=512)
BUDGET = 2048
MICRO_BATCHES = (1, 2, 4, 8, 16, 32)
PARITY = 1e-5


def parity(folder: Path) -> dict[str, float]:
    """Return the largest differences of loss and gradients between both trainers.

    Raises:
        AssertionError: a difference is larger than ``PARITY``.
    """
    (our_loss, ours), (trl_loss, trl) = (
        trainer.gradients() for trainer in (OurTrainer(FROZEN, BUDGET), TrlTrainer(FROZEN, folder, max_grad_norm=1e9))
    )
    assert ours.keys() == trl.keys()
    differences = {
        "loss": abs(our_loss - trl_loss),
        "gradients": max(float((ours[name] - trl[name]).abs().max()) for name in ours),
        "largest gradient": max(float(gradient.abs().max()) for gradient in ours.values()),
    }
    assert max(differences["loss"], differences["gradients"]) <= PARITY, differences
    return differences


def measure(repeats: int) -> Measurement:
    """Measure all three, after a search for the fastest micro-batch of TRL."""
    with tempfile.TemporaryDirectory() as folder:
        differences = parity(Path(folder))
        ours = OurTrainer(FROZEN, BUDGET)
        defaults = TrlTrainer(FROZEN, Path(folder))
        by_size = {size: TrlTrainer(FROZEN, Path(folder), size, checkpointing=False) for size in MICRO_BATCHES}
        seconds_by_size = {size: min(one.update(), one.update()) for size, one in by_size.items()}
        best = by_size[min(seconds_by_size, key=seconds_by_size.__getitem__)]
        ours.update(), defaults.update()  # These warm up.
        ways = {OURS: ours.update, DEFAULTS: defaults.update, BEST: best.update}
        seconds = measure_interleaved(ways, repeats, "training")
    rates = {name: [FROZEN.tokens / one for one in values] for name, values in seconds.items()}
    return Measurement(
        name="training",
        what="Tokens of an update of GRPO, without padding, per second of its forward and backward passes and its "
        "step of AdamW.",
        unit="tokens/s",
        ways=rates,
        ratios=[ratio(rates, OURS, BEST, 1.5), ratio(rates, OURS, DEFAULTS, 2.5)],
        facts={
            "differences": differences,
            "tokens": FROZEN.tokens,
            "sigma": SIGMA,
            "TRL's micro-batches, s": seconds_by_size,
        },
    )
