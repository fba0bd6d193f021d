"""Where an alternating stage stands: the trainer's state, and the rollouts and verdicts of the refreshes so far."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.alternate.loop import Loop
from tasks.artifacts.tables import ROLLOUTS, VERDICTS, table_writer
from tasks.train import distributed
from tasks.train.checkpoint import Resume

Tables = tuple[pa.Table, pa.Table]
_REFRESHES = "refreshes"
_ROLLOUTS, _VERDICTS = "rollouts.parquet", "verdicts.parquet"


class States:
    """Saved at refreshes: a state after n of them, and parts with the tables of the refreshes between two states."""

    def __init__(self, resume: Resume, loop: Loop, refreshes: int, updates_per_rollout: int) -> None:
        self.refreshes = 0
        """Refreshes that the newest state includes."""
        self._resume, self._loop = resume, loop
        self._updates, self._total = updates_per_rollout, refreshes * updates_per_rollout
        self._unsaved: list[Tables] = []

    def restored(self) -> Iterator[Tables]:
        """Puts the newest state into the loop, and gives the tables of its refreshes, one after the other."""
        done = distributed.broadcast_int(self._resume.done() if distributed.rank() == 0 else 0) // self._updates
        folders = self._resume.load_on_all_ranks("tables of refresh", done, lambda: self._folders(done))
        if folders is None:
            self._resume.progress.clear()  # Some tables are damaged: the stage starts anew.
            return
        trainer = self._loop.trainer
        if state := self._resume.restore(trainer.backend):
            done, trainer.updates, self._loop.outcomes[:], _ = state
            self.refreshes = done // self._updates
        for folder in folders:
            rollouts, verdicts = pq.ParquetFile(folder / _ROLLOUTS), pq.ParquetFile(folder / _VERDICTS)
            for group in range(rollouts.num_row_groups):
                tables = rollouts.read_row_group(group), verdicts.read_row_group(group)
                self._loop.count(*tables)
                self._loop.call_seconds.append(None)
                yield tables

    def add(self, rollouts: pa.Table, verdicts: pa.Table) -> None:
        """Takes up the tables of a refresh, and saves where training stands when that is due.

        Raises:
            Interrupted: a stop was asked for, and the state is saved.
        """
        self._unsaved.append((rollouts, verdicts))
        refreshes = self.refreshes + len(self._unsaved)
        if not self._resume.due(refreshes * self._updates, self._total, self.refreshes * self._updates):
            return

        def fill(folder: Path) -> None:
            with (
                table_writer(folder / _ROLLOUTS, ROLLOUTS) as add_rollouts,
                table_writer(folder / _VERDICTS, VERDICTS) as add_verdicts,
            ):
                for made, judged in self._unsaved:
                    add_rollouts(made)
                    add_verdicts(judged)

        self._resume.progress.put(_REFRESHES, self.refreshes, fill)
        self.refreshes, self._unsaved = refreshes, []
        trainer = self._loop.trainer
        self._resume.save(
            refreshes * self._updates,
            trainer.backend,
            trainer.updates,
            self._loop.outcomes,
            {},
        )

    def _folders(self, refreshes: int) -> list[Path] | None:
        """Parts with the tables of the first refreshes, each refresh a row group; None when one is not whole."""
        folders, first = [], 0
        while first < refreshes:
            folder = self._resume.progress.get(_REFRESHES, first)
            if folder is None:
                return None
            folders.append(folder)
            first += int(pq.read_metadata(folder / _ROLLOUTS).num_row_groups)
        return folders
