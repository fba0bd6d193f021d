"""Milliseconds of an update that the trainer takes besides the model: packing, the objective and diagnostics.

    python -m tools.benchmarks trainer

It is the time of whole updates of a tiny policy, minus the time inside of the trainer's backend: forward and backward
passes, clipping and AdamW. The backward pass of the objective is part of the time of the backend.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from tasks.models.packing import PACKED_ATTENTION
from tasks.models.scorer import Scorer
from tasks.settings import OptimizeSettings
from tasks.train.backend import open_backend
from tasks.train.trainer import Trainer
from tools.benchmarks.measurement import Measurement, Ratio
from tools.benchmarks.trl.frozen import FrozenRollouts, Shape

UPDATES = 64
PER_UPDATE = 16
FROZEN = FrozenRollouts(
    Shape(vocabulary=32, width=64, layers=2), groups=UPDATES * 2, group_size=8, median=20, longest=64
)
LIMIT_MS = 2.0
FINDING = (
    "cProfile: the trainer's own time consists of small operations, mostly of the objective and of the row of "
    "diagnostics. The numbers of an update are gathered once, not per micro-batch."
)


class _TimedBackend:
    """A backend that counts the seconds inside of its methods."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.seconds: dict[str, float] = defaultdict(float)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def __call__(self, *arguments: Any) -> Any:
        return self._time("forward", self._backend, *arguments)

    def backward(self, *arguments: Any, **named: Any) -> Any:
        return self._time("backward", self._backend.backward, *arguments, **named)

    def step(self, *arguments: Any) -> Any:
        return self._time("step", self._backend.step, *arguments)

    def _time(self, name: str, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        start = time.perf_counter()
        result = method(*arguments, **named)
        self.seconds[name] += time.perf_counter() - start
        return result


def milliseconds(preset: str) -> dict[str, float]:
    """Train a tiny policy, and return the milliseconds of an update by part."""
    settings = OptimizeSettings.parse(
        {"preset": preset, "responses_per_update": PER_UPDATE, "learning_rate": 1e-6, "max_logp_mismatch": 1e9}
    )
    scorer = Scorer(FROZEN.shape.model(PACKED_ATTENTION), settings.logp_chunk_tokens)
    backend: Any = _TimedBackend(open_backend(scorer, settings))
    batches = list(np.arange(UPDATES * PER_UPDATE).reshape(UPDATES, PER_UPDATE))
    phases: dict[str, float] = {}

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        backend.seconds.clear()
        start = time.perf_counter()
        yield
        phases[name] = time.perf_counter() - start

    Trainer(backend, settings, FROZEN.longest, phase=phase).train(FROZEN.as_responses(), batches, 0)
    own = phases["optimize"] - sum(backend.seconds.values())
    return {name: 1000 * value / UPDATES for name, value in {"the trainer's own": own, **backend.seconds}.items()}


def measure(repeats: int) -> Measurement:
    """Measure updates of Mu-GRPO, whose objective also has a veto."""
    milliseconds("mu_grpo")  # This warms up.
    results = [milliseconds("mu_grpo") for _ in range(repeats)]
    values = {name: [one[name] for one in results] for name in results[0]}
    own = values["the trainer's own"]
    return Measurement(
        name="trainer",
        what=f"Milliseconds of an update of {PER_UPDATE} responses by Mu-GRPO, mean over {UPDATES} updates.",
        unit="ms",
        ways=values,
        ratios=[Ratio("the trainer's own", "1 ms", own, LIMIT_MS, at_most=True)],
        facts={"tokens per update": FROZEN.tokens / UPDATES, "threads": torch.get_num_threads()},
        finding=FINDING,
    )
