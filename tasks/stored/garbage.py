"""Find and delete files that no finished run refers to.

An artifact is kept if a finished run descends from it, or if it or a descendant is young. All artifacts are kept while
a step is running, since it is unknown which of them it reads. Shards of later stages are kept together with those of
earlier stages. A step on another machine that saves no parts has no lease, so its artifacts are protected by age alone.
"""

import json
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter

from filelock import FileLock, Timeout

from tasks.errors import ArtifactError
from tasks.process.progress import bar
from tasks.store import Store
from tasks.store.files import disk_errors
from tasks.store.layout import KINDS, LEASES, MANIFEST, PROGRESS, RUNS, Kind
from tasks.store.lease import RunningWork
from tasks.store.lineage import Contents, read_contents
from tasks.store.records import Manifest
from tasks.stored.runs import run_key

_HOUR = 3600.0
_ENDS: tuple[Kind, ...] = ("report", "study", "laboratory", "reproduction")
"""Kinds of the last artifact of a finished run."""


@dataclass(frozen=True)
class Item:
    """A file or a folder to delete."""

    kind: str
    """Row of the printed table in which it is counted."""
    name: str
    """Key in the store."""
    bytes: int


@dataclass(frozen=True)
class Garbage:
    """Files and folders that no finished run refers to, and how much is kept."""

    items: list[Item]
    """Items, in the order in which they can be deleted."""
    runs: int
    """Number of finished runs, whose artifacts are all kept."""
    kept: int
    """Number of artifacts that are kept."""
    spared: int
    """Number of artifacts that are kept although they belong to no finished run."""
    work: RunningWork
    """The work that was running when the store was read."""


def find_garbage(store: Store, hours: float = 24) -> Garbage:
    """Find files that no finished run refers to; artifacts younger than ``hours`` are kept.

    Raises:
        ArtifactError: a manifest cannot be read, so that its parents are unknown; or the disk or the server fails.
    """
    with disk_errors(store.root):
        work = RunningWork(store)
        contents = read_contents(store)
        if contents.missing:
            name, why = next(iter(contents.missing.items()))
            raise ArtifactError(
                f"{store.ref.uri}/{name}/{MANIFEST}: {why}, so what it refers to is unknown, and nothing can be "
                f"deleted. `mu-grpo check --store {shlex.quote(store.ref.uri)}` says how to fix it; or delete its "
                "folder."
            )
        before = time.time() - hours * _HOUR
        here = contents.manifests.keys()
        young = [name for name in here if _changed(contents, name) > before]
        ends = {name: manifest for name, manifest in contents.manifests.items() if manifest.kind in _ENDS}
        of_runs = contents.ancestors(ends) & here
        in_use = contents.ancestors(here if work.keys else young) & here
        sets = {_shard_set(contents.manifests[name]) for name in in_use} - {None}
        stays = of_runs | in_use | {name for name in here if _shard_set(contents.manifests[name]) in sets}
        # Descendants come first, so that after an interruption no artifact lacks its parents.
        edges = {name: {*contents.parents[name]} & here - stays for name in sorted(here - stays)}
        going = [*TopologicalSorter(edges).static_order()][::-1]
        items = [
            *_records(contents, {*going}, before),
            *(_folder(contents, name.partition("/")[0], name) for name in going),
            *_unfinished(contents, work, before),
            *_locks(store, work, before),
        ]
        runs = {run_key(manifest) for manifest in ends.values()}
        return Garbage(items, len(runs), len(stays), len(stays - of_runs), work)


def _shard_set(manifest: Manifest) -> str | None:
    """Return a key that the shards of a run share, because later stages read some of them; None for other artifacts."""
    if manifest.kind != "prompts" or "stage" not in manifest.known_facts:
        return None
    parents = {role: [ref.digest for ref in refs] for role, refs in manifest.parents.items()}
    return json.dumps([parents, manifest.settings, manifest.seed], sort_keys=True)


def _records(contents: Contents, going: set[str], before: float) -> Iterator[Item]:
    """Yield records, which are deleted first, so that none names a deleted artifact."""
    for key, names in contents.records.items():
        file = contents.files[key]
        lost = not {*names} <= contents.manifests.keys() and file.modified <= before
        if lost or going & {*names}:
            yield Item("records of runs" if key.startswith(f"{RUNS}/") else "records of work", key, file.bytes)


def _unfinished(contents: Contents, work: RunningWork, before: float) -> Iterator[Item]:
    """Yield unfinished work, and data without a manifest."""
    for name in sorted(contents.folders.keys() - contents.manifests.keys()):
        area, _, key = name.partition("/")
        if _changed(contents, name) > before:
            continue
        if area == PROGRESS and key not in work.keys:
            yield _folder(contents, "unfinished work", name)
        if area in KINDS and not work.keys:
            yield _folder(contents, "data without manifest", name)


def _locks(store: Store, work: RunningWork, before: float) -> Iterator[Item]:
    for path in sorted((store.root / LEASES).glob("*.lock")):
        if path.stem not in work.keys and path.stat().st_mtime <= before:
            yield Item("leases", f"{LEASES}/{path.name}", 0)


def _changed(contents: Contents, name: str) -> float:
    """Return when a folder was last changed, or an artifact was made or copied here, in Unix seconds."""
    manifest = contents.manifests.get(name)
    made = manifest.timings.finished if manifest else 0.0
    return max([made, *(file.modified for file in contents.folders.get(name, {}).values())])


def _folder(contents: Contents, kind: str, name: str) -> Item:
    return Item(kind, name, sum(file.bytes for file in contents.folders[name].values()))


def delete_garbage(store: Store, garbage: Garbage) -> Garbage:
    """Delete garbage, manifests before data, and the files of dead writers; return the deleted items.

    If a step has begun since the garbage was found, its work and all artifacts are kept.

    Raises:
        ArtifactError: the disk or the server refuses; the rest is found the next time.
    """
    deleted = []
    store.sweep()
    # Locks first, because all of them are checked before the deletion of each artifact.
    ordered = sorted(garbage.items, key=lambda item: not item.name.startswith((f"{PROGRESS}/", f"{LEASES}/")))
    with disk_errors(store.root), bar("delete", len(ordered)) as progress:
        for item in ordered:
            if _delete(store, garbage.work, item.name):
                deleted.append(item)
            progress.advance(note=item.name)
    return replace(garbage, items=deleted)


def _delete(store: Store, work: RunningWork, name: str) -> bool:
    """Delete an item unless a running step may need it; return whether it was deleted."""
    area, _, key = name.partition("/")
    key = key.removesuffix(".lock")
    if area not in (LEASES, PROGRESS):
        free = not work.locked() and not work.started()
        if free:
            _delete_folder(store, name)
        return free
    with _lock(store, key) as ours:
        free = ours and key not in work.started()
        if free and area == PROGRESS:
            _delete_folder(store, name)
        return free


def _delete_folder(store: Store, name: str) -> None:
    if refused := store.delete(name):
        raise ArtifactError(
            f"{refused[0]}: still there after its deletion ({len(refused)} objects are). Allow these credentials to "
            "delete, then start the same command again."
        )


@contextmanager
def _lock(store: Store, key: str) -> Iterator[bool]:
    """Yield True if the lock of the work is free. Inside the block it is held, and then its file is deleted."""
    path = store.root / LEASES / f"{key}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        # Deleted before the release, so that a process that waits for the lock makes a new file.
        path.unlink(missing_ok=True)
        lock.release()
