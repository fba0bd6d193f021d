"""Steps that run once: in one process at a time, with stored results reused and interrupted work continued."""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Concatenate, ParamSpec, TypeVar

from filelock import FileLock, Timeout

from tasks.errors import StorageError
from tasks.process.interruption import defers_sigterm
from tasks.process.logs import logger
from tasks.process.provenance import waits
from tasks.settings.base import Settings
from tasks.store.files import OBJECTS_AT_ONCE, disk_errors, thread_map
from tasks.store.layout import LEASES, MADE, MARKER
from tasks.store.records import ArtifactRef, Record, StoreMarker, StoreRef
from tasks.store.store import Store

Made = TypeVar("Made", ArtifactRef, list[ArtifactRef])
Inputs = ParamSpec("Inputs")


class MadeRecord(Record):
    """Record of the artifacts that a step made, stored under the key of its work."""

    artifacts: ArtifactRef | list[ArtifactRef]

    @property
    def listed(self) -> list[ArtifactRef]:
        """The artifacts as a list."""
        return self.artifacts if isinstance(self.artifacts, list) else [self.artifacts]


def work_key(task: str, version: str, inputs: Sequence[Any]) -> str:
    """Return the key of work: a digest of the step, its version, settings and the digests of its input artifacts."""
    return hashlib.sha256(json.dumps([task, version, inputs], default=_plain).encode()).hexdigest()[:32]


def run_once(
    ref: StoreRef,
    task: str,
    version: str,
    logic: Callable[Concatenate[Store, Inputs], Made],
    *inputs: Inputs.args,
    **named: Inputs.kwargs,
) -> Made:
    """Run a step, unless the store holds its undamaged result.

    Other processes on this machine with the same work wait for this one. With a store on S3, processes on other
    machines wait too if the step defers SIGTERM until it has saved its work, which they then continue.

    Args:
        ref: the store.
        task: the step's name.
        version: the step's version.
        logic: the step.
        inputs: settings, references and plain values that determine the result.
        named: inputs that do not change the result.

    Raises:
        ArtifactError: the store's folder was moved, deleted or unmounted since the run opened it.
    """
    key = work_key(task, version, inputs)
    store = Store(ref, task, version, key)
    marker = StoreMarker.parse(store.local.read(MARKER))
    if store.remote is None and (marker is None or marker.id != ref.id):
        raise StorageError(
            f"{ref.uri}: the store is not here any more: it was moved, deleted or unmounted during the run. Bring it "
            "back, or name its new place, then start the same command again: committed artifacts are kept."
        )
    with _lock(store, key, task):
        if artifacts := _find(store, key, task):
            return artifacts  # type: ignore[return-value]  # of the type that the same step returned
        with store.progress.hold(task) if defers_sigterm(logic) else nullcontext():
            if artifacts := _find(store, key, task):  # Another machine has finished the work.
                return artifacts  # type: ignore[return-value]  # of the type that the same step returned
            made = logic(store, *inputs, **named)
            store.progress.check_lease()
            record = MadeRecord(artifacts=made)
            store.original.write(f"{MADE}/{key}.json", record.model_dump_json().encode())
        store.progress.clear()
    return made


def _find(store: Store, key: str, task: str) -> ArtifactRef | list[ArtifactRef] | None:
    """Return the artifacts that the work made, or None if one is missing or damaged."""
    record = MadeRecord.parse(store.original.read(f"{MADE}/{key}.json"))
    if record is None or not all(thread_map(store.holds, record.listed, OBJECTS_AT_ONCE)):
        return None
    logger().debug("%s: found in %s", task, store.ref.uri)
    return record.artifacts


def _lock(store: Store, key: str, task: str) -> AbstractContextManager[Any]:
    """Acquire the lock of the work on this machine for a block; a process that dies releases it."""
    path = store.root / LEASES / f"{key}.lock"
    with disk_errors(store.root):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock, start = FileLock(path), time.time()
        try:
            return lock.acquire(timeout=1)
        except Timeout:
            logger().info("%s: another process does this work on %s; waiting for it", task, store.ref.uri)
            acquired = lock.acquire()
            waits.append((start, time.time()))
            return acquired


def _plain(value: ArtifactRef | Settings) -> Any:
    """Return what stands for an input in the key of its work."""
    return value.digest if isinstance(value, ArtifactRef) else value.result_values()
