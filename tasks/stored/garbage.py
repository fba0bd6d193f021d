"""Garbage collection: finds the artifacts that no finished run descends from, and deletes them.

An artifact stays if a finished run descends from it, if it or one of its descendants is young, and while any step runs,
because the inputs of a running step are not known here. What an unfinished run needs later stays too: the accuracies of
policies that stay, for its report, and the other shards of prompts and rollouts of which one stays. A step on another
machine that holds no lease, because it saves no parts, is protected by age alone.
"""

import json
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from itertools import chain

from filelock import FileLock, Timeout

from tasks.errors import ArtifactError
from tasks.process.logs import bar
from tasks.store import Store
from tasks.store.files import disk_errors, sweep
from tasks.store.layout import KINDS, LEASES, MANIFEST, PROGRESS, RUNS, Kind
from tasks.store.lease import RunningWork
from tasks.store.lineage import Contents, read_contents
from tasks.store.records import Manifest
from tasks.stored.runs import run_key

_ITEMS_AT_ONCE = 250
"""Number of items that are deleted together on S3. Work that begins is noticed between two such batches."""
_ENDS: tuple[Kind, ...] = ("report", "study", "laboratory", "reproduction")
"""Kinds of artifacts with which runs end."""


@dataclass(frozen=True)
class Item:
    """A file or a folder to delete."""

    kind: str
    """Row of the table in which the item is counted."""
    name: str
    """Key of the item in the store."""
    bytes: int
    keys: Sequence[str]
    """Keys of its files."""


@dataclass(frozen=True)
class Garbage:
    """Files and folders that can be deleted, and the number of artifacts that stay."""

    batches: list[list[Item]]
    """Items that are deleted together, in the order of deletion."""
    runs: int
    """Number of finished runs, whose artifacts all stay."""
    kept: int
    """Number of artifacts that stay."""
    spared: int
    """Number of artifacts that stay although they belong to no finished run."""
    work: RunningWork
    """Work that was running when the store was read."""

    @property
    def items(self) -> list[Item]:
        """All items, in the order of deletion."""
        return [*chain(*self.batches)]


def find_garbage(store: Store, hours: float = 24) -> Garbage:
    """Find the artifacts that no finished run descends from and that are older than some hours.

    Raises:
        ArtifactError: a manifest cannot be read, or that of an ancestor of a finished run is missing, so that its
            parents are unknown; or the disk or the server fails.
    """
    with disk_errors(store.root):
        work = RunningWork(store)
        contents = read_contents(store)
        ends = {name: manifest for name, manifest in contents.manifests.items() if manifest.kind in _ENDS}
        artifacts, of_runs = contents.manifests.keys(), contents.ancestors(ends)
        # A missing end is a run that was deleted, although a comparison of runs descends from it.
        lost = (name for name in sorted(of_runs - artifacts) if name.partition("/")[0] not in _ENDS)
        unreadable = {name: error.problem for name, error in contents.missing.items()}
        unknown = {**dict.fromkeys(lost, "missing"), **unreadable}
        for name, why in unknown.items():
            raise ArtifactError(
                f"{store.ref.uri}/{name}/{MANIFEST}: {why}, so its parents are unknown, and nothing can be "
                f"deleted. `mu-grpo check --store {shlex.quote(store.ref.uri)}` says how to fix it; or delete its "
                "folder, and the reports of finished runs that descend from it."
            )
        before = time.time() - hours * 3600
        young = [name for name in artifacts if _changed(contents, name) > before]
        in_use = contents.ancestors(artifacts if work.keys else young)
        in_use = (in_use | contents.ancestors(_accuracies(contents, in_use))) & artifacts
        sets = {shard_set(contents.manifests[name]) for name in in_use} - {None}
        kept = of_runs | in_use | {name for name in artifacts if shard_set(contents.manifests[name]) in sets}
        garbage = artifacts - kept
        groups = [
            [*_unfinished(contents, work, before)],
            [*_locks(store, work, before)],  # before artifacts, because every lock is tested before each batch of these
            [*_records(contents, garbage, before)],
            *(
                [_folder(contents, name.partition("/")[0], name) for name in names]
                for names in _order(contents, garbage)
            ),
        ]
        size = _ITEMS_AT_ONCE if store.remote else 1
        batches = [group[start : start + size] for group in groups for start in range(0, len(group), size)]
        runs = {run_key(manifest) for manifest in ends.values()}
        return Garbage(batches, len(runs), len(kept), len(kept - of_runs), work)


def _order(contents: Contents, garbage: set[str]) -> Iterator[list[str]]:
    """Yield artifacts after those that descend from them, so that every artifact always has its parents."""
    children = {name: garbage.intersection(contents.children.get(name, ())) for name in garbage}
    sorter = TopologicalSorter(children)
    sorter.prepare()
    while names := sorter.get_ready():
        yield sorted(names)
        sorter.done(*names)


def _accuracies(contents: Contents, names: set[str]) -> Iterator[str]:
    """Yield the evaluations of the policies among artifacts, and their means."""
    for name, manifest in contents.manifests.items():
        policies = manifest.parents.get("policy", ()) if manifest.kind in ("evaluation", "average") else ()
        if names.intersection(policy.folder for policy in policies):
            yield name


def shard_set(manifest: Manifest) -> str | None:
    """Return a key that all shards of a run's prompts, in all stages, or of a stage's rollouts have in common.

    It is None for other artifacts.
    """
    if manifest.kind not in ("prompts", "rollouts") or "stage" not in manifest.known_facts:
        return None
    parents = {name: [ref.digest for ref in refs] for name, refs in manifest.parents.items() if name != "prompts"}
    return json.dumps([manifest.kind, parents, manifest.settings, manifest.seed], sort_keys=True)


def _records(contents: Contents, garbage: set[str], before: float) -> Iterator[Item]:
    """Yield records to delete; they are deleted first, so that no record names a deleted artifact."""
    for key, names in contents.records.items():
        file = contents.files[key]
        lost = not {*names} <= contents.manifests.keys() and file.modified <= before
        if lost or garbage & {*names}:
            kind = "records of runs" if key.startswith(f"{RUNS}/") else "records of work"
            yield Item(kind, key, file.bytes, [key])


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
    for name, file in sorted(store.local.listing(LEASES).items()):
        key = name.removeprefix(f"{LEASES}/").removesuffix(".lock")
        if name.endswith(".lock") and key not in work.keys and file.modified <= before:
            yield Item(LEASES, name, 0, [])


def _changed(contents: Contents, name: str) -> float:
    """Return the time of a folder's last change; for an artifact, the time at which it was made or copied here."""
    manifest = contents.manifests.get(name)
    finished = manifest.timings.finished if manifest else 0.0
    return max([finished, *(file.modified for file in contents.folders.get(name, {}).values())])


def _folder(contents: Contents, kind: str, name: str) -> Item:
    files = contents.folders[name]
    return Item(kind, name, sum(file.bytes for file in files.values()), [f"{name}/{file}" for file in files])


def delete_garbage(store: Store, garbage: Garbage) -> Garbage:
    """Delete the items, manifests before data, and the staged files of dead writers; return the deleted items.

    Work that has begun meanwhile is not deleted; once there is such work, no artifact is deleted.

    Raises:
        ArtifactError: the disk or the server refuses a deletion; the next call finds the remaining items.
    """
    deleted = []
    sweep(store.root)
    with disk_errors(store.root), bar("delete", len(garbage.items)) as progress:
        for batch in garbage.batches:
            deleted.append(_delete(store, garbage.work, batch))
            progress.advance(len(batch), note=batch[-1].name)
    return replace(garbage, batches=deleted)


def _delete(store: Store, work: RunningWork, items: Sequence[Item]) -> list[Item]:
    """Delete the items that are not in use, and return them."""
    started = work.started()
    # To test all locks takes as long as to delete many of them.
    tested = any(item.name.partition("/")[0] not in (LEASES, PROGRESS) for item in items)
    idle = tested and not started and not work.locked()
    free = []
    with ExitStack() as locks:
        for item in items:
            area, _, key = item.name.partition("/")
            key = key.removesuffix(".lock")
            if area in (LEASES, PROGRESS):
                is_free = locks.enter_context(_lock(store, key)) and key not in started
            else:
                is_free = idle
            free += [item] if is_free else []
        # The lock deletes its file itself.
        doomed = [item for item in free if item.kind != LEASES]
        keys = [key for item in doomed for key in item.keys]
        if refused := store.delete(*(item.name for item in doomed), keys=keys):
            raise ArtifactError(
                f"{refused[0]}: still there after its deletion ({len(refused)} objects are). Allow these credentials "
                "to delete, then start the same command again."
            )
    return free


@contextmanager
def _lock(store: Store, key: str) -> Iterator[bool]:
    """Try to hold the lock of work, and yield whether this succeeded; its file is deleted after the block."""
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
        # The file is deleted before the release, so that a waiting process sees that it is gone and makes a new one.
        path.unlink(missing_ok=True)
        lock.release()
