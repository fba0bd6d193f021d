"""Progress of long work: a bar on a terminal, plain lines elsewhere, and an end to work that hangs."""

import faulthandler
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tasks.process.logs import logger

_PLAIN_EVERY_SECONDS = 10.0
_OPEN: list[str] = []
"""Titles of the open bars, the outermost first; empty for a bar that is not shown."""
_limit_seconds: float | None = None


def end_when_it_hangs(seconds: float = 2 * 3600.0) -> None:
    """End this process with exit code 1 and the stacks of its threads if a bar does not advance for so long.

    It is for pods, where another attempt continues, since a hanging collective or engine raises no error.
    """
    global _limit_seconds
    _limit_seconds = seconds


class Bar:
    """The progress of one piece of work."""

    def __init__(self, title: str, total: int, progress: Progress | None, silent: bool) -> None:
        self._title, self._total, self._progress, self._silent = title, total, progress, silent
        self._done, self._note = 0, ""
        self._started = self._printed = time.monotonic()
        self._task = progress.add_task(title, total=total, note="") if progress else None

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Advance by ``steps``, and show ``note`` beside the bar."""
        _watch()
        self._done += steps
        self._note = note or self._note
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, advance=steps, note=self._note)
        elif not self._silent and time.monotonic() - self._printed >= _PLAIN_EVERY_SECONDS:
            self._printed = time.monotonic()
            self._line()

    def reach(self, done: int) -> None:
        """Set the number of completed steps."""
        self.advance(max(0, done - self._done))

    def finish(self) -> None:
        """Print the last plain line; a bar needs none."""
        if self._progress is None and not self._silent:
            self._line()

    def _line(self) -> None:
        seconds = time.monotonic() - self._started
        print(f"{self._title}: {self._done}/{self._total} in {seconds:.1f} s {self._note}".rstrip(), flush=True)


def _watch() -> None:
    if _limit_seconds is not None:
        faulthandler.dump_traceback_later(_limit_seconds, exit=True)


@contextmanager
def bar(title: str, total: int) -> Iterator[Bar]:
    """Show the progress of ``total`` steps.

    It is a bar on standard error if that is a terminal, else lines on standard output. It is silent inside of another
    bar, without a title, above log level info, and in ranks other than 0.
    """
    silent = not title or any(_OPEN) or os.environ.get("RANK", "0") != "0" or not logger().isEnabledFor(logging.INFO)
    drawn = None if silent or not sys.stderr.isatty() else _draw()
    _OPEN.append("" if silent else title)
    _watch()
    try:
        with drawn or nullcontext():
            opened = Bar(title, total, drawn, silent)
            yield opened
            opened.finish()
    finally:
        _OPEN.pop()
        if not _OPEN:
            faulthandler.cancel_dump_traceback_later()


def _draw() -> Progress:
    note = TextColumn("{task.fields[note]}")
    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    return Progress(TextColumn("{task.description}"), *columns, note, console=Console(stderr=True))
