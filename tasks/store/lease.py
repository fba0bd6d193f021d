"""Leases, by which only one process at a time does a piece of work on S3, and the list of work that is running.

A lease is a numbered object beside the parts of unfinished work. The process that creates the next number, by a
conditional write, holds the work. It alone overwrites the object, at every heartbeat and at its end. Clocks of machines
are not compared: a waiter takes over when it has seen the same heartbeat for ``SILENCE_SECONDS`` of its clock.
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

from tasks.errors import ArtifactError, StorageError
from tasks.process.logs import logger
from tasks.store.files import OBJECTS_AT_ONCE, thread_map
from tasks.store.layout import LEASE, LEASES, PROGRESS
from tasks.store.records import Record

if TYPE_CHECKING:
    from tasks.store.s3 import Bucket
    from tasks.store.store import Store

HEARTBEAT_SECONDS = 10.0
"""Seconds between two heartbeats; a request about a lease is retried for as long."""
POLL_SECONDS = 5.0
"""Seconds between two reads of a lease by a waiter."""
SILENCE_SECONDS = 60.0
"""Seconds without a heartbeat after which a holder counts as dead."""


class LostLeaseError(StorageError):
    """Another process has taken the work over, so that this process may not save more."""


class LeaseRecord(Record):
    """Content of a lease."""

    holder: str
    """Machine and process of the holder, for messages."""
    token: str
    beat: int = 0
    released: bool = False


class Lease:
    """The right to save the parts of a piece of work in a folder of a store on S3; messages name the ``task``."""

    def __init__(self, store: "Store", folder: str, task: str) -> None:
        assert store.remote is not None
        self._patient, self._brief, self._local = store.remote, store.remote.within(HEARTBEAT_SECONDS), store.local
        self._folder, self._task, self._where = f"{folder}/{LEASE}", task, f"{store.ref.uri}/{folder}"
        self._number = 0
        holder = f"{socket.gethostname()}, process {os.getpid()}"
        self._record = LeaseRecord(holder=holder, token=uuid.uuid4().hex)
        self._ended = threading.Event()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Wait for the lease, and hold it inside the block."""
        self._acquire()
        heartbeat = threading.Thread(target=self._beat, daemon=True, name=f"lease of {self._task}")
        heartbeat.start()
        try:
            yield
        finally:
            self._ended.set()
            heartbeat.join()
            try:
                self._write(released=True)
            except ArtifactError as error:  # The work has ended; if it failed, its own error says more.
                logger().debug("%s: not released: %s", self._task, error.message)

    def check(self, bucket: "Bucket | None" = None) -> None:
        """Check in the store that this process holds the lease.

        Raises:
            LostLeaseError: another process holds the lease, or it was removed.
            ArtifactError: the store does not answer.
        """
        number, record = self._newest(bucket or self._patient)
        if number == self._number and record is not None and record.token == self._record.token:
            return
        lost, own = "ended or removed by another process", f"this process ({self._record.holder})"
        if record:
            lost = f"taken over by {record.holder}, because {own} gave no sign of life for {SILENCE_SECONDS:.0f} s"
        raise LostLeaseError(
            f"{self._task}: the work in {self._where} was {lost}; {own} stops and saves nothing more. Start the same "
            "command again: it waits for the other process, and finds or continues its work."
        )

    def _acquire(self) -> None:
        last_record: LeaseRecord | None = None
        unchanged_since = last_read = 0.0
        waiting = False
        while True:
            number, record = self._newest(self._patient)
            now = time.monotonic()
            if record != last_record or now - last_read > SILENCE_SECONDS / 3:
                # If this process could not read the lease, the holder's heartbeat may have failed for the same reason.
                last_record, unchanged_since = record, now
            last_read = now
            if record is None or record.released or self._is_of_this_copy(number, record):
                free = True
            elif free := now - unchanged_since >= SILENCE_SECONDS:
                logger().info("%s: %s gave no sign of life; its work is taken over", self._task, record.holder)
            elif not waiting:
                waiting = True
                logger().info(
                    "%s: %s does this work in %s; waiting for its end, or for %.0f s without a sign of life",
                    *(self._task, record.holder, self._where, SILENCE_SECONDS),
                )
            if not free:
                time.sleep(POLL_SECONDS)
            elif self._create(number + 1):
                return

    def _create(self, number: int) -> bool:
        """Try to create the lease with a number; return False if another process created it first."""
        key, text = self._key(number), self._record.model_dump_json().encode()
        self._local.write(key, text)  # First, so that a full disk leaves no lease without a holder on S3.
        self._patient.write_new(key, text)
        self._number = number
        return LeaseRecord.parse(self._patient.read(key)) == self._record

    def _is_of_this_copy(self, number: int, record: LeaseRecord) -> bool:
        """Return True if the holder used this local copy; it is dead then, because this process has the copy's lock."""
        copy = LeaseRecord.parse(self._local.read(self._key(number)))
        return copy is not None and copy.token == record.token

    def _beat(self) -> None:
        while not self._ended.wait(HEARTBEAT_SECONDS):
            try:
                self._write(beat=self._record.beat + 1)
            except LostLeaseError as error:
                logger().warning("%s", error.message)
                return
            except Exception as error:  # The next heartbeat may succeed, and every save checks the lease.
                logger().debug("%s: no beat: %s", self._task, error)

    def _write(self, **changes: object) -> None:
        self.check(self._brief)
        self._record = self._record.model_copy(update=changes)
        self._brief.write(self._key(self._number), self._record.model_dump_json().encode())

    def _newest(self, bucket: "Bucket") -> tuple[int, LeaseRecord | None]:
        """Return number and content of the newest lease; 0 and None without a lease."""
        number = max((int(key.rpartition("/")[2]) for key in bucket.listing(self._folder)), default=0)
        return number, LeaseRecord.parse(bucket.read(self._key(number))) if number else None

    def _key(self, number: int) -> str:
        return f"{self._folder}/{number:06d}"


class RunningWork:
    """Keys of the work that is running in a store, as shown by the locks of this machine and the leases on S3.

    Only a new heartbeat shows that the holder of a lease is alive. The constructor therefore waits up to
    ``SILENCE_SECONDS`` for silent holders, and does not wait if no lease is held.
    """

    def __init__(self, store: "Store") -> None:
        self._store = store
        # Locks are read before leases, and both before artifacts, so that a step that ends meanwhile has committed.
        locked = self.locked()
        self._initial, start = self._leases(), time.monotonic()
        silent, running = dict(self._initial), set[str]()
        if silent:
            many, seconds = len(silent), SILENCE_SECONDS
            logger().info("%d leases are held; waiting up to %.0f s for signs of life of their holders", many, seconds)
        while silent and time.monotonic() - start < SILENCE_SECONDS:
            time.sleep(POLL_SECONDS)
            leases = self._leases()
            # This includes work that began meanwhile. If a lease is gone, its work has ended.
            running |= {key for key, record in leases.items() if self._initial.get(key) != record}
            silent = {key: record for key, record in silent.items() if leases.get(key) == record}
        self._last_read, self._started = 0.0, set[str]()
        self.keys = sorted({*locked, *running})

    def locked(self) -> list[str]:
        """Return the keys of work whose locks are held on this machine."""
        return sorted(path.stem for path in (self._store.root / LEASES).glob("*.lock") if _is_held(path))

    def started(self) -> set[str]:
        """Return the keys of work whose leases on S3 have changed since the constructor read them."""
        if time.monotonic() - self._last_read > POLL_SECONDS:
            self._started = {key for key, record in self._leases().items() if self._initial.get(key) != record}
            self._last_read = time.monotonic()
        return self._started

    def _leases(self) -> dict[str, LeaseRecord]:
        """Return the leases that are not released, including those of dead holders."""
        bucket = self._store.remote
        if bucket is None:
            return {}
        newest: dict[str, str] = {}
        for path in sorted(bucket.listing(PROGRESS)):
            _, key, *inside = path.split("/")
            if inside[:1] == [LEASE]:
                newest[key] = path
        texts = thread_map(bucket.read, list(newest.values()), OBJECTS_AT_ONCE)
        records = zip(newest, map(LeaseRecord.parse, texts), strict=True)
        return {key: record for key, record in records if record is not None and not record.released}


def _is_held(path: Path) -> bool:
    """Return True if a process may hold a lock; a lock file that cannot be read counts as held.

    FileLock uses flock too, but it opens its file for writing, which a read-only store does not allow.
    """
    try:
        with path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:  # Deleted meanwhile.
        return False
    except (BlockingIOError, PermissionError):
        return True
    return False
