"""Progress of long work: a bar on a terminal, a plain line every few seconds elsewhere."""

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tasks.logs import logger

_PLAIN_EVERY_SECONDS = 10.0
_OPEN: list[str] = []


class Bar:
    """What the work reports to."""

    def __init__(self, title: str, total: int, progress: Progress | None, silent: bool = False) -> None:
        self._title, self._total, self._progress, self._silent = title, total, progress, silent
        self._done, self._note = 0, ""
        self._started = self._printed = time.monotonic()
        self._task = progress.add_task(title, total=total, note="") if progress else None

    def advance(self, steps: int = 1, note: str = "") -> None:
        """``steps`` more are done; ``note`` is shown beside the bar."""
        self._done += steps
        self._note = note or self._note
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, advance=steps, note=self._note)
        elif not self._silent and time.monotonic() - self._printed >= _PLAIN_EVERY_SECONDS:
            self._printed = time.monotonic()
            self._line()

    def reach(self, done: int) -> None:
        """``done`` steps are done altogether."""
        self.advance(max(0, done - self._done))

    def finish(self) -> None:
        """The last plain line; a bar speaks for itself."""
        if self._progress is None:
            self._line()

    def _line(self) -> None:
        seconds = time.monotonic() - self._started
        print(f"{self._title}: {self._done}/{self._total} in {seconds:.1f} s {self._note}".rstrip(), flush=True)


@contextmanager
def bar(title: str, total: int) -> Iterator[Bar]:
    """A bar over ``total`` steps on standard error if that is a terminal, else plain lines on standard output.

    A bar inside of another one is silent: the outer one tells how far the work is. So are one without a title, all
    above level info, and those of processes that follow a leader.
    """
    if not title or _OPEN or os.environ.get("RANK", "0") != "0" or not logger().isEnabledFor(logging.INFO):
        yield Bar(title, total, None, silent=True)
        return
    _OPEN.append(title)
    try:
        with _shown(title, total) as shown:
            yield shown
    finally:
        _OPEN.pop()


@contextmanager
def _shown(title: str, total: int) -> Iterator[Bar]:
    if sys.stderr.isatty():
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with Progress(*columns, console=Console(stderr=True)) as progress:
            yield Bar(title, total, progress)
    else:
        plain = Bar(title, total, None)
        yield plain
        plain.finish()
