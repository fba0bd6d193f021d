"""The command check: compares every file of a store with its manifests, where the artifacts are."""

import shlex
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from tasks.artifacts import Store
from tasks.artifacts.files import RESTORE, disk_errors, side_by_side
from tasks.artifacts.layout import KINDS, MANIFEST
from tasks.artifacts.lineage import Contents, read_contents
from tasks.artifacts.places import Place
from tasks.artifacts.records import FileEntry, Manifest
from tasks.artifacts.store import content_digest
from tasks.errors import DataError
from tasks.progress import bar
from tasks.report.formats import counted, duration, size, some
from tasks.stored.find import LATEST, find_artifact, match
from tasks.stored.reports import find_reports

RUN = "run"
_FILES_AT_ONCE = 8
_DIGITS = 16
_MISSING = "missing"
_DELETE = "Delete what is damaged: a step whose files have their sizes may count as done."


@dataclass(frozen=True)
class Fault:
    """A file that is not what it should be."""

    artifact: str
    file: str
    expected: str
    found: str


@dataclass
class Findings:
    """What a check found."""

    store: str
    faults: list[Fault] = field(default_factory=list)
    descendants: dict[str, list[str]] = field(default_factory=dict)
    """The artifacts that descend from every artifact with a fault."""
    leftovers: dict[str, int] = field(default_factory=dict)
    """Folders that never became an artifact, and their bytes."""
    artifacts: int = 0
    files: int = 0
    bytes: int = 0
    """Bytes that were read."""
    seconds: float = 0.0

    def shown(self) -> RenderableType:
        """Return tables of what is wrong, how to fix it, and what was checked."""
        parts: list[RenderableType] = []
        if self.faults:
            parts += [self._faults(), f"to fix it: {_DELETE} {RESTORE}", ""]
        if self.leftovers:
            names = some(list(self.leftovers), 8)
            parts += [
                f"without a manifest, so no artifacts: {names} ({size(sum(self.leftovers.values()))}). A writer that "
                "died left them, or one is at work.",
                f"to fix it: `mu-grpo gc --store {shlex.quote(self.store)}` lists them once they are a day old, and "
                "deletes them with --delete.",
                "",
            ]
        numbers = f"{counted(self.artifacts, 'artifact')}, {counted(self.files, 'file')}, {size(self.bytes)}"
        damaged = len({fault.artifact for fault in self.faults})
        result = f"{counted(damaged, 'artifact')} damaged or missing" if damaged else "whole"
        return Group(*parts, f"{numbers} in {duration(self.seconds)}: {result}")

    def _faults(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD)
        table.add_column("artifact", no_wrap=True)
        for name in ("file", "expected", "found", "descend from it"):
            table.add_column(name, overflow="fold")
        for fault in self.faults:
            descend = some(self.descendants[fault.artifact], 3) or "-"
            table.add_row(*map(escape, (fault.artifact, fault.file, fault.expected, fault.found, descend)))
        return table


def check_store(store: Store, wanted: str | None, seed: int | None = None, algorithm: str | None = None) -> Findings:
    """Verify the digests of artifacts and of all that they descend from.

    Args:
        store: the store of the artifacts.
        wanted: an artifact as ``kind/digest``, ``latest`` for the last policy of the latest run, ``run`` for the
            latest run; everything when None and neither seed nor algorithm is given.
        seed: the seed of the run.
        algorithm: the algorithm of the run.

    Raises:
        DataError: there is no such artifact or run.
        ArtifactError: the disk or the server fails.
    """
    start = time.monotonic()
    of_run = seed is not None or algorithm is not None
    if of_run and wanted not in (None, RUN):
        raise DataError(f"{wanted!r} with a seed or an algorithm: these choose a run; name an artifact or give these.")
    with disk_errors(store.root):
        contents = read_contents(store)
        root = _root(store, contents, RUN if of_run else wanted, seed, algorithm)
        return _check(store, contents, root, start)


def _root(store: Store, contents: Contents, wanted: str | None, seed: int | None, algorithm: str | None) -> str | None:
    if wanted is None:
        return None
    if wanted == RUN:
        return find_reports(store, seed, algorithm)[0].ref.folder
    if wanted == LATEST:
        return find_artifact(store, wanted).folder
    # Among all folders: one that has lost its manifest is there to be checked, too.
    return match(contents.folders, wanted)


def _check(store: Store, contents: Contents, root: str | None, start: float) -> Findings:
    findings = Findings(store.ref.uri)
    scope = contents.ancestors([*contents.manifests, *contents.missing] if root is None else [root])
    findings.faults += _manifest_faults(contents, scope)
    known = {fault.artifact for fault in findings.faults}
    if root is None:
        findings.faults += _lost(contents, known | contents.manifests.keys())
        known = {fault.artifact for fault in findings.faults}
        findings.leftovers = {
            name: sum(file.bytes for file in files.values())
            for name, files in contents.folders.items()
            if name.split("/")[0] in KINDS and MANIFEST not in files and name not in known
        }
    whole = sorted(scope & contents.manifests.keys())
    findings.artifacts = len(whole)
    findings.faults += _file_faults(store.place, contents, {name: contents.manifests[name] for name in whole}, findings)
    findings.faults.sort(key=lambda fault: (fault.artifact, fault.file))
    findings.descendants = {fault.artifact: sorted(contents.descendants(fault.artifact)) for fault in findings.faults}
    findings.seconds = time.monotonic() - start
    return findings


def _manifest_faults(contents: Contents, scope: Iterable[str]) -> Iterator[Fault]:
    """Yield manifests that are missing, cannot be read, or are not those of their folder and their content."""
    for name in sorted(scope):
        manifest = contents.manifests.get(name)
        digest = name.partition("/")[2]
        if manifest is None:
            yield Fault(name, MANIFEST, f"digest {digest}", contents.missing.get(name, _MISSING))
        elif manifest.ref.folder != name:
            yield Fault(name, MANIFEST, f"digest {digest}", f"that of {manifest.ref}")
        else:
            content = content_digest(manifest.kind, manifest.files, manifest.parents)
            if content != manifest.digest:
                found = f"digest {content[:_DIGITS]} of what it names"
                yield Fault(name, MANIFEST, f"digest {digest}", found)


def _lost(contents: Contents, known: Iterable[str]) -> Iterator[Fault]:
    """Yield artifacts that a record is about, but that are not here: nothing that descends from them tells."""
    seen = set(known)
    for key, names in contents.records.items():
        for name in names:
            if name not in seen:
                seen.add(name)
                yield Fault(name, MANIFEST, f"made, says {key}", _MISSING)


def _file_faults(
    place: Place, contents: Contents, artifacts: Mapping[str, Manifest], findings: Findings
) -> list[Fault]:
    expected = {
        f"{name}/{file}": entry for name, manifest in artifacts.items() for file, entry in manifest.files.items()
    }
    lock = threading.Lock()

    def one(key: str) -> Fault | None:
        fault = _fault(place, contents, key, expected[key])
        with lock:
            findings.files += 1
            findings.bytes += contents.files[key].bytes if key in contents.files else 0
            progress.advance(note=size(findings.bytes))
        return fault

    with bar("check", len(expected)) as progress:
        return [fault for fault in side_by_side(one, list(expected), _FILES_AT_ONCE) if fault]


def _fault(place: Place, contents: Contents, key: str, entry: FileEntry) -> Fault | None:
    kind, digest, file = key.split("/", 2)
    there = contents.files.get(key)
    found = place.digest(key, there.bytes) if there else None
    if there and found != entry.sha256:
        # What was read wrong once is read again: a damaged file stays so.
        found = place.digest(key, there.bytes)
    if found == entry.sha256:
        return None
    now = f"{found[:_DIGITS]}, {there.bytes} bytes" if there and found else _MISSING
    return Fault(f"{kind}/{digest}", file, f"{entry.sha256[:_DIGITS]}, {entry.bytes} bytes", now)
