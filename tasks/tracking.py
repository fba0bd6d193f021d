"""Live metrics of a run in wandb or TensorBoard; each row is logged at most once, also after an interruption.

The packages are imported only if ``operation.tracker`` selects them.
"""

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tasks.errors import ArtifactError, check_extra
from tasks.process.logs import logger
from tasks.settings import TrackerSettings
from tasks.settings.steps import TensorBoardTracker, WandbTracker
from tasks.store import Store
from tasks.store.layout import TRACKING
from tasks.store.progress import Progress

FLUSH_SECONDS = 15.0
"""Shortest time between two writes to the tracker, in seconds."""
_SHOWN = "shown"

Show = Callable[[str, Mapping[str, Any]], None]
"""A function that logs a row of a group, such as ``optimize``; the row's ``update`` is its position on the axis."""


@contextmanager
def open_tracker(settings: TrackerSettings, store: Store, part: str, config: Mapping[str, Any]) -> Iterator[Show]:
    """Yield a function that logs rows. It does nothing without a tracker, and in processes of a rank other than 0.

    Args:
        settings: the tracker, and the run's id there.
        store: the store of the run, which notes the rows that were logged.
        part: the part of the run, such as ``stage 2 optimize``; several parts may run at the same time.
        config: values that the tracker shows for the run.
    """
    tracker = None if store.follows else _open(settings, store, part, config)
    if tracker is None:
        yield lambda _group, _row: None
        return
    journal = _Journal(tracker, store.progress)
    try:
        yield journal.show
        journal.flush()
    except BaseException:
        with suppress(ArtifactError):  # The error that ended the step is the one to report.
            journal.flush()
        raise
    finally:
        tracker.close()


class _Journal:
    """A buffer of rows that stores the last logged update before it logs the rows.

    A kill between the two loses a few rows in the tracker, but never repeats one. The artifacts have all rows anyway.
    """

    def __init__(self, tracker: "_TensorBoard | _Wandb", progress: Progress) -> None:
        self._tracker, self._progress = tracker, progress
        newest = progress.newest(_SHOWN)
        self._shown = newest[0] if newest else -1
        self._waiting: list[tuple[int, dict[str, float]]] = []
        self._flushed = time.monotonic()

    def show(self, group: str, row: Mapping[str, Any]) -> None:
        update = int(row["update"])
        if update <= self._shown:  # It was logged before an interruption.
            return
        numbers = {f"{group}/{name}": float(value) for name, value in row.items() if isinstance(value, int | float)}
        self._waiting.append((update, numbers))
        if time.monotonic() - self._flushed >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        self._flushed = time.monotonic()
        if self._waiting:
            self._shown = self._waiting[-1][0]
            self._progress.put(_SHOWN, self._shown, lambda _: None)
            self._progress.keep_newest(_SHOWN, 1)
            for update, numbers in self._waiting:
                self._tracker.log(update, numbers)
            self._waiting.clear()
            self._tracker.flush()


def check_installed(settings: TrackerSettings) -> None:
    """Check that the package of the tracker is installed.

    Raises:
        SettingsError: the package is missing.
    """
    if settings.kind != "none":
        check_extra(settings.kind, "operation.tracker.kind", ", or set it to none", extra="track")


def _open(
    settings: TrackerSettings, store: Store, part: str, config: Mapping[str, Any]
) -> "_TensorBoard | _Wandb | None":
    """Return the tracker of the settings; None for ``none``, or, with a warning, if wandb cannot be reached."""
    check_installed(settings)
    match settings:
        case TensorBoardTracker(run=run):
            return _TensorBoard(store, f"{TRACKING}/tensorboard/{run}")
        case WandbTracker():
            import wandb

            try:
                return _Wandb(settings, store, part, config)
            except wandb.Error as error:
                logger().warning("wandb: cannot be reached, so that no metrics are logged there: %s", error)
                wandb.teardown()  # Its service would refuse the same run to the next step of this process.
    return None


class _TensorBoard:
    """Event files of TensorBoard in ``tracking/tensorboard/<run>`` of the store; every part of a run has its own."""

    def __init__(self, store: Store, folder: str) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._store, self._folder = store, folder
        self._suffix = f".{uuid.uuid4().hex[:8]}"
        self._writer = SummaryWriter(str(store.root / folder), filename_suffix=self._suffix)

    def log(self, update: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, update)

    def flush(self) -> None:
        self._writer.flush()
        _upload(self._store, self._folder, f"*{self._suffix}")

    def close(self) -> None:
        self._writer.close()


def _upload(store: Store, folder: str, pattern: str) -> None:
    """Write files of a tracker into a store on S3, each as a whole: it has a few kilobytes per update."""
    if store.remote is not None:
        for file in (store.root / folder).glob(pattern):
            store.remote.write(f"{folder}/{file.name}", file.read_bytes())


class _Wandb:
    """A run of Weights & Biases. All parts of a run share its id."""

    def __init__(self, settings: WandbTracker, store: Store, part: str, config: Mapping[str, Any]) -> None:
        import wandb

        folder = store.root / TRACKING
        folder.mkdir(parents=True, exist_ok=True)
        offline = not os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_MODE") == "offline"
        # In mode shared, several processes write to one run. Offline, each process writes a file, and `wandb sync`
        # joins the files.
        mode = {"mode": "offline"} if offline else {"mode": "shared", "x_label": part, "x_update_finish_state": False}
        self._run = wandb.init(
            project=settings.project,
            id=settings.run,
            name=settings.run,
            dir=str(folder),
            config=dict(config),
            resume="allow" if offline else None,
            settings=wandb.Settings(**mode, silent=True, console="off", disable_git=True),
        )
        self._store, self._offline, self._teardown = store, offline, wandb.teardown
        self._folder = Path(self._run.dir).parent.relative_to(store.root).as_posix()
        # wandb counts the steps of every process. The update is the common axis.
        self._run.define_metric("update", hidden=True)
        self._run.define_metric("*", step_metric="update")

    def log(self, update: int, numbers: Mapping[str, float]) -> None:
        self._run.log({"update": update, **numbers})

    def flush(self) -> None:
        if self._offline:  # Otherwise the library sends by itself.
            _upload(self._store, self._folder, "*.wandb")

    def close(self) -> None:
        self._run.finish()
        if self._offline and self._store.remote is not None:
            self._teardown()  # The file is complete when wandb's service has ended.
            self.flush()
