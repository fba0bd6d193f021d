"""Leases on S3, so that a piece of work is done by one process at a time, also on several machines.

A lease is a numbered object beside the parts of unfinished work. The process that creates the next number, by a
conditional write, holds the work. It alone writes this object again: at every beat, and when it ends. Clocks of
machines are not compared: a waiting process takes over when it has seen the same beat for ``TAKEN_OVER_AFTER`` seconds.
"""

import fcntl
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.errors import ArtifactError
from tasks.process.logs import logger
from tasks.store.files import thread_map
from tasks.store.layout import LEASE, LEASES, PROGRESS
from tasks.store.records import SCHEMA, Record

if TYPE_CHECKING:
    from tasks.store.s3 import Bucket
    from tasks.store.store import Store

BEAT = 10.0
"""Seconds between two beats, and the time-out of requests about a lease."""
LOOK = 5.0
"""Seconds between two looks of a waiting process."""
TAKEN_OVER_AFTER = 60.0
"""Seconds without a beat after which a holder counts as dead."""


class LostLeaseError(ArtifactError):
    """Another process has taken the work over, so this one may save nothing more."""


class LeaseRecord(Record):
    """The content of a lease."""

    schema_version: int
    holder: str
    """Machine and process, for messages."""
    token: str
    beat: int
    released: bool = False


class Lease:
    """The right to save parts of a piece of work.

    Args:
        store: a store on S3.
        folder: the folder of the work's parts.
        task: the step's name, for messages.
    """

    def __init__(self, store: "Store", folder: str, task: str) -> None:
        assert store.remote is not None
        self._patient, self._brief, self._local = store.remote, store.remote.within(BEAT), store.local
        self._folder, self._task, self._where = f"{folder}/{LEASE}", task, f"{store.ref.uri}/{folder}"
        self._number = 0
        self._record = LeaseRecord(
            schema_version=SCHEMA,
            holder=f"{socket.gethostname()}, process {os.getpid()}",
            token=uuid.uuid4().hex,
            beat=0,
        )
        self._ended = threading.Event()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Wait until nobody holds the work, and hold it inside the block."""
        self._acquire()
        beating = threading.Thread(target=self._beat, daemon=True, name=f"lease of {self._task}")
        beating.start()
        try:
            yield
        finally:
            self._ended.set()
            beating.join()
            try:
                self._write(released=True)
            except ArtifactError as error:  # The work has ended, or failed with the error to report.
                logger().debug("%s: not released: %s", self._task, error.message)

    def check(self, bucket: "Bucket | None" = None) -> None:
        """Check that this process still holds the work.

        Raises:
            LostLeaseError: another process has taken it over.
            ArtifactError: the store does not answer.
        """
        number, found = self._newest(bucket or self._patient)
        if number == self._number and found is not None and found.token == self._record.token:
            return
        by = f"taken over by {found.holder}" if found else "ended or removed by another process"
        raise LostLeaseError(
            f"{self._task}: the work in {self._where} was {by}, because this process ({self._record.holder}) gave no "
            f"sign of life for {TAKEN_OVER_AFTER:.0f} s. It stops and saves nothing more; the other process goes on."
        )

    def _acquire(self) -> None:
        seen: LeaseRecord | None = None
        since = looked = 0.0
        told = False
        while True:
            number, found = self._newest(self._patient)
            now = time.monotonic()
            if found != seen or now - looked > TAKEN_OVER_AFTER / 3:
                # If this process could not look, the holder's beats may have failed for the same reason.
                seen, since = found, now
            looked = now
            if found is None or found.released or self._is_of_this_copy(number, found):
                free = True
            elif free := now - since >= TAKEN_OVER_AFTER:
                logger().info("%s: %s gave no sign of life; its work is taken over", self._task, found.holder)
            elif not told:
                told = True
                logger().info(
                    "%s: %s does this work in %s; waiting for its end, or for %.0f s without a sign of life",
                    *(self._task, found.holder, self._where, TAKEN_OVER_AFTER),
                )
            if not free:
                time.sleep(LOOK)
            elif self._create(number + 1):
                return

    def _create(self, number: int) -> bool:
        """Create the lease with a number; return False if another process was faster."""
        key, text = self._key(number), self._record.model_dump_json().encode()
        self._patient.write_new(key, text)
        if LeaseRecord.parse(self._patient.read(key)) != self._record:
            return False
        self._number = number
        self._local.write(key, text)
        return True

    def _is_of_this_copy(self, number: int, found: LeaseRecord) -> bool:
        """Return True if the holder used this local copy. It is dead then, because this process has the copy's lock."""
        noted = LeaseRecord.parse(self._local.read(self._key(number)))
        return noted is not None and noted.token == found.token

    def _beat(self) -> None:
        while not self._ended.wait(BEAT):
            try:
                self._write(beat=self._record.beat + 1)
            except LostLeaseError as error:
                logger().warning("%s", error.message)
                return
            except Exception as error:  # the next beat may succeed, and saving checks the lease
                logger().debug("%s: no beat: %s", self._task, error)

    def _write(self, **changes: object) -> None:
        self.check(self._brief)
        self._record = self._record.model_copy(update=changes)
        self._brief.write(self._key(self._number), self._record.model_dump_json().encode())

    def _newest(self, bucket: "Bucket") -> tuple[int, LeaseRecord | None]:
        """Return number and content of the lease with the highest number; 0 without one."""
        number = max((int(key.rpartition("/")[2]) for key in bucket.listing(self._folder)), default=0)
        return number, LeaseRecord.parse(bucket.read(self._key(number))) if number else None

    def _key(self, number: int) -> str:
        return f"{self._folder}/{number:06d}"


class RunningWork:
    """Keys of the work that processes are doing in a store.

    The holder of a lease is alive if the lease has a new beat. So the first look takes up to ``TAKEN_OVER_AFTER``
    seconds if a holder is dead, and no time if no lease is held.
    """

    def __init__(self, store: "Store") -> None:
        self._store = store
        # Locks and leases are read before artifacts, so that a step that ends in between has committed its own.
        locked = self.locked()
        self._known, began = self._leases(), time.monotonic()
        silent, living = dict(self._known), set[str]()
        while silent and time.monotonic() - began < TAKEN_OVER_AFTER:
            time.sleep(LOOK)
            now = self._leases()
            # A new lease is alive too; a lease that is gone has ended.
            living |= {key for key, record in now.items() if self._known.get(key) != record}
            silent = {key: record for key, record in silent.items() if now.get(key) == record}
        self._looked, self._started = 0.0, set[str]()
        self.keys = sorted({*locked, *living})

    def locked(self) -> list[str]:
        """Return the keys of the work whose locks are held on this machine."""
        return sorted(path.stem for path in (self._store.root / LEASES).glob("*.lock") if _is_held(path))

    def started(self) -> set[str]:
        """Return the keys of the work whose leases on S3 changed since the first look."""
        if time.monotonic() - self._looked > LOOK:
            self._started = {key for key, record in self._leases().items() if self._known.get(key) != record}
            self._looked = time.monotonic()
        return self._started

    def _leases(self) -> dict[str, LeaseRecord]:
        """Return the leases that are not released, also those of dead holders."""
        bucket = self._store.remote
        if bucket is None:
            return {}
        newest: dict[str, str] = {}
        for place in sorted(bucket.listing(PROGRESS)):
            _, key, *inside = place.split("/")
            if inside[:1] == [LEASE]:
                newest[key] = place
        found = zip(newest, map(LeaseRecord.parse, thread_map(bucket.read, list(newest.values()))), strict=True)
        return {key: record for key, record in found if record is not None and not record.released}


def _is_held(path: Path) -> bool:
    """Return True if a process may hold a lock; a lock that cannot be read counts as held.

    FileLock would open the file for writing, which a read-only store does not allow. It uses flock too.
    """
    try:
        with path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:  # Deleted a moment ago.
        return False
    except (BlockingIOError, PermissionError):
        return True
    return False
