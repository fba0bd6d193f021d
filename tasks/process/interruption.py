"""Handling of signals: after SIGTERM a step saves its state and then stops; Ctrl-C stops a program at any time."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, TypeVar

from tasks.errors import UserError

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

CALL_SECONDS = 100.0
"""Seconds after SIGTERM in which a call of an engine may end, so that its responses are saved; a little less than the
grace periods of k8s/base/pod-templates/rollout.yaml and evaluate.yaml."""
STOPPED = "Stopped. Start the same command again: it continues from the last state that was saved."
"""Message that a command prints after Ctrl-C."""
_STOP = threading.Event()
_stop_time = 0.0
_DEFERS = "defers_sigterm"
_REPEAT_SECONDS = 0.1
"""Seconds after which a lost SIGINT is repeated, so that the destructor that lost it has ended."""
Step = TypeVar("Step", bound=Callable[..., object])


class Interrupted(UserError):
    """The step stopped after SIGTERM and has saved its state, from which the same command continues."""

    exit_code = 128 + signal.SIGTERM


@contextmanager
def defer_sigterm() -> Iterator[None]:
    """Record the first SIGTERM inside the block without stopping; a second SIGTERM ends the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def record(number: int, _: FrameType | None) -> None:
        global _stop_time
        _stop_time = time.monotonic()
        _STOP.set()
        signal.signal(number, signal.SIG_DFL)

    previous = signal.signal(signal.SIGTERM, record)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def save_on_sigterm(step: Step) -> Step:
    """Decorate a step that keeps running after SIGTERM until it has saved its state."""
    wrapped = defer_sigterm()(step)
    setattr(wrapped, _DEFERS, True)
    return wrapped


def defers_sigterm(step: Callable[..., object]) -> bool:
    """Return True if a step keeps running after SIGTERM until it has saved its state."""
    return getattr(step, _DEFERS, False)


def stop_requested() -> bool:
    """Return True if SIGTERM came and the step has not stopped yet."""
    return _STOP.is_set()


def stop_if_late() -> None:
    """Raise Interrupted if SIGTERM came more than CALL_SECONDS ago; call this inside long calls of an engine."""
    if stop_requested() and time.monotonic() - _stop_time > CALL_SECONDS:
        stop("the last complete part")


def stop(saved: str) -> NoReturn:
    """Raise Interrupted; call this after a save, of which ``saved`` is the name for the message."""
    _STOP.clear()
    raise Interrupted(f"stopped by SIGTERM after {saved}. Start the same command again: it continues from there.")


def repeat_lost_sigint() -> None:
    """Send SIGINT again whenever Python discards the exception of its handler.

    Python discards every exception that is raised in a destructor. If Ctrl-C comes while one runs, such as that of a
    temporary folder, the program would go on.
    """
    report = sys.unraisablehook

    def repeat(unraisable: "UnraisableHookArgs") -> None:
        main = threading.main_thread()
        if threading.current_thread() is main and issubclass(unraisable.exc_type, KeyboardInterrupt | SystemExit):
            threading.Timer(_REPEAT_SECONDS, signal.pthread_kill, (main.ident, signal.SIGINT)).start()
        else:
            report(unraisable)

    sys.unraisablehook = repeat
