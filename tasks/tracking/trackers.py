"""Trackers, which show numbers: wandb and TensorBoard. Neither is imported unless it is asked for."""

import os
import uuid
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from tasks.artifacts import Store
from tasks.errors import SettingsError
from tasks.logs import logger
from tasks.settings import TrackerSettings
from tasks.settings.steps import TensorBoardTracker, WandbTracker

FOLDER = "tracking"
"""A folder of a store; nothing in it is an artifact."""


class Tracker(Protocol):
    """A program that shows numbers over updates."""

    def log(self, update: int, numbers: Mapping[str, float]) -> None:
        """Show the numbers of an update."""
        ...

    def flush(self) -> None:
        """Make visible what was logged."""
        ...

    def close(self) -> None:
        """End this part of the run."""
        ...


def check_installed(settings: TrackerSettings) -> None:
    """Refuse a tracker whose package is not installed, before anything runs.

    Raises:
        SettingsError: its package is missing.
    """
    if settings.kind != "none" and find_spec(settings.kind) is None:
        raise SettingsError(
            f"operation.tracker.kind: {settings.kind} is not installed; `pip install {settings.kind}`, or none"
        )


def open_tracker(settings: TrackerSettings, store: Store, part: str, config: Mapping[str, Any]) -> Tracker | None:
    """Open the tracker that the settings name.

    Returns:
        The tracker; None for ``none``, and for one that cannot be reached, of which a warning tells.

    Raises:
        SettingsError: its package is missing.
    """
    check_installed(settings)
    match settings:
        case WandbTracker():
            return _wandb(settings, store.root / FOLDER, part, config)
        case TensorBoardTracker(run=run):
            return TensorBoard(store, f"{FOLDER}/tensorboard/{run}")
    return None


class TensorBoard:
    """Event files in the store, in ``tracking/tensorboard/<run>``; every part of a run writes one of its own."""

    def __init__(self, store: Store, place: str) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._store, self._place = store, place
        self._suffix = f".{uuid.uuid4().hex[:8]}"
        self._writer = SummaryWriter(str(store.root / place), filename_suffix=self._suffix)

    def log(self, update: int, numbers: Mapping[str, float]) -> None:
        """Write every number as a scalar."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, update)

    def flush(self) -> None:
        """Write the file to disk, and on S3 as a whole: it has a few hundred bytes per update."""
        self._writer.flush()
        if self._store.remote is not None:
            for file in (self._store.root / self._place).glob(f"*{self._suffix}"):
                self._store.remote.write(f"{self._place}/{file.name}", file.read_bytes())

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


class Wandb:
    """A run of Weights & Biases; parts of a run share its id."""

    def __init__(self, run: Any) -> None:
        self._run = run
        # Parts at work at once have steps of their own: the update is the axis of everything.
        run.define_metric("update", hidden=True)
        run.define_metric("*", step_metric="update")

    def log(self, update: int, numbers: Mapping[str, float]) -> None:
        """Send one row."""
        self._run.log({"update": update, **numbers})

    def flush(self) -> None:
        """Do nothing, as the library sends by itself."""

    def close(self) -> None:
        """Wait until everything is sent."""
        self._run.finish()


def _wandb(settings: WandbTracker, folder: Path, part: str, config: Mapping[str, Any]) -> Tracker | None:
    import wandb

    folder.mkdir(parents=True, exist_ok=True)
    offline = not os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_MODE") == "offline"
    # Shared: several processes write to one run at once. Without a server each writes a file that `wandb sync` joins.
    of_mode = (
        wandb.Settings(mode="offline")
        if offline
        else wandb.Settings(mode="shared", x_label=part, x_update_finish_state=False)
    )
    try:
        run = wandb.init(
            project=settings.project,
            id=settings.run,
            name=settings.run,
            dir=str(folder),
            config=dict(config),
            resume="allow" if offline else None,
            settings=of_mode.model_copy(update={"silent": True, "console": "off", "disable_git": True}),
        )
    except wandb.Error as error:
        logger().warning("wandb: not reached, so numbers are not shown: %s", error)
        return None
    return Wandb(run)
