"""What an update costs besides the model: packing, the objective, diagnostics, bookkeeping.

    python -m tools.benchmarks trainer

The tiny policy's updates with the whole trainer, minus the time inside its backend: forward and backward passes,
clipping and AdamW. What autograd does for the objective counts as backward.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tasks.models.packing import PACKED_ATTENTION
from tasks.models.scorer import Scorer
from tasks.settings import OptimizeSettings
from tasks.train.backends import open_backend
from tasks.train.trainer import Trainer
from tools.benchmarks.measured import Measured, Ratio
from tools.benchmarks.trl.frozen import Frozen, Shape

UPDATES = 64
PER_UPDATE = 16
FROZEN = Frozen(Shape(vocabulary=32, width=64, layers=2), groups=UPDATES * 2, group_size=8, median=20, longest=64)
LIMIT_MS = 2.0
FINDING = (
    "cProfile: the trainer's own time consists of small operations, mostly of the objective and of the row of "
    "diagnostics. The numbers of an update are gathered once, not per micro-batch."
)


class _Timed:
    """A backend that knows how long it was at work."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.seconds: dict[str, float] = defaultdict(float)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def __call__(self, *arguments: Any) -> Any:
        return self._timed("forward", self._backend, *arguments)

    def backward(self, *arguments: Any, **named: Any) -> Any:
        return self._timed("backward", self._backend.backward, *arguments, **named)

    def step(self, *arguments: Any) -> Any:
        return self._timed("step", self._backend.step, *arguments)

    def _timed(self, name: str, work: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        start = time.perf_counter()
        done = work(*arguments, **named)
        self.seconds[name] += time.perf_counter() - start
        return done


def stage(preset: str) -> dict[str, float]:
    """Milliseconds of an update, by what they were spent on."""
    settings = OptimizeSettings.parse(
        {"preset": preset, "responses_per_update": PER_UPDATE, "learning_rate": 1e-6, "max_logp_mismatch": 1e9}
    )
    scorer = Scorer(FROZEN.shape.model(PACKED_ATTENTION), settings.logp_chunk_tokens)
    backend: Any = _Timed(open_backend(scorer, settings))
    batches = list(np.arange(UPDATES * PER_UPDATE).reshape(UPDATES, PER_UPDATE))
    spent: dict[str, float] = {}

    class Phase:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            backend.seconds.clear()
            self.start = time.perf_counter()

        def __exit__(self, *_: object) -> None:
            spent[self.name] = time.perf_counter() - self.start

    Trainer(backend, settings, FROZEN.longest, phase=Phase).train(FROZEN.collected(), batches, 0)
    inside = dict(backend.seconds)
    own = spent["optimize"] - sum(inside.values())
    return {name: 1000 * value / UPDATES for name, value in {"the trainer's own": own, **inside}.items()}


def measure(repeats: int) -> Measured:
    """Measure updates of Mu-GRPO, whose objective has a veto besides."""
    stage("mu_grpo")
    found = [stage("mu_grpo") for _ in range(repeats)]
    values = {name: [one[name] for one in found] for name in found[0]}
    own = values["the trainer's own"]
    return Measured(
        name="trainer",
        what=f"Milliseconds of an update of {PER_UPDATE} responses by Mu-GRPO, mean over {UPDATES} updates.",
        unit="ms",
        ways=values,
        ratios=[Ratio("the trainer's own", "1 ms", own, LIMIT_MS, at_most=True)],
        facts={"tokens per update": FROZEN.tokens / UPDATES, "threads": torch.get_num_threads()},
        finding=FINDING,
    )
