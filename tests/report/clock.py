"""Time that a test decides about, so that every second of a ledger is known beforehand."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from unittest import mock

from tasks.process.provenance import Process


class Clock:
    """Time that passes only when told to."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@contextmanager
def process(
    clock: Clock, name: str, imports: float = 6.0, gpus: int = 0, waits: Sequence[tuple[float, float]] = ()
) -> Iterator[None]:
    """What the store writes inside comes from the process ``name``, which started ``imports`` seconds ago.

    It is an execution of its own, and has ``waits`` behind it.
    """
    place = "tasks.store.store"
    fake = SimpleNamespace(time=clock, perf_counter=clock)
    with (
        mock.patch(f"{place}.process", return_value=Process(name, clock.now - imports)),
        mock.patch(f"{place}.gpus", return_value=gpus),
        mock.patch(f"{place}.execution", return_value=name),
        mock.patch(f"{place}.waits", return_value=list(waits)),
        mock.patch(f"{place}.time", fake),
    ):
        yield
