"""Parts of unfinished work, which are used again after a restart: numbered folders, each complete or absent."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pydantic import Field

from tasks.errors import DamagedError
from tasks.process.interruption import stop_if_requested
from tasks.store.files import entries, flush, staging_folder
from tasks.store.layout import LEASE, MANIFEST, PART_FILE, PROGRESS
from tasks.store.lease import Lease
from tasks.store.records import SCHEMA, FileEntry, Record
from tasks.store.tables import read_table, save_table

if TYPE_CHECKING:
    from tasks.store.store import Draft, Store


class _Part(Record):
    """The manifest of a part; it is written last, so that its presence means that the part is complete."""

    schema_version: int
    files: dict[str, FileEntry]
    phases: dict[str, float] = Field(default_factory=dict)
    """Seconds by phase that all attempts of the step had spent when the part was saved."""


class Progress:
    """Parts of a step's work, under the key of the work.

    Without a key no parts are kept. A process that follows rank 0 reads the parts of rank 0 and saves none.
    """

    def __init__(self, store: "Store", key: str) -> None:
        self._store, self._key = store, key
        self._prefix = f"{PROGRESS}/{key}"
        self._folder = store.root / self._prefix
        self._draft: Draft | None = None
        self._lease: Lease | None = None

    @contextmanager
    def hold(self, task: str) -> Iterator[None]:
        """Hold a lease on the work inside the block.

        Only a store on S3 needs one: processes that share a folder see the lock of ``work.run_once``.
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

    def time(self, draft: "Draft") -> None:
        """Add the time of earlier attempts to a step's draft, and save the time so far with every part.

        Of nested drafts only the outermost counts, which is the first.
        """
        if self._key and self._draft is None:
            self._draft = draft
            draft.earlier = self._spent()

    def put(self, name: str, number: int, fill: Callable[[Path], None]) -> None:
        """Save a part; ``fill`` writes its files into the given folder.

        Raises:
            ArtifactError: the disk or the server does not take the files.
            LostLeaseError: another process has taken the work over; its parts are not changed.
        """
        if not self._key:
            return
        place = f"{name}-{number:06d}"
        final = self._folder / place
        with staging_folder(self._store.root) as staging:
            fill(staging)
            if self._store.follows:
                return
            spent = self._draft.spent() if self._draft else {}
            part = _Part(schema_version=SCHEMA, files=entries(staging), phases=spent)
            (staging / MANIFEST).write_text(part.model_dump_json())
            flush(staging / MANIFEST)
            shutil.rmtree(final, ignore_errors=True)
            final.parent.mkdir(parents=True, exist_ok=True)
            staging.rename(final)
        if self._store.remote is not None:
            self.check_lease()
            self._store.remote.upload(final, part.files, f"{self._prefix}/{place}")
            self.check_lease()
            self._store.remote.write(f"{self._prefix}/{place}/{MANIFEST}", (final / MANIFEST).read_bytes())

    def get(self, name: str, number: int) -> Path | None:
        """Return the folder of a part after a check of its digests; None if there is no such part.

        A damaged local copy is fetched from S3 again; a part that is damaged there too is deleted.

        Raises:
            ArtifactError: the disk or the server fails, so that it is unknown whether the part exists.
        """
        if not self._key:
            return None
        place = f"{name}-{number:06d}"
        for _ in self._store.places:
            text = self._note(place)
            if text is None:
                return None
            if part := _Part.parse(text):
                with suppress(DamagedError):
                    self._store.fetch({f"{self._prefix}/{place}/{file}": one for file, one in part.files.items()})
                    return self._folder / place
            shutil.rmtree(self._folder / place, ignore_errors=True)
        self._delete(place)
        return None

    def newest(self, name: str) -> tuple[int, Path] | None:
        """Return number and folder of the undamaged part with the highest number."""
        for number in reversed(self._numbers(name)):
            if folder := self.get(name, number):
                return number, folder
        return None

    def keep_newest(self, name: str, count: int) -> None:
        """Delete all parts of a name but the newest ones."""
        for number in self._numbers(name)[:-count]:
            self._delete(f"{name}-{number:06d}")

    def table(self, name: str, number: int, make: Callable[[], pa.Table]) -> pa.Table:
        """Return the table that is saved under a number; if there is none, make and save it.

        Raises:
            Interrupted: SIGTERM came while the table was made; the table is saved.
        """
        if folder := self.get(name, number):
            return read_table(folder / PART_FILE)
        table = make()
        self.put(name, number, lambda path: save_table(path / PART_FILE, table))
        if self._key:
            stop_if_requested(f"{name} {number}")
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

    def _note(self, place: str) -> bytes | None:
        return self._store.read_note(f"{self._prefix}/{place}/{MANIFEST}")

    def _spent(self) -> dict[str, float]:
        """Return the seconds by phase of the part that was saved last, whose sums are the largest."""
        newest = {place.rpartition("-")[0]: place for place in sorted(self._places())}
        found = (_Part.parse(self._note(place)) for place in newest.values())
        spent = [part.phases for part in found if part]
        return max(spent, key=lambda phases: sum(phases.values()), default={})

    def _numbers(self, name: str) -> list[int]:
        """Return the numbers of the complete parts with a name, ascending."""
        places = [place.rpartition("-") for place in self._places()] if self._key else []
        return sorted(int(number) for of, _, number in places if of == name)

    def _places(self) -> set[str]:
        """Return the names of the folders of complete parts, here or on S3."""
        keys = [key.split("/") for place in self._store.places for key in place.listing(self._prefix)]
        return {parts[2] for parts in keys if parts[3:] == [MANIFEST]}

    def _delete(self, place: str) -> None:
        if not self._store.follows:
            self._store.delete(f"{self._prefix}/{place}")
