"""SIGTERM as a request: a step saves its state and then stops."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn, TypeVar

from tasks.errors import UserError

_ASKED = threading.Event()
_GOES_ON = "goes_on_after_sigterm"
Step = TypeVar("Step", bound=Callable[..., object])


class Interrupted(UserError):
    """The work was asked to stop and has saved its state; starting it again goes on from there."""

    exit_code = 128 + signal.SIGTERM


@contextmanager
def heeded() -> Iterator[None]:
    """Only note the first SIGTERM inside the block; a second one ends the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def note(number: int, _: FrameType | None) -> None:
        _ASKED.set()
        signal.signal(number, signal.SIG_DFL)

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def heeding(step: Step) -> Step:
    """Wrap a step that keeps running after SIGTERM until it has saved its state."""
    wrapped = heeded()(step)
    setattr(wrapped, _GOES_ON, True)
    return wrapped


def goes_on(step: Callable[..., object]) -> bool:
    """Return True if a step keeps running after SIGTERM until it has saved its state."""
    return getattr(step, _GOES_ON, False)


def asked() -> bool:
    """Return True if a stop was asked for."""
    return _ASKED.is_set()


def stop_if_asked(what: str) -> None:
    """Raise Interrupted if a stop was asked for; to be called when ``what`` has been saved."""
    if asked():
        stop(what)


def stop(what: str) -> NoReturn:
    """Raise Interrupted, as was asked for; ``what`` has been saved."""
    _ASKED.clear()
    raise Interrupted(f"stopped by SIGTERM after {what}. Start the same command again: it goes on from there.")
