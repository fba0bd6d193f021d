"""Which numbers were shown already: each is shown once, also when the work is interrupted and repeated."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tasks.artifacts import Store
from tasks.artifacts.follower import FollowerStore
from tasks.artifacts.progress import Progress
from tasks.settings import TrackerSettings
from tasks.tracking.trackers import Tracker, open_tracker

FLUSH_SECONDS = 15.0
"""Between two times that numbers are shown."""
_SHOWN = "shown"

Show = Callable[[str, Mapping[str, Any]], None]
"""Takes a group of numbers, such as ``optimize``, and a row; the row's ``update`` says where it belongs."""


def _unshown(_: str, __: Mapping[str, Any]) -> None:
    """Without a tracker."""


class Journal:
    """Holds rows back until they are due, notes that they are shown, and then shows them.

    In this order a kill in between loses a few rows of the tracker, and never doubles one; all rows are in the
    artifacts anyway.
    """

    def __init__(self, tracker: Tracker, progress: Progress) -> None:
        self._tracker, self._progress = tracker, progress
        newest = progress.newest(_SHOWN)
        self._shown = newest[0] if newest else -1
        self._waiting: list[tuple[int, dict[str, float]]] = []
        self._flushed = time.monotonic()

    def show(self, group: str, row: Mapping[str, Any]) -> None:
        """Takes a row; one that was shown before the work was interrupted is passed over."""
        update = int(row["update"])
        if update <= self._shown:
            return
        numbers = {f"{group}/{name}": float(value) for name, value in row.items() if isinstance(value, int | float)}
        self._waiting.append((update, numbers))
        if time.monotonic() - self._flushed >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Shows what waits."""
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
    """A function that takes rows to be shown; without a tracker, and beside a leader that shows them, it does nothing.

    Args:
        settings: which tracker, and the run's id there.
        store: of the unfinished work that the rows come from.
        part: of the run, such as ``stage 2 optimize``: several parts may be at work at once.
        config: what to show beside the numbers.
    """
    tracker = None if isinstance(store, FollowerStore) else open_tracker(settings, store, part, config)
    if tracker is None:
        yield _unshown
        return
    journal = Journal(tracker, store.progress)
    try:
        yield journal.show
    finally:
        journal.flush()
        tracker.close()
