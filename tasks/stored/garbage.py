"""Finds what no finished run refers to, and deletes it.

An artifact stays when a finished run descends from it, when it or one that descends from it is young, and while any
step is at work: what a running step reads cannot be told from outside. So do the shards of later stages beside those of
earlier ones. A step on another machine that takes no lease, because it saves no parts, is protected by age alone.
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
"""Kinds of artifacts that finished runs end with."""


@dataclass(frozen=True)
class Item:
    """A file or a folder to delete."""

    kind: str
    """The row of the table that counts it."""
    name: str
    """Its key in the store."""
    bytes: int


@dataclass(frozen=True)
class Garbage:
    """Files and folders that no finished run refers to, and how much stays."""

    items: list[Item]
    """Items in the order in which they can be deleted."""
    runs: int
    """Finished runs, all artifacts of which stay."""
    kept: int
    """Artifacts that stay."""
    spared: int
    """Artifacts that stay and belong to no finished run."""
    work: RunningWork
    """The work of processes when the store was read."""


def find_garbage(store: Store, hours: float = 24) -> Garbage:
    """Find what no finished run refers to; artifacts younger than some hours are spared.

    Raises:
        ArtifactError: a manifest cannot be read, so that nobody knows what it refers to; or the disk or server fails.
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
        # Children first: whatever is left after an interruption has its parents.
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
    """Return what shards that a run cut together have in common, as later stages read some of them; None for others."""
    if manifest.kind != "prompts" or "stage" not in manifest.known_facts:
        return None
    parents = {role: [ref.digest for ref in refs] for role, refs in manifest.parents.items()}
    return json.dumps([parents, manifest.settings, manifest.seed], sort_keys=True)


def _records(contents: Contents, going: set[str], before: float) -> Iterator[Item]:
    """Yield records, which go first: then none of them ever names an artifact that went."""
    for key, names in contents.records.items():
        file = contents.files[key]
        lost = not {*names} <= contents.manifests.keys() and file.modified <= before
        if lost or going & {*names}:
            yield Item("records of runs" if key.startswith(f"{RUNS}/") else "records of work", key, file.bytes)


def _unfinished(contents: Contents, work: RunningWork, before: float) -> Iterator[Item]:
    """Yield unfinished work, and data that never got a manifest."""
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
    """Return when a folder was last changed; an artifact, when it was made or copied here."""
    manifest = contents.manifests.get(name)
    made = manifest.timings.finished if manifest else 0.0
    return max([made, *(file.modified for file in contents.folders.get(name, {}).values())])


def _folder(contents: Contents, kind: str, name: str) -> Item:
    return Item(kind, name, sum(file.bytes for file in contents.folders[name].values()))


def delete_garbage(store: Store, garbage: Garbage) -> Garbage:
    """Delete what was found, manifests before data, and what dead writers staged; return what was found and is gone.

    Work that was begun since is left alone, and with it all artifacts.

    Raises:
        ArtifactError: the disk or the server does not let it; what is left is found the next time.
    """
    deleted = []
    store.sweep()
    # Locks first: the fewer there are, the sooner it is known before every artifact that nobody is at work.
    ordered = sorted(garbage.items, key=lambda item: not item.name.startswith((f"{PROGRESS}/", f"{LEASES}/")))
    with disk_errors(store.root), bar("delete", len(ordered)) as progress:
        for item in ordered:
            if _delete(store, garbage.work, item.name):
                deleted.append(item)
            progress.advance(note=item.name)
    return replace(garbage, items=deleted)


def _delete(store: Store, work: RunningWork, name: str) -> bool:
    """Delete an item; return whether nobody needs it."""
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
    """Yield whether the work is nobody's; inside the block nobody here can begin it, after it its lock file is gone."""
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
        # Before the release: who waits for the lock then finds that its file is gone, and makes a new one.
        path.unlink(missing_ok=True)
        lock.release()
