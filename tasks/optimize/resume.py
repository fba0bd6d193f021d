"""Where training stands inside a stage, so that an interrupted stage goes on with the same bits.

Weights and moments are saved; what follows from the stage's inputs and the number of updates is derived again.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file
from safetensors.torch import load_file

from tasks.artifacts.progress import Progress
from tasks.errors import ArtifactError
from tasks.interruption import asked, stop
from tasks.optimize import processes
from tasks.optimize.backends import Backend
from tasks.optimize.outcome import Outcome
from tasks.optimize.state import load_optimizer, load_weights, save_optimizer, save_weights
from tasks.settings import OperationSettings

Columns = dict[str, npt.NDArray[np.float32]]
_WEIGHTS, _COLUMNS, _STATE = "weights.safetensors", "columns.safetensors", "state.json"
Found = TypeVar("Found")
_TRAIN, _LOGP = "train", "logp"


class Resume:
    """The states of an unfinished stage."""

    def __init__(self, progress: Progress, operation: OperationSettings) -> None:
        self.progress = progress
        self._every, self._kept = operation.updates_per_checkpoint, operation.checkpoints_kept

    def logp(self) -> Columns:
        """Log-probabilities of the stage's tokens that were computed before; empty when there are none."""
        folder = self.of_all(_LOGP, 0, lambda: self.progress.get(_LOGP, 0))
        return {} if folder is None else _mapped(folder / _COLUMNS)

    def keep_logp(self, columns: Columns) -> None:
        """Keeps log-probabilities of the stage's tokens, by policy."""
        self.progress.put(_LOGP, 0, lambda folder: save_file(columns, folder / _COLUMNS))

    def due(self, done: int, total: int, saved: int = 0) -> bool:
        """Whether the state is to be saved after ``done`` of the stage's updates, the last time being ``saved``."""
        return done < total and (done - saved >= self._every or bool(processes.agreed(asked())))

    def save(
        self,
        done: int,
        backend: Backend,
        updates: int,
        outcomes: Sequence[Outcome],
        columns: Columns,
    ) -> None:
        """Saves the state after ``done`` updates of the stage, and deletes states that are older than those kept.

        Raises:
            Interrupted: a stop was asked for.
        """

        def fill(folder: Path) -> None:
            save_weights(folder / _WEIGHTS, backend)
            save_optimizer(folder, backend, updates)
            save_file(columns, folder / _COLUMNS)
            (folder / _STATE).write_text(json.dumps([asdict(outcome) for outcome in outcomes]))

        self.progress.put(_TRAIN, done, fill)
        self.progress.keep_newest(_TRAIN, self._kept)
        if processes.agreed(asked()):
            stop(f"update {updates}")

    def done(self) -> int:
        """Updates of the stage that the newest state includes; 0 when there is none."""
        newest = self.progress.newest(_TRAIN)
        return newest[0] if newest else 0

    def restore(self, backend: Backend) -> "tuple[int, int, list[Outcome], Columns] | None":
        """Puts the newest state into the backend.

        Returns:
            Updates done of the stage, updates done of the run, what training gave so far, and columns of tokens; None
            when there is no state.
        """
        newest = self.progress.newest(_TRAIN)
        done = processes.agreed(newest[0] if newest else 0)
        folder = self.of_all(_TRAIN, done, lambda: newest[1] if newest and newest[0] == done else None)
        if folder is None:
            return None
        load_weights(folder / _WEIGHTS, backend)
        updates = load_optimizer(folder, backend)
        outcomes = [Outcome(**plain) for plain in json.loads((folder / _STATE).read_text())]
        return done, updates, outcomes, _mapped(folder / _COLUMNS)

    def of_all(self, name: str, number: int, find: Callable[[], Found | None]) -> Found | None:
        """A part as the leader finds it, and after the leader every process; None when the leader does not.

        Raises:
            ArtifactError: the leader finds it, and this process does not.
        """
        found = find() if processes.rank() == 0 else None
        if not processes.agreed(found is not None):
            return None
        if processes.rank() > 0:
            found = find()
        if found is None:
            raise ArtifactError(
                f"{name} {number}: process {processes.rank()} does not find what the leader found. Give all processes "
                "the same store."
            )
        return found


def _mapped(path: Path) -> Columns:
    # Torch's way of loading maps the file, numpy's reads it.
    return {name: column.numpy() for name, column in load_file(path).items()}
