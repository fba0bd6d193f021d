"""A store of artifacts, in a folder or on S3. A manifest is written last, and digests are checked on read.

A store on S3 has a local copy of the files that were read or written, with the same layout, in ``MU_GRPO_CACHE`` or
``~/.cache/mu-grpo``.
"""

import errno
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import tasks.store.files as disk
from tasks.errors import ArtifactError, DamagedError
from tasks.process.provenance import commit, execution, gpus, packages, process, waits
from tasks.settings.base import STORES, Settings, is_place
from tasks.store.files import OBJECTS_AT_ONCE, RESTORE, Folder, check, disk_errors, flush, staging_folder, thread_map
from tasks.store.layout import MANIFEST, MARKER, Kind
from tasks.store.progress import Progress
from tasks.store.records import SCHEMA, ArtifactRef, FileEntry, Manifest, StoreRef, Timings

if TYPE_CHECKING:
    from tasks.store.s3 import Bucket

Parents = Mapping[str, ArtifactRef | Sequence[ArtifactRef]]
Place: TypeAlias = "Folder | Bucket"
"""Files of a store by key: on this machine, or on an S3 server."""


class Draft:
    """An artifact while it is written: files go below ``path``, ``phase`` times work, ``facts`` holds small results."""

    ref: ArtifactRef
    """The committed artifact; set when the ``with`` block of ``Store.write`` has ended."""

    def __init__(self, path: Path, parents: Parents) -> None:
        self.path = path
        self.parents: dict[str, ArtifactRef | Sequence[ArtifactRef]] = dict(parents)
        self.facts: dict[str, Any] = {}
        self.phases: dict[str, float] = {}
        self.earlier: dict[str, float] = {}
        """Seconds by phase that earlier attempts spent on the parts that are used again."""
        self.started = time.time()
        self._open: dict[str, float] = {}
        """Start of the phase that is running, by its name."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the seconds spent inside the block to the phase ``name``; phases must not be nested."""
        self._open = {name: time.perf_counter()}
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - self._open.pop(name)

    def spent(self) -> dict[str, float]:
        """Return the seconds by phase until now, with those of earlier attempts."""
        now = time.perf_counter()
        parts = [self.earlier, self.phases, {name: now - start for name, start in self._open.items()}]
        return {name: sum(part.get(name, 0.0) for part in parts) for name in dict.fromkeys(chain(*parts))}


def content_digest(kind: Kind, files: Mapping[str, FileEntry], parents: Mapping[str, Sequence[ArtifactRef]]) -> str:
    """Return the digest of an artifact: over its kind, its files' digests by name, and its parents' digests by role."""
    origin = {role: [ref.digest for ref in refs] for role, refs in parents.items()}
    content = {name: entry.sha256 for name, entry in files.items()}
    return hashlib.sha256(json.dumps([kind, content, origin], sort_keys=True).encode()).hexdigest()


class Store:
    """Artifacts below one folder, or below one S3 prefix.

    Args:
        ref: the store's address and id.
        task: name of the step that writes, for manifests.
        version: version of that step, for manifests.
        work: key of the work, under which its parts are kept for a restart (see ``work.run_once``).
        follows: whether this process follows rank 0, which makes the same calls: it reads the same artifacts, and
            discards what it writes.
    """

    def __init__(self, ref: StoreRef, task: str = "", version: str = "", work: str = "", follows: bool = False) -> None:
        self.ref = ref
        self.remote = bucket_of(ref.uri)
        self.root = Path(ref.uri) if self.remote is None else _cache() / ref.id
        """The folder of the artifacts, or of their local copy."""
        self.local = Folder(self.root)
        self.follows = follows
        self.progress = Progress(self, work)
        """Parts of the unfinished work."""
        self._task, self._version = task, version

    @classmethod
    def open(cls, uri: str | Path, create: bool = True) -> "Store":
        """Return the store at a folder or an ``s3://`` address, which is made if it does not exist.

        Raises:
            ArtifactError: the address is none, cannot be written, or with ``create`` False holds no store.
        """
        if not is_place(str(uri)):
            raise ArtifactError(f"store: {str(uri)!r} is no place for one; allowed: {STORES}.")
        bucket = bucket_of(str(uri))
        root = Path(uri).expanduser().absolute()
        place: Place = bucket or Folder(root)
        found = place.read(MARKER)
        if found is None and create:
            # If several processes make the store at once, the id that is written first counts.
            place.write_new(MARKER, json.dumps({"schema_version": SCHEMA, "id": uuid.uuid4().hex}).encode())
            found = place.read(MARKER)
        if found is None:
            raise ArtifactError(f"{uri}: no store here (no {MARKER}). Name the one that a run wrote to.")
        store = cls(StoreRef(uri=bucket.uri if bucket else str(root), id=json.loads(found)["id"]))
        store.remote = bucket  # It is connected already.
        return store

    @property
    def places(self) -> list[Place]:
        """The folder of the store, or its local copy and then its bucket."""
        return [self.local] if self.remote is None else [self.local, self.remote]

    def sweep(self) -> None:
        """Remove the files of writers that died on this machine."""
        disk.sweep(self.root)

    @contextmanager
    def write(
        self, kind: Kind, *, settings: Mapping[str, Any] | Settings, parents: Parents, seed: int
    ) -> Iterator[Draft]:
        """Yield a draft that becomes an artifact when the block ends without an error.

        In a process that follows rank 0 nothing is committed, and the draft's ``ref`` names no artifact.

        Raises:
            ArtifactError: the disk or the server does not take the files; nothing is committed then.
        """
        with staging_folder(self.root) as staging:
            draft = Draft(staging, parents)
            self.progress.time(draft)
            yield draft
            plain = settings.model_dump(mode="json") if isinstance(settings, Settings) else dict(settings)
            draft.ref = ArtifactRef(kind=kind, digest="") if self.follows else self._commit(draft, kind, plain, seed)

    def _commit(self, draft: Draft, kind: Kind, settings: dict[str, Any], seed: int) -> ArtifactRef:
        # The local copy of a store on S3 is not flushed: after a power failure its damaged files are fetched again.
        lasting = self.remote is None
        files = disk.entries(draft.path, flushed=lasting)
        parents = {role: [one] if isinstance(one, ArtifactRef) else list(one) for role, one in draft.parents.items()}
        ref = ArtifactRef(kind=kind, digest=content_digest(kind, files, parents))
        manifest = Manifest(
            schema_version=SCHEMA,
            kind=kind,
            digest=ref.digest,
            files=files,
            parents=parents,
            settings=settings,
            seed=seed,
            task=self._task,
            code_version=self._version,
            commit=commit(),
            packages=packages(),
            facts=draft.facts,
            timings=Timings(
                process=process().name,
                process_started=process().started,
                started=draft.started,
                finished=time.time(),
                phases=draft.spent(),
                earlier=sum(draft.earlier.values()),
                gpus=gpus(),
                execution=execution(),
                waited=waits(),
            ),
        )
        (draft.path / MANIFEST).write_text(manifest.model_dump_json(indent=1))
        if lasting:
            flush(draft.path / MANIFEST)
        final = self.root / ref.folder
        final.parent.mkdir(parents=True, exist_ok=True)
        try:
            draft.path.rename(final)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            try:  # The same artifact is there already; it is replaced only if it is damaged.
                check(final, _unwrap(self._parse_manifest(ref, self.local.read(f"{ref.folder}/{MANIFEST}"))).files)
            except DamagedError:
                shutil.rmtree(final)
                draft.path.rename(final)
        if self.remote is None:
            flush(final.parent)
        else:
            self.remote.upload(final, files, ref.folder)
            self.remote.write_new(f"{ref.folder}/{MANIFEST}", (final / MANIFEST).read_bytes())
        return ref

    def read_note(self, name: str) -> bytes | None:
        """Return the content of a small JSON file that is no artifact; None if there is none."""
        found = self.local.read(name)
        # After a power failure the local copy may be no JSON.
        return self.remote.read(name) if self.remote and not _is_json(found) else found

    def write_note(self, name: str, text: str) -> Path:
        """Write a small file that is no artifact, or replace it; return its path on this machine."""
        for place in self.places:
            place.write(name, text.encode())
        return self.root / name

    def delete(self, name: str) -> list[str]:
        """Delete a folder or a file here and on S3, manifests first, so that no partial artifact counts as one.

        Returns:
            The files that the server does not delete, each with the reason.
        """
        keys = [list(place.listing(name)) or [name] for place in self.places]
        return [
            refused
            for manifests in (True, False)
            for place, here in zip(self.places, keys, strict=True)
            for refused in place.delete([key for key in here if key.endswith(f"/{MANIFEST}") is manifests])
        ]

    def refs(self, kind: Kind) -> list[ArtifactRef]:
        """Return references to all artifacts of a kind, with the abbreviated digests of their folders."""
        keys = [key.split("/") for key in self.places[-1].listing(kind)]
        return [ArtifactRef(kind=kind, digest=parts[1]) for parts in keys if parts[2:] == [MANIFEST]]

    def manifests(self, kind: Kind) -> list[Manifest]:
        """Return the manifests of all artifacts of a kind, the latest first."""
        found = [_unwrap(one) for one in self.read_manifests(self.refs(kind))]
        return sorted(found, key=lambda manifest: -manifest.timings.finished)

    def manifest(self, ref: ArtifactRef) -> Manifest:
        """Return an artifact's manifest, from the local copy if it has one.

        Raises:
            ArtifactError: the store has no such artifact, or its manifest cannot be read.
        """
        return _unwrap(self.read_manifests([ref])[0])

    def read_manifests(self, refs: Sequence[ArtifactRef], copied: bool = True) -> list[Manifest | ArtifactError]:
        """Return the manifest of each artifact, or an error; a local copy is read only if ``copied``."""
        keys = [f"{ref.folder}/{MANIFEST}" for ref in refs]
        read = self.read_note if copied else self.places[-1].read
        texts = thread_map(read, keys, OBJECTS_AT_ONCE)
        return [self._parse_manifest(ref, text) for ref, text in zip(refs, texts, strict=True)]

    def _parse_manifest(self, ref: ArtifactRef, text: bytes | None) -> Manifest | ArtifactError:
        name = f"{self.ref.uri}/{ref.folder}/{MANIFEST}"
        if text is None:
            return DamagedError(f"{name}: missing, so {ref} is not in this store. {RESTORE}")
        try:
            version = json.loads(text).get("schema_version")
            if version != SCHEMA:
                return ArtifactError(f"{name}: schema version {version}; this code reads {SCHEMA}. Update the code.")
            return Manifest.model_validate_json(text)
        except (ValueError, AttributeError) as error:
            return DamagedError(f"{name}: not a manifest ({error}). {RESTORE}")

    def holds(self, ref: ArtifactRef) -> bool:
        """Return True if the artifact is complete and undamaged; on S3, if all its objects have their sizes."""
        try:
            manifest = self.manifest(ref)
            if self.remote is None:
                check(self.root / ref.folder, manifest.files)
                return True
        except DamagedError:
            return False
        there = {key: file.bytes for key, file in self.remote.listing(ref.folder).items()}
        expected = {f"{ref.folder}/{name}": entry.bytes for name, entry in manifest.files.items()}
        return f"{ref.folder}/{MANIFEST}" in there and expected.items() <= there.items()

    def path(self, ref: ArtifactRef, without: str | None = None) -> Path:
        """Return the folder of an artifact; see ``paths``."""
        return self.paths([ref], without)[0]

    def paths(self, refs: Sequence[ArtifactRef], without: str | None = None) -> list[Path]:
        """Return the folders of artifacts, after a check of all files against their digests.

        Files in the folder ``without`` of an artifact are neither fetched nor checked.

        Raises:
            ArtifactError: a file is missing or differs.
        """
        manifests = [_unwrap(found) for found in self.read_manifests(refs)]
        for ref, manifest in zip(refs, manifests, strict=True):
            if manifest.digest != ref.digest:  # The folder is named by an abbreviated digest.
                folder = f"{self.ref.uri}/{ref.folder}"
                raise DamagedError(f"{folder}: holds digest {manifest.digest}, not {ref.digest}. {RESTORE}")
        self.fetch(
            {
                f"{manifest.ref.folder}/{name}": entry
                for manifest in manifests
                for name, entry in manifest.files.items()
                if without is None or not name.startswith(f"{without}/")
            }
        )
        return [self.root / ref.folder for ref in refs]

    def file(self, manifest: Manifest, name: str) -> Path:
        """Return one file of an artifact, checked against its digest.

        Raises:
            ArtifactError: the artifact has no such file, or it is missing or differs.
        """
        key = f"{manifest.ref.folder}/{name}"
        if name not in manifest.files:
            step = manifest.task or manifest.kind
            raise ArtifactError(f"{self.ref.uri}/{key}: missing. Make it again with the step {step!r}.")
        self.fetch({key: manifest.files[name]})
        return self.root / key

    def fetch(self, files: Mapping[str, FileEntry]) -> None:
        """Make sure that files, by their keys, are on this machine and have their digests.

        Raises:
            ArtifactError: a file is missing or damaged, also after it was fetched from S3 again.
        """
        if self.remote is None:
            check(self.root, files)
        elif wrong := {
            key: files[key] for key, found in disk.digests(self.root, files).items() if found != files[key].sha256
        }:
            with disk_errors(self.root):
                self.remote.download(wrong, self.root)


def bucket_of(uri: str, seconds: float | None = None) -> "Bucket | None":
    """Return the ``Bucket`` of an ``s3://`` address; None for a folder."""
    if not uri.startswith("s3://"):
        return None
    from tasks.store.s3 import Bucket  # Its packages take a second to load.

    return Bucket(uri, seconds)


def _cache() -> Path:
    """Return the folder of the local copies of stores on S3."""
    base = os.environ.get("MU_GRPO_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "mu-grpo"
    return Path(base).expanduser()


def _is_json(text: bytes | None) -> bool:
    try:
        return text is not None and bool(json.loads(text))
    except ValueError:
        return False


def _unwrap(found: Manifest | ArtifactError) -> Manifest:
    if isinstance(found, ArtifactError):
        raise found
    return found
