"""SIGTERM as a request to save the state of a step and stop."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn, TypeVar

from tasks.errors import UserError

_STOP = threading.Event()
_DEFERS = "defers_sigterm"
Step = TypeVar("Step", bound=Callable[..., object])


class Interrupted(UserError):
    """The step stopped after SIGTERM and has saved its state, from which a restart continues."""

    exit_code = 128 + signal.SIGTERM


@contextmanager
def defer_sigterm() -> Iterator[None]:
    """Record the first SIGTERM inside the block; a second one ends the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def note(number: int, _: FrameType | None) -> None:
        _STOP.set()
        signal.signal(number, signal.SIG_DFL)

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def save_on_sigterm(step: Step) -> Step:
    """Wrap a step that keeps running after SIGTERM until it has saved its state."""
    wrapped = defer_sigterm()(step)
    setattr(wrapped, _DEFERS, True)
    return wrapped


def defers_sigterm(step: Callable[..., object]) -> bool:
    """Return True if a step keeps running after SIGTERM until it has saved its state."""
    return getattr(step, _DEFERS, False)


def stop_requested() -> bool:
    """Return True if SIGTERM came."""
    return _STOP.is_set()


def stop_if_requested(saved: str) -> None:
    """Raise Interrupted if SIGTERM came; call it when ``saved`` has been saved."""
    if stop_requested():
        stop(saved)


def stop(saved: str) -> NoReturn:
    """Raise Interrupted after SIGTERM; ``saved`` has been saved."""
    _STOP.clear()
    raise Interrupted(f"stopped by SIGTERM after {saved}. Start the same command again: it goes on from there.")
