"""SIGTERM as a request: work that can save where it stands does so, and then stops."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FrameType
from typing import NoReturn, ParamSpec, TypeVar

from tasks.errors import UserError

_ASKED = threading.Event()
_GOES_ON = "goes_on_after_sigterm"
Inputs = ParamSpec("Inputs")
Made = TypeVar("Made")


class Interrupted(UserError):
    """The work was asked to stop and has saved where it stands; starting it again goes on from there."""

    exit_code = 128 + signal.SIGTERM


@contextmanager
def heeded() -> Iterator[None]:
    """Inside the block SIGTERM only notes the request; a second one ends the process. Outside of it nothing changes."""
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


def heeding(step: Callable[Inputs, Made]) -> Callable[Inputs, Made]:
    """A step that heeds SIGTERM: it goes on until it has saved where it stands."""

    @wraps(step)
    def within(*inputs: Inputs.args, **named: Inputs.kwargs) -> Made:
        with heeded():
            return step(*inputs, **named)

    setattr(within, _GOES_ON, True)
    return within


def goes_on(step: Callable[..., object]) -> bool:
    """Return True if a step keeps running after SIGTERM until it has saved its state."""
    return getattr(step, _GOES_ON, False)


def asked() -> bool:
    """Whether a stop was asked for."""
    return _ASKED.is_set()


def stop_if_asked(what: str) -> None:
    """Ends the work if a stop was asked for; to be called when ``what`` has been saved.

    Raises:
        Interrupted: a stop was asked for.
    """
    if asked():
        stop(what)


def stop(what: str) -> NoReturn:
    """Ends the work, which was asked for; ``what`` has been saved.

    Raises:
        Interrupted: always.
    """
    _ASKED.clear()
    raise Interrupted(f"stopped by SIGTERM after {what}. Start the same command again: it goes on from there.")
