"""The command gc: finds what no kept run refers to, and deletes it.

An artifact stays when a kept run descends from it, when it or one that descends from it is young, and while any step is
at work: what a running step reads cannot be told from outside. So do the shards of later stages beside those of earlier
ones. Steps are at work whose locks on this machine are held, and whose leases on S3 have a holder that gives a sign of
life. A step on another machine that takes no lease, because it saves no parts, is protected by age alone.
"""

import fcntl
import json
import shlex
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from pathlib import Path

from filelock import FileLock, Timeout
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from tasks.artifacts import Store
from tasks.artifacts.files import StoredFile, disk_errors
from tasks.artifacts.layout import KINDS, LEASES, MANIFEST, PROGRESS, RUNS, STAGING
from tasks.artifacts.lease import LOOK, LeaseRecord, held_leases, living_leases
from tasks.artifacts.lineage import by_folder, read_contents
from tasks.artifacts.places import Place, delete_folder
from tasks.artifacts.records import Manifest
from tasks.artifacts.staging import leftovers
from tasks.errors import ArtifactError
from tasks.progress import bar
from tasks.report.formats import counted, size, some
from tasks.stored.reports import finished_runs

_HOUR = 3600.0


@dataclass(frozen=True)
class Item:
    """A file or a folder to delete."""

    kind: str
    """The row of the table that counts it."""
    name: str
    """Its key in the store."""
    bytes: int
    copied: int = 0
    """Bytes of its local copy, for a store on S3."""


@dataclass(frozen=True)
class Garbage:
    """What no kept run refers to, and how much stays."""

    items: list[Item]
    """Items in the order in which they can be deleted."""
    runs: int
    """Runs that are kept, with all their artifacts."""
    kept: int
    """Artifacts that stay."""
    spared: int
    """Those of them that belong to no kept run."""
    at_work: list[str]
    """Keys of the work that some process does."""
    on_s3: bool
    held: Mapping[str, LeaseRecord] = field(default_factory=dict)
    """Leases on S3 that were held when the store was read, by the key of their work."""

    def shown(self, hours: float, deleted: bool = False, names: bool = False) -> RenderableType:
        """Return a table of what goes, and what stays and why.

        Args:
            hours: the age below which artifacts were spared.
            deleted: whether the items are gone already.
            names: whether every item is named.
        """
        parts: list[RenderableType] = [f"{item.name}  {size(item.bytes)}" for item in self.items if names]
        parts.append(self._table("deleted" if deleted else "to delete") if self.items else "nothing to delete")
        why = f"are younger than {hours:g} h, or something that is descends from them"
        if self.at_work:
            why = f"may be read by steps that are at work (leases {some(self.at_work, 3)})"
        spared = f", {self.spared} of them because they {why}" if self.spared else ""
        parts.append(f"kept: {counted(self.runs, 'finished run')}; {counted(self.kept, 'artifact')}{spared}")
        return Group(*parts)

    def _table(self, title: str) -> Table:
        table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", show_footer=True)
        table.add_column("kind", "total", no_wrap=True)
        for heading, total in zip(("number", "bytes", "local copy"), self._row(self.items), strict=False):
            table.add_column(heading, total, justify="right", no_wrap=True)
        for kind in dict.fromkeys(item.kind for item in self.items):
            table.add_row(kind, *self._row([item for item in self.items if item.kind == kind]))
        return table

    def _row(self, items: Sequence[Item]) -> list[str]:
        cells = [str(len(items)), size(sum(item.bytes for item in items))]
        return [*cells, size(sum(item.copied for item in items))] if self.on_s3 else cells


def find_garbage(store: Store, keep: int | None = None, hours: float = 24) -> Garbage:
    """Find what no kept run refers to.

    Args:
        store: the store to look through.
        keep: how many runs are kept of those that differ in nothing but what they gave, the latest ones; all when None.
        hours: the age below which artifacts are spared.

    Raises:
        ArtifactError: a manifest cannot be read, so that nobody knows what it refers to; or the disk or server fails.
    """
    with disk_errors(store.root):
        return _Search(store, time.time() - hours * _HOUR).garbage(keep)


def delete_garbage(store: Store, garbage: Garbage) -> Garbage:
    """Delete what was found, manifests before data; return what was deleted.

    Work that was begun since is left alone, and with it all artifacts.

    Raises:
        ArtifactError: the disk or the server does not let it; what is left is found the next time.
    """
    deletion, deleted = _Deletion(store, garbage.held), []
    # Locks first: the fewer there are, the sooner it is known before every artifact that nobody is at work.
    ordered = sorted(garbage.items, key=lambda item: not item.name.startswith((f"{PROGRESS}/", f"{LEASES}/")))
    with disk_errors(store.root), bar("delete", len(ordered)) as progress:
        for item in ordered:
            if deletion.delete(item.name):
                deleted.append(item)
            progress.advance(note=item.name)
    return replace(garbage, items=deleted)


class _Deletion:
    """Deletes items of a store unless work has begun since the store was read."""

    def __init__(self, store: Store, held: Mapping[str, LeaseRecord]) -> None:
        self._store, self._held = store, held
        self._places: list[Place] = [store.local, *([store.remote] if store.remote else [])]
        self._looked, self._begun = 0.0, set[str]()

    def delete(self, name: str) -> bool:
        """Delete an item; return whether nobody needs it."""
        area, _, key = name.partition("/")
        key = key.removesuffix(".lock")
        if area == STAGING:
            shutil.rmtree(self._store.root / name, ignore_errors=True)
        elif area in (LEASES, PROGRESS):
            with _lock(self._store, key) as ours:
                if not ours or key in self._on_s3():
                    return False
                if area == PROGRESS:
                    self._delete(name)
        elif _locked(self._store) or self._on_s3():
            return False
        else:
            self._delete(name)
        return True

    def _delete(self, name: str) -> None:
        if refused := delete_folder(self._places, name):
            raise ArtifactError(
                f"{refused[0]}: still there after its deletion ({len(refused)} objects are). Allow these credentials "
                "to delete, then start the same command again."
            )

    def _on_s3(self) -> set[str]:
        """Return the keys of the work whose leases on S3 changed since the store was read."""
        if self._store.remote and time.monotonic() - self._looked > LOOK:
            now = held_leases(self._store.remote)
            self._begun = {key for key, record in now.items() if self._held.get(key) != record}
            self._looked = time.monotonic()
        return self._begun


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


def _locked(store: Store) -> list[str]:
    """Return the keys of the work whose locks are held on this machine."""
    return sorted(path.stem for path in (store.root / LEASES).glob("*.lock") if _held(path))


def _held(path: Path) -> bool:
    """Return True if a process may hold a lock; one that cannot be read counts as held.

    A FileLock opens its file for writing, which a store that is only read does not allow. It locks by flock too.
    """
    try:
        with path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:  # Deleted a moment ago.
        return False
    except (BlockingIOError, PermissionError):
        return True
    return False


class _Search:
    """One look at a store; files are old that were last changed ``before``, in Unix seconds."""

    def __init__(self, store: Store, before: float) -> None:
        self._store, self._before = store, before
        # Locks and leases before artifacts: a step that ends in between has committed by then.
        self._living = living_leases(store.remote) if store.remote else {}
        self._at_work = sorted({*_locked(store), *self._living})
        self._held = held_leases(store.remote) if store.remote else {}
        self._contents = read_contents(store)
        if self._contents.missing:
            name, why = next(iter(self._contents.missing.items()))
            raise ArtifactError(
                f"{store.ref.uri}/{name}/{MANIFEST}: {why}, so what it refers to is unknown, and nothing can be "
                f"deleted. `mu-grpo check --store {shlex.quote(store.ref.uri)}` says how to fix it; or delete its "
                "folder."
            )
        copied = [] if store.remote is None else [store.local.listing(area) for area in (*KINDS, PROGRESS)]
        self._copies = by_folder({key: file for listed in copied for key, file in listed.items()})

    def garbage(self, keep: int | None) -> Garbage:
        """Return what goes when so many runs are kept."""
        contents, runs = self._contents, finished_runs(self._contents, keep)
        here = contents.manifests.keys()
        young = [name for name in here if self._changed(name) > self._before]
        of_runs = contents.ancestors(name for run in runs for name in run) & here
        in_use = contents.ancestors(here if self._at_work else young) & here
        stays = of_runs | in_use | self._cut_with(in_use)
        going = self._children_first(here - stays)
        return Garbage(
            items=[
                *self._records({*going}),
                *(self._item(name.partition("/")[0], name) for name in going),
                *self._folders(),
                *self._leftovers(),
            ],
            runs=len(runs),
            kept=len(stays),
            spared=len(stays - of_runs),
            at_work=self._at_work,
            on_s3=self._store.remote is not None,
            held=self._held,
        )

    def _cut_with(self, names: set[str]) -> set[str]:
        """Return the shards that a run cut together with one of these: its later stages read them."""

        def cut(manifest: Manifest) -> str:
            parents = {role: [ref.digest for ref in refs] for role, refs in manifest.parents.items()}
            return json.dumps([parents, manifest.settings, manifest.seed], sort_keys=True)

        shards = {
            name: cut(manifest)
            for name, manifest in self._contents.manifests.items()
            if manifest.kind == "prompts" and "stage" in manifest.known_facts
        }
        used = {shards[name] for name in names & shards.keys()}
        return {name for name, how in shards.items() if how in used}

    def _records(self, going: set[str]) -> Iterator[Item]:
        """Yield records, which go first: then none of them ever names an artifact that went."""
        for key, names in self._contents.records.items():
            file = self._contents.files[key]
            lost = not {*names} <= self._contents.manifests.keys() and file.modified <= self._before
            if lost or going & {*names}:
                yield Item("records of runs" if key.startswith(f"{RUNS}/") else "records of work", key, file.bytes)

    def _folders(self) -> Iterator[Item]:
        """Yield unfinished work, data that never got a manifest, and local copies of what S3 has no longer."""
        for name in sorted({*self._contents.folders, *self._copies} - self._contents.manifests.keys()):
            area, _, key = name.partition("/")
            if self._changed(name) > self._before:
                continue
            if area == PROGRESS and key not in self._at_work:
                yield self._item("unfinished work", name)
            if area in KINDS and not self._at_work:
                yield self._item("data without manifest" if name in self._contents.folders else "local copies", name)

    def _leftovers(self) -> Iterator[Item]:
        for path in sorted((self._store.root / LEASES).glob("*.lock")):
            if path.stem not in self._at_work and path.stat().st_mtime <= self._before:
                yield Item("leases", f"{LEASES}/{path.name}", 0)
        for folder in sorted(leftovers(self._store.root)):
            count = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            yield Item("staging", f"{STAGING}/{folder.name}", count)

    def _children_first(self, names: Iterable[str]) -> list[str]:
        """Return artifacts in an order in which whatever is left after an interruption has its parents."""
        chosen = {*names}
        edges = {name: chosen.intersection(self._contents.parents[name]) for name in sorted(chosen)}
        return [*TopologicalSorter(edges).static_order()][::-1]

    def _changed(self, name: str) -> float:
        """Return when a folder was last changed; an artifact, when it was made or copied here."""
        files: list[StoredFile] = [*self._contents.folders.get(name, {}).values()]
        made = 0.0
        if name in self._contents.manifests:
            made = self._contents.manifests[name].timings.finished
        else:
            files += self._copies.get(name, {}).values()
        return max([made, *(file.modified for file in files)])

    def _item(self, kind: str, name: str) -> Item:
        stored, copied = self._contents.folders.get(name, {}), self._copies.get(name, {})
        return Item(kind, name, *(sum(file.bytes for file in files.values()) for files in (stored, copied)))
