"""Output of a run: its log, and the progress of long work, with a watchdog against hanging.

The variable ``MU_GRPO_LOG_LEVEL`` sets the level of the log: debug, info (the default) or warning. Progress has the
level info. Debug adds the artifacts that were found in the store, and every retry of a request.
"""

import faulthandler
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from io import TextIOWrapper

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tasks.errors import SettingsError

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}
_PLAIN_EVERY_SECONDS = 10.0
_OPEN: list[str] = []
"""Titles of the open bars, outermost first; a bar that is not shown has an empty title."""
_limit_seconds: float | None = None


@cache
def logger() -> logging.Logger:
    """Return the logger of the run, which writes lines to standard output.

    Raises:
        SettingsError: ``MU_GRPO_LOG_LEVEL`` is not a level.
    """
    name = os.environ.get("MU_GRPO_LOG_LEVEL", "info").lower()
    if name not in LEVELS:
        raise SettingsError(f"MU_GRPO_LOG_LEVEL: got {name!r}; allowed: {', '.join(LEVELS)}")
    log = logging.getLogger("mu_grpo")
    log.setLevel(LEVELS[name])
    log.propagate = False
    log.addHandler(_StdoutHandler())
    return log


def replace_unencodable_text() -> None:
    """Print question marks for characters that the terminal's encoding lacks, such as the lines of tables in ASCII."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


class _StdoutHandler(logging.Handler):
    """A handler that writes to the current ``sys.stdout``, which may be replaced at any time."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stdout, flush=True)


def end_when_it_hangs(seconds: float = 2 * 3600.0) -> None:
    """End this process with exit code 1 and its stack traces when a bar does not advance for ``seconds``.

    A hanging collective or engine raises no error. In a pod, the next attempt then continues from the saved state.
    """
    global _limit_seconds
    _limit_seconds = seconds


class Bar:
    """A progress bar; without a terminal, plain lines."""

    def __init__(self, title: str, total: int, progress: Progress | None, silent: bool) -> None:
        self._title, self._total, self._progress, self._silent = title, total, progress, silent
        self._done, self._note = 0, ""
        self._started = self._printed = time.monotonic()
        self._task = progress.add_task(title, total=total, note="") if progress else None

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Count ``steps`` more as done, and show ``note`` beside the bar."""
        _restart_watchdog()
        self._done += steps
        self._note = note or self._note
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, advance=steps, note=self._note)
        elif not self._silent and self._done < self._total and time.monotonic() - self._printed >= _PLAIN_EVERY_SECONDS:
            self._printed = time.monotonic()
            self._print_line()

    def reach(self, done: int) -> None:
        """Advance to ``done`` steps in total."""
        self.advance(max(0, done - self._done))

    def finish(self) -> None:
        """Print the last plain line, if there is no bar."""
        if self._progress is None and not self._silent:
            self._print_line()

    def _print_line(self) -> None:
        seconds = time.monotonic() - self._started
        print(f"{self._title}: {self._done}/{self._total} in {seconds:.1f} s {self._note}".rstrip(), flush=True)


def _restart_watchdog() -> None:
    if _limit_seconds is not None and sys.__stderr__ is not None:
        # A program that captures output may have replaced sys.stderr by an object that is not a file.
        faulthandler.dump_traceback_later(_limit_seconds, exit=True, file=sys.__stderr__)


@contextmanager
def bar(title: str, total: int) -> Iterator[Bar]:
    """Show the progress of ``total`` steps.

    If standard error is a terminal, it gets a bar; else standard output gets lines. Nothing is shown inside of another
    bar, without a title, at log level warning, and in processes of a rank other than 0.
    """
    silent = not title or any(_OPEN) or os.environ.get("RANK", "0") != "0" or not logger().isEnabledFor(logging.INFO)
    display = None if silent or not sys.stderr.isatty() else _display()
    _OPEN.append("" if silent else title)
    _restart_watchdog()
    try:
        with display or nullcontext():
            progress = Bar(title, total, display, silent)
            yield progress
            progress.finish()
    finally:
        _OPEN.pop()
        if not _OPEN:
            faulthandler.cancel_dump_traceback_later()


def _display() -> Progress:
    note = TextColumn("{task.fields[note]}")
    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    return Progress(TextColumn("{task.description}"), *columns, note, console=Console(stderr=True))
