"""Show each number once, also when work is interrupted and repeated."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tasks.artifacts import Store
from tasks.artifacts.progress import Progress
from tasks.settings import TrackerSettings
from tasks.tracking.trackers import Tracker, open_tracker

FLUSH_SECONDS = 15.0
"""Seconds between two times at which numbers are shown."""
_SHOWN = "shown"

Show = Callable[[str, Mapping[str, Any]], None]
"""A function of a group of numbers, such as ``optimize``, and a row; the row's ``update`` is its place on the axis."""


def _ignore(_: str, __: Mapping[str, Any]) -> None:
    """Show nothing, as there is no tracker."""


class Journal:
    """A buffer of rows that notes which of them are shown before it shows them.

    In this order a kill in between loses a few rows in the tracker, and never doubles one; all rows are in the
    artifacts anyway.
    """

    def __init__(self, tracker: Tracker, progress: Progress) -> None:
        self._tracker, self._progress = tracker, progress
        newest = progress.newest(_SHOWN)
        self._shown = newest[0] if newest else -1
        self._waiting: list[tuple[int, dict[str, float]]] = []
        self._flushed = time.monotonic()

    def show(self, group: str, row: Mapping[str, Any]) -> None:
        """Add a row; one that was shown before the work was interrupted is left out."""
        update = int(row["update"])
        if update <= self._shown:
            return
        numbers = {f"{group}/{name}": float(value) for name, value in row.items() if isinstance(value, int | float)}
        self._waiting.append((update, numbers))
        if time.monotonic() - self._flushed >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Show all rows that wait."""
        self._flushed = time.monotonic()
        if self._waiting:
            self._shown = self._waiting[-1][0]
            self._progress.put(_SHOWN, self._shown, lambda _: None)
            self._progress.keep_newest(_SHOWN, 1)
            for update, numbers in self._waiting:
                self._tracker.log(update, numbers)
            self._waiting.clear()
            self._tracker.flush()


@contextmanager
def shown(settings: TrackerSettings, store: Store, part: str, config: Mapping[str, Any]) -> Iterator[Show]:
    """Yield a function that shows rows. It does nothing without a tracker, and in a follower, whose leader shows them.

    Args:
        settings: the tracker, and the run's id there.
        store: the store of the unfinished work that the rows come from.
        part: the part of the run, such as ``stage 2 optimize``; several parts may be at work at once.
        config: values to show beside the numbers.
    """
    tracker = None if store.follows else open_tracker(settings, store, part, config)
    if tracker is None:
        yield _ignore
        return
    journal = Journal(tracker, store.progress)
    try:
        yield journal.show
    finally:
        journal.flush()
        tracker.close()
