"""Parts of unfinished work: numbered folders, each complete or absent, from which a step continues after a restart."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pydantic import Field

from tasks.errors import DamagedError
from tasks.process.interruption import stop, stop_requested
from tasks.store.files import entries, flush, staging_folder
from tasks.store.layout import LEASE, MANIFEST, PART_FILE, PROGRESS
from tasks.store.lease import Lease
from tasks.store.records import SCHEMA, Files, Record, check_schema
from tasks.store.tables import read_table, save_table

if TYPE_CHECKING:
    from tasks.store.store import Draft, Store


class _Part(Record):
    """Manifest of a part; it is written last, so that its presence means that the part is complete."""

    schema_version: int
    files: Files
    phases: dict[str, float] = Field(default_factory=dict)
    """Seconds by phase that the step had spent when the part was saved, over all attempts."""


class Progress:
    """Parts of a step's unfinished work, stored under the key of the work.

    Without a key nothing is saved. A process that follows a leader reads the leader's parts, and saves none itself.
    """

    def __init__(self, store: "Store", key: str) -> None:
        self._store, self._key = store, key
        self._prefix = f"{PROGRESS}/{key}"
        self._folder = store.root / self._prefix
        self._draft: Draft | None = None
        self._lease: Lease | None = None

    @contextmanager
    def hold(self, task: str) -> Iterator[None]:
        """Hold the lease of a task's work inside the block, so that other machines wait.

        Only a store on S3 needs a lease: in a folder, the lock of ``work.run_once`` is seen by all processes.
        """
        if self._store.remote is None:
            yield
            return
        self._lease = Lease(self._store, self._prefix, task)
        try:
            with self._lease.hold():
                yield
        finally:
            self._lease = None

    def check_lease(self) -> None:
        """Raise LostLeaseError if another process has taken the work over."""
        if self._lease is not None:
            self._lease.check()

    def count_time(self, draft: "Draft") -> None:
        """Add the time of earlier attempts to a step's draft, and save the time spent with every part from then on.

        Only the first draft counts, because it encloses the others.
        """
        if self._key and self._draft is None:
            self._draft = draft
            draft.earlier = self._spent()

    def put(self, name: str, number: int, fill: Callable[[Path], None]) -> None:
        """Save a part; ``fill`` writes the part's files into the folder that it gets.

        Raises:
            ArtifactError: the disk is full or cannot be written, or S3 rejects the part.
            LostLeaseError: another process has taken the work over; none of its parts is overwritten.
        """
        if not self._key:
            return
        folder_name = f"{name}-{number:06d}"
        final = self._folder / folder_name
        with staging_folder(self._store.root) as staging:
            fill(staging)
            if self._store.follows:
                return
            spent = self._draft.spent() if self._draft else {}
            flushed = self._store.remote is None  # As in ``Store.write``, local copies of objects are not flushed.
            part = _Part(schema_version=SCHEMA, files=entries(staging, flushed), phases=spent)
            (staging / MANIFEST).write_text(part.model_dump_json())
            if flushed:
                flush(staging / MANIFEST)
            shutil.rmtree(final, ignore_errors=True)
            final.parent.mkdir(parents=True, exist_ok=True)
            staging.rename(final)
        if self._store.remote is not None:
            self.check_lease()
            self._store.remote.upload(final, part.files, f"{self._prefix}/{folder_name}")
            self.check_lease()
            self._store.remote.write(f"{self._prefix}/{folder_name}/{MANIFEST}", (final / MANIFEST).read_bytes())

    def get(self, name: str, number: int) -> Path | None:
        """Return the folder of a part, checked against its digests; None when the part does not exist.

        If the local copy of a part on S3 is damaged, it is fetched again; if the part itself is damaged, it is deleted.

        Raises:
            ArtifactError: S3 or the disk fails, so that it is unknown whether the part exists; or another version of
                the code, with other manifests, saved it.
        """
        if not self._key:
            return None
        folder_name = f"{name}-{number:06d}"
        key = f"{self._prefix}/{folder_name}"
        # A local copy alone can be of a part that this machine could not save, unlike another one.
        text = self._store.original.read(f"{key}/{MANIFEST}")
        if text is None:
            return None
        check_schema(f"{self._store.ref.uri}/{key}/{MANIFEST}", text)
        if part := _Part.parse(text):
            with suppress(DamagedError):
                self._store.fetch({f"{key}/{file}": entry for file, entry in part.files.items()})
                return self._folder / folder_name
        self._delete(folder_name)
        return None

    def newest(self, name: str) -> tuple[int, Path] | None:
        """Return number and folder of the undamaged part with the highest number."""
        for number in reversed(self._numbers(name)):
            if folder := self.get(name, number):
                return number, folder
        return None

    def keep_newest(self, name: str, count: int) -> None:
        """Delete all parts of a name except the ``count`` newest."""
        for number in self._numbers(name)[:-count]:
            self._delete(f"{name}-{number:06d}")

    def table(self, name: str, number: int, make: Callable[[], pa.Table]) -> pa.Table:
        """Return the table that is saved under a number; make and save it when there is none.

        Raises:
            Interrupted: a stop was requested while the table was made; the table is saved.
        """
        if folder := self.get(name, number):
            return read_table(folder / PART_FILE)
        table = make()
        self.put(name, number, lambda path: save_table(path / PART_FILE, table))
        if self._key and stop_requested():
            stop(f"part {number + 1} of {name}")
        return table

    def clear(self) -> None:
        """Delete all parts, and the lease unless this process holds it."""
        if self._key and not self._store.follows:
            self.check_lease()
            shutil.rmtree(self._folder, ignore_errors=True)
            if self._store.remote is not None:
                kept = f"{self._prefix}/{LEASE}/" if self._lease else ()
                keys = self._store.remote.listing(self._prefix)
                self._store.remote.delete([key for key in keys if not key.startswith(kept)])

    def _spent(self) -> dict[str, float]:
        """Return the seconds by phase from the part that was saved last, which has the largest sum."""
        newest = {folder.rpartition("-")[0]: folder for folder in sorted(self._folder_names())}
        texts = (self._store.original.read(f"{self._prefix}/{folder}/{MANIFEST}") for folder in newest.values())
        spent = [part.phases for part in map(_Part.parse, texts) if part]
        return max(spent, key=lambda phases: sum(phases.values()), default={})

    def _numbers(self, name: str) -> list[int]:
        """Return the numbers of the complete parts of a name, in ascending order."""
        folders = [folder.rpartition("-") for folder in self._folder_names()] if self._key else []
        return sorted(int(number) for part_name, _, number in folders if part_name == name)

    def _folder_names(self) -> set[str]:
        """Return the folder names of the complete parts."""
        keys = [key.split("/") for key in self._store.original.listing(self._prefix)]
        return {parts[2] for parts in keys if parts[3:] == [MANIFEST]}

    def _delete(self, folder_name: str) -> None:
        if not self._store.follows:
            self._store.delete(f"{self._prefix}/{folder_name}")
