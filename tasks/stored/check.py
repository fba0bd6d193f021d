"""Check of a store: compares files with the digests in manifests; on S3 in the bucket, not in the local copy."""

import errno
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from rich.filesize import decimal

from tasks.errors import DamagedError
from tasks.formats import first_names
from tasks.process.logs import bar
from tasks.store import ArtifactRef, Store
from tasks.store.files import OBJECTS_AT_ONCE, RESTORE, StoredFile, disk_errors, thread_map
from tasks.store.layout import KINDS, MANIFEST
from tasks.store.lineage import Contents, ancestry, read_contents
from tasks.store.records import FileEntry
from tasks.store.store import Storage
from tasks.stored.runs import LATEST, find_artifact, find_reports, match_artifact

RUN = "run"
_FILES_AT_ONCE = 8
_DIGITS = 16
_NAMED = 3
_MISSING = "missing"


@dataclass(frozen=True)
class Fault:
    """A file that is missing or differs from its manifest."""

    artifact: str
    file: str
    expected: str
    found: str


@dataclass(frozen=True)
class Findings:
    """The result of a check: the faults, and the amount that was read."""

    faults: list[Fault]
    artifacts: int
    files: int
    bytes: int
    """Number of bytes that were read."""
    descendants: dict[str, list[str]] = field(default_factory=dict)
    """Descendants of every artifact with a fault."""


def check_store(store: Store, wanted: str | None = None) -> Findings:
    """Verify the digests of artifacts and of all their ancestors.

    ``wanted`` is an artifact as ``kind/digest`` (a run as ``report/digest``), ``latest`` for the last policy of the
    latest run, ``run`` for the latest run, or None for the whole store.

    Raises:
        DataError: the store has no such artifact or run.
        ArtifactError: the disk or the server fails.
    """
    with disk_errors(store.root):
        contents = read_contents(store) if wanted is None else _read_ancestry(store, wanted)
        findings = _check(store, contents)
        # The whole store is read only for the descendants of damaged artifacts, because that takes long on S3.
        whole = read_contents(store) if wanted and findings.faults else contents
        descendants = {fault.artifact: sorted(whole.descendants(fault.artifact)) for fault in findings.faults}
        return replace(findings, descendants=descendants)


def _read_ancestry(store: Store, wanted: str) -> Contents:
    """Return an artifact and its ancestors, with the files of all artifacts."""
    listed = Contents({}, files=store.listing(KINDS))
    if wanted == RUN:
        root = find_reports(store)[0].ref
    elif wanted == LATEST:
        root = find_artifact(store, wanted)
    else:
        # All folders are searched, because an artifact without its manifest is checked too.
        root = ArtifactRef.of(match_artifact(listed.folders, wanted))
    lineage = ancestry(store, [root], copied=False)
    return replace(listed, manifests=lineage.manifests, missing=lineage.missing)


def check_bucket(store: Store, refs: Iterable[ArtifactRef]) -> None:
    """Check that a bucket holds artifacts and all their ancestors, by names and sizes of objects.

    A task that Flyte's cache skips does not look into the bucket, and neither does the read of a local copy. A store in
    a folder has no copy, so it is not checked here.

    Raises:
        DamagedError: the bucket lacks an artifact.
        ArtifactError: the disk or the server fails.
    """
    if store.remote is None:
        return
    lineage = ancestry(store, refs)
    held = thread_map(store.holds, [manifest.ref for manifest in lineage.manifests.values()], OBJECTS_AT_ONCE)
    lost = [*lineage.missing, *(name for name, there in zip(lineage.manifests, held, strict=True) if not there)]
    if lost:
        named = first_names(sorted(lost), _NAMED)
        raise DamagedError(f"{store.ref.uri}: missing or incomplete in the bucket: {named}. {RESTORE}")


def _check(store: Store, contents: Contents) -> Findings:
    """Check artifacts with their ancestors, and the artifacts that records name: they may be gone altogether."""
    recorded = (name for names in contents.records.values() for name in names)
    scope = contents.ancestors([*contents.manifests, *contents.missing, *recorded])
    names = sorted(contents.manifests)
    expected = {f"{name}/{file}": entry for name in names for file, entry in contents.manifests[name].files.items()}
    stored = [contents.files.get(key) for key in expected]
    faults, read = [*_manifest_faults(contents, scope)], 0
    at_once = OBJECTS_AT_ONCE if store.remote else _FILES_AT_ONCE
    with bar("check", len(expected)) as progress, ThreadPoolExecutor(at_once) as pool:
        found = pool.map(partial(_fault, store.original), expected, stored, expected.values())
        for file, fault in zip(stored, found, strict=True):
            read += file.bytes if file else 0
            progress.advance(note=decimal(read))
            faults += [fault] if fault else []
    return Findings(
        faults=sorted(faults, key=lambda fault: (fault.artifact, fault.file)),
        artifacts=len(names),
        files=len(expected),
        bytes=read,
    )


def _manifest_faults(contents: Contents, scope: Iterable[str]) -> Iterator[Fault]:
    """Yield a fault for every manifest that is missing, unreadable, or in conflict with its folder or its content."""
    for name in sorted(scope):
        if name not in contents.manifests:
            found = contents.missing[name].problem if f"{name}/{MANIFEST}" in contents.files else _MISSING
            yield Fault(name, MANIFEST, f"digest {name.partition('/')[2]}", found)


def _fault(storage: Storage, key: str, stored: StoredFile | None, entry: FileEntry) -> Fault | None:
    found = _MISSING
    for _ in range(2):  # A second read tells a damaged file from a read error.
        try:
            sha256 = storage.digest(key, stored.bytes) if stored else None
        except OSError as error:
            if error.errno != errno.EIO:  # Other errors, as of permissions, are not of this file alone.
                raise
            found = f"not readable: {error.strerror}"
            continue
        if stored and sha256:
            if sha256 == entry.sha256:
                return None
            found = f"{sha256[:_DIGITS]}, {stored.bytes} bytes"
    kind, digest, file = key.split("/", 2)
    return Fault(f"{kind}/{digest}", file, f"{entry.sha256[:_DIGITS]}, {entry.bytes} bytes", found)
