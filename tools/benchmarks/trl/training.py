"""Trained tokens per second: the trainer beside TRL's, on one frozen rollout file, the same model and update.

    python -m tools.benchmarks training

Before anything is timed, loss and gradients of one update must be the same on both sides.
"""

import tempfile
from pathlib import Path

from tools.benchmarks.measured import Measured, in_turn, ratio
from tools.benchmarks.trl.frozen import SIGMA, Frozen, Shape
from tools.benchmarks.trl.sides import Ours, Theirs

FROZEN = Frozen(Shape(vocabulary=8192, width=256, layers=4), groups=4, group_size=8, median=60, longest=512)
BUDGET = 2048
MICRO_BATCHES = (1, 2, 4, 8, 16, 32)


PARITY = 1e-5


def parity(folder: Path) -> dict[str, float]:
    """Largest differences of loss and gradients between the two sides.

    Raises:
        AssertionError: they are above ``PARITY``.
    """
    (our_loss, ours), (their_loss, theirs) = (
        side.gradients() for side in (Ours(FROZEN, BUDGET), Theirs(FROZEN, folder, max_grad_norm=1e9))
    )
    assert ours.keys() == theirs.keys()
    gradients = max(float((ours[name] - theirs[name]).abs().max()) for name in ours)
    found = {"loss": abs(our_loss - their_loss), "gradients": gradients}
    found["largest gradient"] = max(float(gradient.abs().max()) for gradient in ours.values())
    assert found["loss"] <= PARITY, found
    assert found["gradients"] <= PARITY, found
    return found


def measure(repeats: int) -> Measured:
    """All three in turn; TRL's best micro-batch is found first."""
    with tempfile.TemporaryDirectory() as folder:
        same = parity(Path(folder))
        ours = Ours(FROZEN, BUDGET)
        defaults = Theirs(FROZEN, Path(folder))
        tried = {size: Theirs(FROZEN, Path(folder), size, checkpointing=False) for size in MICRO_BATCHES}
        trials = {size: min(one.update(), one.update()) for size, one in tried.items()}
        best = min(trials, key=trials.__getitem__)
        ours.update(), defaults.update()
        ways = {"ours": ours.update, "TRL, its defaults": defaults.update, "TRL, its best": tried[best].update}
        seconds = in_turn(ways, repeats, "training")
    rates = {name: [FROZEN.tokens / one for one in values] for name, values in seconds.items()}
    return Measured(
        name="training",
        what="Tokens of an update of GRPO, without padding, per second of its passes and its step of AdamW.",
        unit="tokens/s",
        ways=rates,
        ratios=[
            ratio(rates, "ours", "TRL, its best", 1.5),
            ratio(rates, "ours", "TRL, its defaults", 2.5),
        ],
        facts={"differences": same, "tokens": FROZEN.tokens, "sigma": SIGMA, "TRL's micro-batches, s": trials},
    )
