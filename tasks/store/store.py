"""Store of artifacts in a folder or on S3; manifest.json is written last, and every digest is checked on read.

A store on S3 has a local copy of the files that were read and written, with the same layout, below ``MU_GRPO_CACHE``
or ``~/.cache/mu-grpo``.
"""

import errno
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from filelock import FileLock
from pydantic import ValidationError

from tasks.errors import ArtifactError, DamagedError
from tasks.process.provenance import commit, execution_id, gpu_models, gpus, packages, process, waits
from tasks.settings.base import STORES, Settings, is_place, local_path
from tasks.store.files import (
    OBJECTS_AT_ONCE,
    RESTORE,
    Folder,
    StoredFile,
    check,
    digests,
    disk_errors,
    entries,
    flush,
    modified,
    staging_folder,
    thread_map,
)
from tasks.store.layout import KINDS, LEASES, MANIFEST, MARKER, Kind
from tasks.store.progress import Progress
from tasks.store.records import SCHEMA, ArtifactRef, FileEntry, Manifest, StoreMarker, StoreRef, Timings, check_schema

if TYPE_CHECKING:
    from tasks.store.s3 import Bucket

Parents = Mapping[str, ArtifactRef | Sequence[ArtifactRef]]
Storage: TypeAlias = "Folder | Bucket"
"""The files of a store by key, on this machine or on an S3 server."""
_last_end = [0.0]
"""End of the last step of this process, of any run, in Unix seconds; 0 before the first."""


class Draft:
    """Artifact that is being written: files go below ``path``, ``phase`` times work, ``facts`` holds small results."""

    ref: ArtifactRef
    """Reference to the committed artifact; set at the end of the ``with`` block of ``Store.write``."""

    def __init__(self, path: Path, parents: Parents) -> None:
        self.path = path
        self.parents: dict[str, ArtifactRef | Sequence[ArtifactRef]] = dict(parents)
        self.facts: dict[str, Any] = {}
        self.phases: dict[str, float] = {}
        self.earlier: dict[str, float] = {}
        """Seconds by phase that earlier attempts spent on the parts that are reused."""
        self.started, self._start = time.time(), time.perf_counter()
        self.idle_since = _last_end[0]
        self._open: dict[str, float] = {}
        """Start of the phase that is running."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the seconds spent inside the block to the phase ``name``; phases must not be nested."""
        self._open = {name: time.perf_counter()}
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - self._open.pop(name)

    def now(self) -> float:
        """Return the time in Unix seconds, as if the clock had not been set since the start."""
        return self.started + time.perf_counter() - self._start

    def spent(self) -> dict[str, float]:
        """Return the seconds by phase until now, with those of earlier attempts."""
        now = time.perf_counter()
        sums = [self.earlier, self.phases, {name: now - start for name, start in self._open.items()}]
        return {name: sum(seconds.get(name, 0.0) for seconds in sums) for name in dict.fromkeys(chain(*sums))}


def content_digest(kind: Kind, files: Mapping[str, FileEntry], parents: Mapping[str, Sequence[ArtifactRef]]) -> str:
    """Return the digest of an artifact over its kind, and the digests of its files and of its parents by name."""
    origin = {name: [ref.digest for ref in refs] for name, refs in parents.items()}
    content = {name: entry.sha256 for name, entry in files.items()}
    return hashlib.sha256(json.dumps([kind, content, origin], sort_keys=True).encode()).hexdigest()


def artifacts_among(keys: Iterable[str]) -> list[ArtifactRef]:
    """Return references to the artifacts whose manifests are among the keys of a store, with abbreviated digests."""
    folders = (key.split("/") for key in sorted(keys))
    return [ArtifactRef.of(f"{kind}/{name}") for kind, name, *file in folders if kind in KINDS and file == [MANIFEST]]


class Store:
    """Artifacts below a folder or an S3 prefix.

    Args:
        ref: the store's address and id.
        task: the step that writes artifacts, for manifests.
        version: the step's version, for manifests.
        work: the key of the work, under which its parts are saved (see ``work.run_once``).
        follows: whether this process follows a leader, which makes the same calls: it reads the same files, and its
            own writes are discarded.
    """

    def __init__(self, ref: StoreRef, task: str = "", version: str = "", work: str = "", follows: bool = False) -> None:
        self.ref = ref
        self.remote = bucket_of(ref.uri)
        self.root = Path(ref.uri) if self.remote is None else _cache() / ref.id
        """Folder of the artifacts, or of their local copy."""
        self.local = Folder(self.root)
        self.original: Storage = self.remote or self.local
        """The storage of all artifacts; on S3 the bucket, of which ``local`` has copies."""
        self.follows = follows
        self.progress = Progress(self, work)
        """Parts of the unfinished work."""
        self._task, self._version = task, version

    @classmethod
    def open(cls, uri: str | Path, create: bool = True) -> "Store":
        """Return the store at a folder or an ``s3://`` address; if ``create``, create it when there is none.

        Raises:
            ArtifactError: the address is not allowed or cannot be written, or without ``create`` holds no store; or the
                file with the store's id is damaged.
            DataError: see ``local_path``.
        """
        if not is_place(str(uri)):
            raise ArtifactError(f"store: {str(uri)!r} cannot be a store; allowed: {STORES}.")
        bucket = bucket_of(str(uri))
        root = local_path(uri).absolute()
        storage: Storage = bucket or Folder(root)
        with disk_errors(root):
            marker = storage.read(MARKER)
            if marker is None and create:
                # When several processes create the store at the same time, the id of the first one counts.
                new = StoreMarker(schema_version=SCHEMA, id=uuid.uuid4().hex)
                storage.write_new(MARKER, new.model_dump_json().encode())
                marker = storage.read(MARKER)
        if marker is None:
            raise ArtifactError(f"{uri}: no store here (no {MARKER}). Name the one that a run wrote to.")
        address = bucket.uri if bucket else str(root)
        check_schema(f"{address}/{MARKER}", marker)
        parsed = StoreMarker.parse(marker)
        if parsed is None:
            raise ArtifactError(
                f"{address}/{MARKER}: damaged, because it holds no id of a store. Restore it from a copy. Without a "
                "copy, delete it: the next run makes another id, with which all its steps run again, and the artifacts "
                "are kept."
            )
        return cls(StoreRef(uri=address, id=parsed.id))

    @contextmanager
    def write(
        self, kind: Kind, *, settings: Mapping[str, Any] | Settings, parents: Parents, seed: int
    ) -> Iterator[Draft]:
        """Yield a draft, and commit it as an artifact if the block ends without an error.

        A process that follows a leader commits nothing, and its draft's ``ref`` names no artifact.

        Raises:
            ArtifactError: the disk is full or cannot be written, the draft was moved or deleted, or S3 rejects a file;
                nothing is committed then.
        """
        with staging_folder(self.root) as staging:
            draft, mark = Draft(staging, parents), staging / ".draft"
            mark.touch()
            self.progress.count_time(draft)
            yield draft
            mark.unlink()  # It is missing if the folder was moved: libraries make it again, with later files alone.
            values = settings.model_dump(mode="json") if isinstance(settings, Settings) else dict(settings)
            draft.ref = ArtifactRef(kind=kind, digest="") if self.follows else self._commit(draft, kind, values, seed)

    def _commit(self, draft: Draft, kind: Kind, settings: dict[str, Any], seed: int) -> ArtifactRef:
        # Local copies of objects are not flushed: damage by a power failure is detected, and they are fetched again.
        flushed = self.remote is None
        files = entries(draft.path, flushed=flushed)
        parents = {
            name: [refs] if isinstance(refs, ArtifactRef) else list(refs) for name, refs in draft.parents.items()
        }
        ref = ArtifactRef(kind=kind, digest=content_digest(kind, files, parents))
        _last_end[0] = draft.now()
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
                finished=_last_end[0],
                phases=draft.spent(),
                earlier=sum(draft.earlier.values()),
                gpus=gpus(),
                gpu_models=gpu_models() if gpus() else [],
                execution=execution_id(),
                idle_since=draft.idle_since,
                waited=list(waits),
            ),
        )
        (draft.path / MANIFEST).write_text(manifest.model_dump_json(indent=1), encoding="utf-8")
        if flushed:
            flush(draft.path / MANIFEST)
        final = self.root / ref.folder
        final.parent.mkdir(parents=True, exist_ok=True)
        try:
            draft.path.rename(final)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            try:  # An artifact with this content exists: keep it unless it is damaged.
                check(final, _unwrap(self._parse_manifest(ref, self.local.read(f"{ref.folder}/{MANIFEST}"))).files)
            except DamagedError:
                shutil.rmtree(final)
                draft.path.rename(final)
        if self.remote is None:
            flush(final.parent)
        else:
            self.remote.upload(final, files, ref.folder)
            key, text = f"{ref.folder}/{MANIFEST}", (final / MANIFEST).read_bytes()
            is_new = self.remote.write_new(key, text)
            if not is_new and isinstance(self._parse_manifest(ref, self.remote.read(key)), DamagedError):
                self.remote.write(key, text)
        return ref

    def delete(self, *names: str, keys: Collection[str] = ()) -> list[str]:
        """Delete folders and files with their local copies; manifests go first: half-deleted artifacts do not count.

        ``keys`` are those of all files with these names, if the store has been listed already.

        Returns:
            The objects that the server refuses to delete, each with the reason; after a manifest, no data is deleted.
        """
        keys = keys or self.listing(names)
        copies = [key for name in names for key in self.local.listing(name) or [name]]
        for manifests in (True, False):
            self.local.delete([key for key in copies if key.endswith(f"/{MANIFEST}") is manifests])
            objects = [key for key in keys if key.endswith(f"/{MANIFEST}") is manifests]
            if self.remote and (refused := self.remote.delete(objects)):
                return refused
        return []

    def listing(self, areas: Iterable[str]) -> dict[str, StoredFile]:
        """Return size and time of change of every file of areas, by key; on S3 those in the bucket alone."""
        listings = thread_map(self.original.listing, [*areas], OBJECTS_AT_ONCE)
        return {key: file for files in listings for key, file in files.items()}

    def refs(self, *kinds: Kind) -> list[ArtifactRef]:
        """Return references to all artifacts of some kinds, with abbreviated digests."""
        return artifacts_among(self.listing(kinds))

    def manifests(self, *kinds: Kind, title: str = "") -> list[Manifest]:
        """Return the manifests of all artifacts of some kinds, the latest first; see ``thread_map`` for ``title``."""
        manifests = map(_unwrap, self.read_manifests(self.refs(*kinds), title=title))
        return sorted(manifests, key=lambda manifest: -manifest.timings.finished)

    def manifest(self, ref: ArtifactRef) -> Manifest:
        """Return an artifact's manifest; on S3 from the local copy, if there is one.

        Raises:
            ArtifactError: the store has no such artifact, or its manifest cannot be read.
        """
        return _unwrap(self.read_manifests([ref])[0])

    def read_manifests(
        self, refs: Sequence[ArtifactRef], copied: bool = True, title: str = ""
    ) -> list[Manifest | DamagedError]:
        """Return each artifact's manifest, or what is wrong with it; read local copies only if ``copied``.

        Raises:
            ArtifactError: the disk or the server fails, or another version of the code wrote an artifact.
        """
        keys = [f"{ref.folder}/{MANIFEST}" for ref in refs]
        read = self._read_copy if copied else self.original.read
        texts = thread_map(read, keys, OBJECTS_AT_ONCE, title)
        return [self._parse_manifest(ref, text) for ref, text in zip(refs, texts, strict=True)]

    def _read_copy(self, key: str) -> bytes | None:
        """Return the content of a manifest, from the local copy if there is one; None when there is no file."""
        content = self.local.read(key)
        # A power failure can have damaged the local copy.
        return self.remote.read(key) if self.remote and Manifest.parse(content) is None else content

    def _parse_manifest(self, ref: ArtifactRef, text: bytes | None) -> Manifest | DamagedError:
        name = f"{self.ref.uri}/{ref.folder}/{MANIFEST}"
        if text is None:
            return DamagedError.of(name, f"missing, so {ref} is not in this store", RESTORE)
        check_schema(name, text)
        try:
            manifest = Manifest.model_validate_json(text)
        except ValidationError as error:
            return DamagedError.of(name, "not a manifest", RESTORE, error.errors()[0]["msg"])
        if manifest.ref.folder != ref.folder:
            return DamagedError.of(name, f"that of {manifest.ref}", RESTORE)
        if (content := content_digest(manifest.kind, manifest.files, manifest.parents)) != manifest.digest:
            return DamagedError.of(name, f"digest {content[:16]} of what it names", RESTORE)
        return manifest

    def holds(self, ref: ArtifactRef) -> bool:
        """Return True if the store has the undamaged artifact; on S3 only names and sizes of objects are compared."""
        try:
            manifest = self.manifest(ref)
            if self.remote is None:
                check(self.root / ref.folder, manifest.files)
                return True
        except DamagedError:
            return False
        sizes = {key: file.bytes for key, file in self.remote.listing(ref.folder).items()}
        expected = {f"{ref.folder}/{name}": entry.bytes for name, entry in manifest.files.items()}
        return f"{ref.folder}/{MANIFEST}" in sizes and expected.items() <= sizes.items()

    def path(self, ref: ArtifactRef, without: str | None = None) -> Path:
        """Return the folder of an artifact; see ``paths``."""
        return self.paths([ref], without)[0]

    def paths(self, refs: Sequence[ArtifactRef], without: str | None = None) -> list[Path]:
        """Fetch artifacts, check every file against its digest, and return their folders.

        Files below the subfolder ``without`` of an artifact are neither fetched nor checked.

        Raises:
            ArtifactError: a file is missing or has another digest.
        """
        manifests = [_unwrap(manifest) for manifest in self.read_manifests(refs)]
        for ref, manifest in zip(refs, manifests, strict=True):
            if manifest.digest != ref.digest:  # Folders have abbreviated digests as names.
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
        """Return the path of a file of an artifact, after checking its digest.

        Raises:
            ArtifactError: the artifact has no such file, or the file is missing or has another digest.
        """
        key = f"{manifest.ref.folder}/{name}"
        if name not in manifest.files:
            step = manifest.task or manifest.kind
            raise ArtifactError(f"{self.ref.uri}/{key}: missing. Make it again with the step {step!r}.")
        self.fetch({key: manifest.files[name]})
        return self.root / key

    def fetch(self, files: Mapping[str, FileEntry]) -> None:
        """Make sure that files, named by their keys, are on this machine and have their digests.

        On S3, files whose local copies are missing or damaged are downloaded, by one process of this machine at a time.

        Raises:
            ArtifactError: a file is missing or has another digest.
        """
        if self.remote is None:
            check(self.root, files)
            return
        before = {key: modified(self.root / key) for key in files}
        outdated = [key for key, digest in digests(self.root, files).items() if digest != files[key].sha256]
        if outdated:
            # The processes of a training task need the same files at the same time: one of them fetches the files.
            lock = FileLock(self.root / LEASES / f"{'-'.join(next(iter(files)).split('/')[:2])}.lock")
            with disk_errors(self.root), lock:
                missing = {key: files[key] for key in outdated if modified(self.root / key) == before[key]}
                if missing:
                    self.remote.download(missing, self.root)


def bucket_of(uri: str, seconds: float | None = None) -> "Bucket | None":
    """Return the ``Bucket`` at an ``s3://`` address; None for a folder."""
    if not uri.startswith("s3://"):
        return None
    from tasks.store.s3 import Bucket  # Its packages take a second to import.

    return Bucket(uri, seconds)


def _cache() -> Path:
    """Return the folder of the local copies of stores on S3."""
    base = os.environ.get("MU_GRPO_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "mu-grpo"
    return local_path(base)


def _unwrap(result: Manifest | DamagedError) -> Manifest:
    if isinstance(result, DamagedError):
        raise result
    return result
