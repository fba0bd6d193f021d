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
    made = {"process": Process(name, clock.now - imports), "gpus": gpus, "execution": name, "waits": list(waits)}
    given = {function: mock.Mock(return_value=value) for function, value in made.items()}
    with mock.patch.multiple("tasks.store.store", time=SimpleNamespace(time=clock, perf_counter=clock), **given):
        yield
