"""Unfinished work on S3 is done by one process at a time: a lease with a holder, whose beat shows that it lives.

A lease is a numbered object beside the parts of the work. Whoever creates the next number, by a conditional write,
holds the work; it alone writes this object again, at every beat and when it ends. Clocks of machines are not compared:
a waiter takes over when it has seen the same beat for ``TAKEN_OVER_AFTER`` of its own seconds.
"""

import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pydantic import ValidationError

from tasks.artifacts.files import disk_errors
from tasks.artifacts.places import bucket_of
from tasks.artifacts.records import SCHEMA, Record
from tasks.errors import ArtifactError
from tasks.logs import logger

if TYPE_CHECKING:
    from tasks.artifacts.s3 import Bucket
    from tasks.artifacts.store import Store

BEAT = 10.0
"""Seconds between two beats, and for which a request about a lease is tried."""
LOOK = 5.0
"""Seconds between two looks of a waiter."""
TAKEN_OVER_AFTER = 60.0
"""Seconds without a beat."""
FOLDER = "lease"
"""Beside the parts of the work."""


class LostLeaseError(ArtifactError):
    """Another process has taken the work over, so that nothing more may be saved here."""


class _Record(Record):
    schema_version: int
    holder: str
    """The machine and the process, for people."""
    token: str
    beat: int
    released: bool = False


class Lease:
    """The right to save parts of a piece of work.

    Args:
        store: on S3.
        folder: of the work's parts.
        task: the step, for people.
    """

    def __init__(self, store: "Store", folder: str, task: str) -> None:
        brief = bucket_of(store.ref.uri, BEAT)
        if brief is None or store.remote is None:
            raise ValueError(f"{store.ref.uri}: a folder has no lease, but a lock")
        self._patient, self._brief = store.remote, brief
        self._root, self._folder, self._task = store.root, f"{folder}/{FOLDER}", task
        self._where = f"{store.ref.uri}/{folder}"
        self._number = 0
        self._record = _Record(
            schema_version=SCHEMA,
            holder=f"{socket.gethostname()}, process {os.getpid()}",
            token=uuid.uuid4().hex,
            beat=0,
        )
        self._ended = threading.Event()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Waits for the work, and holds it inside the block."""
        self._acquire()
        beating = threading.Thread(target=self._beat, daemon=True, name=f"lease of {self._task}")
        beating.start()
        try:
            yield
        finally:
            self._ended.set()
            beating.join()
            self._release()

    def check(self) -> None:
        """Asks the store whether the work is still this process's.

        Raises:
            LostLeaseError: it is not.
            ArtifactError: the store does not answer.
        """
        self._check(self._patient)

    def _check(self, bucket: "Bucket") -> None:
        number, found = self._newest(bucket)
        if number == self._number and found is not None and found.token == self._record.token:
            return
        by = f"taken over by {found.holder}" if found else "ended or removed by another process"
        raise LostLeaseError(
            f"{self._task}: the work in {self._where} was {by}, because this process ({self._record.holder}) gave no "
            f"sign of life for {TAKEN_OVER_AFTER:.0f} s. It stops and saves nothing more; the other process goes on."
        )

    def _acquire(self) -> None:
        seen: _Record | None = None
        since = looked = 0.0
        told = False
        while True:
            number, found = self._newest(self._patient)
            now = time.monotonic()
            if found != seen or now - looked > TAKEN_OVER_AFTER / 3:
                # Where the waiter itself could not look, the holder's beat may have failed for the same reason.
                seen, since = found, now
            looked = now
            free = found is None or found.released or self._is_of_this_copy(number, found)
            if not free and now - since >= TAKEN_OVER_AFTER:
                free = True
                logger().info("%s: %s gave no sign of life; its work is taken over", self._task, found and found.holder)
            if free and self._create(number + 1):
                return
            if not free:
                if not told:
                    logger().info(
                        "%s: %s does this work in %s; waiting for its end, or for %.0f s without a sign of life",
                        *(self._task, found and found.holder, self._where, TAKEN_OVER_AFTER),
                    )
                told = True
                time.sleep(LOOK)

    def _create(self, number: int) -> bool:
        """Creates the lease with a number; whether this process did, and not another one a moment before."""
        key, text = self._key(number), self._record.model_dump_json()
        self._patient.write_new(key, text.encode())
        if self._read(self._patient, number) != self._record:
            return False
        self._number = number
        with disk_errors(self._root):
            (self._root / key).parent.mkdir(parents=True, exist_ok=True)
            (self._root / key).write_text(text)
        return True

    def _is_of_this_copy(self, number: int, found: _Record) -> bool:
        """Return True if the holder used this local copy, whose lock this process has: the holder is dead."""
        noted = self._root / self._key(number)
        record = _parsed(noted.read_bytes()) if noted.is_file() else None
        return record is not None and record.token == found.token

    def _beat(self) -> None:
        while not self._ended.wait(BEAT):
            try:
                self._check(self._brief)
                self._write(beat=self._record.beat + 1)
            except LostLeaseError as error:
                logger().warning("%s", error.message)
                return
            except Exception as error:  # of whatever kind: the next beat may succeed, and saving asks anew
                logger().debug("%s: no beat: %s", self._task, error)

    def _release(self) -> None:
        try:
            self._check(self._brief)
            self._write(released=True)
        except ArtifactError as error:  # The work has ended, well or with an error that says more.
            logger().debug("%s: not released: %s", self._task, error.message)

    def _write(self, **changes: object) -> None:
        self._record = self._record.model_copy(update=changes)
        self._brief.write(self._key(self._number), self._record.model_dump_json().encode())

    def _newest(self, bucket: "Bucket") -> tuple[int, _Record | None]:
        """The lease with the highest number; 0 without one."""
        number = max((int(key.rpartition("/")[2]) for key in bucket.sizes(self._folder)), default=0)
        return number, self._read(bucket, number) if number else None

    def _read(self, bucket: "Bucket", number: int) -> _Record | None:
        return _parsed(bucket.read(self._key(number)))

    def _key(self, number: int) -> str:
        return f"{self._folder}/{number:06d}"


def _parsed(text: bytes | None) -> _Record | None:
    try:
        return _Record.model_validate_json(text) if text else None
    except ValidationError:
        return None  # What cannot be read holds nothing.
