"""A store of artifacts on a disk: data files first, manifest.json last, every digest checked on read."""

import errno
import hashlib
import json
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from pydantic import ValidationError

from tasks.artifacts.provenance import PROCESS, PROCESS_STARTED, commit, packages
from tasks.artifacts.records import SCHEMA, ArtifactRef, FileEntry, Kind, Manifest, StoreRef, Timings
from tasks.errors import ArtifactError
from tasks.settings.base import Settings

MANIFEST = "manifest.json"
MARKER = "store.json"
STAGING = "staging"
Parents = Mapping[str, ArtifactRef | Sequence[ArtifactRef]]


class Draft:
    """An artifact while it is written: files go under ``path``, work is timed by ``phase``, results go to ``facts``."""

    def __init__(self, path: Path, parents: Parents) -> None:
        self.path = path
        self.parents: dict[str, ArtifactRef | Sequence[ArtifactRef]] = dict(parents)
        self.facts: dict[str, Any] = {}
        self.phases: dict[str, float] = {}
        self.started = time.time()
        self._ref: ArtifactRef | None = None

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the seconds spent inside to the phase ``name``; phases must not be nested."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - start

    @property
    def ref(self) -> ArtifactRef:
        """The committed artifact; valid after the ``with`` block."""
        if self._ref is None:
            raise RuntimeError("the artifact is not committed: its with block has not ended")
        return self._ref


class Store:
    """Artifacts below one folder. ``task`` and ``version`` are noted in what it writes."""

    def __init__(self, ref: StoreRef, task: str = "", version: str = "") -> None:
        self.ref = ref
        self.root = Path(ref.uri)
        self._task = task
        self._version = version

    @classmethod
    def open(cls, uri: str | Path, create: bool = True) -> "Store":
        """The store at ``uri``, made there when it does not exist.

        Raises:
            ArtifactError: the place cannot be written, or (``create`` false) holds no store.
        """
        root = Path(uri).expanduser().absolute()
        marker = root / MARKER
        if not marker.exists():
            if not create:
                raise ArtifactError(f"{root}: no store here (no {MARKER}). Name the folder that a run wrote to.")
            with _disk_errors(root):
                root.mkdir(parents=True, exist_ok=True)
                made = json.dumps({"schema_version": SCHEMA, "id": uuid.uuid4().hex})
                staged = root / f"{MARKER}.{uuid.uuid4().hex}"
                staged.write_text(made)
                with suppress(FileExistsError):  # Another process made the store a moment before: its id counts.
                    os.link(staged, marker)
                staged.unlink()
        return cls(StoreRef(uri=str(root), id=json.loads(marker.read_text())["id"]))

    def sweep(self) -> None:
        """Removes what writers that died on this machine left behind."""
        host = socket.gethostname()
        for folder in (self.root / STAGING).glob("*"):
            owner, _, _ = folder.name.rpartition("-")
            writer_host, _, pid = owner.rpartition("-")
            if writer_host == host and pid.isdigit() and not psutil.pid_exists(int(pid)):
                shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def write(
        self, kind: Kind, *, settings: Mapping[str, Any] | Settings, parents: Parents, seed: int
    ) -> Iterator[Draft]:
        """A draft that becomes an artifact when the block ends without an error, and nothing otherwise.

        Raises:
            ArtifactError: the disk is full or cannot be written; nothing is committed then.
        """
        staging = self.root / STAGING / f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex}"
        try:
            with _disk_errors(self.root):
                staging.mkdir(parents=True)
                draft = Draft(staging, parents)
                yield draft
                plain = settings.model_dump(mode="json") if isinstance(settings, Settings) else dict(settings)
                draft._ref = self._commit(draft, kind, plain, seed)
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def _commit(self, draft: Draft, kind: Kind, settings: dict[str, Any], seed: int) -> ArtifactRef:
        paths = sorted(path for path in draft.path.rglob("*") if path.is_file())
        files = {
            path.relative_to(draft.path).as_posix(): FileEntry(sha256=sha256(path), bytes=path.stat().st_size)
            for path in paths
        }
        parents = {role: [one] if isinstance(one, ArtifactRef) else list(one) for role, one in draft.parents.items()}
        origin = {role: [ref.digest for ref in refs] for role, refs in parents.items()}
        content = {name: entry.sha256 for name, entry in files.items()}
        digest = hashlib.sha256(json.dumps([kind, content, origin], sort_keys=True).encode()).hexdigest()
        ref = ArtifactRef(kind=kind, digest=digest)
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
                process=PROCESS,
                process_started=PROCESS_STARTED,
                started=draft.started,
                finished=time.time(),
                phases=draft.phases,
            ),
        )
        for path in paths:
            _flush(path)
        (draft.path / MANIFEST).write_text(manifest.model_dump_json(indent=1))
        _flush(draft.path / MANIFEST)
        final = self.root / ref.folder
        final.parent.mkdir(parents=True, exist_ok=True)
        try:
            draft.path.rename(final)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            try:
                self.path(ref)  # The same content is there already: keep it, when it is whole.
            except ArtifactError:
                shutil.rmtree(final)
                draft.path.rename(final)
        _flush(final.parent)
        return ref

    def manifests(self, kind: Kind) -> list[Manifest]:
        """All artifacts of a kind, the latest first."""
        refs = (ArtifactRef(kind=kind, digest=path.parent.name) for path in (self.root / kind).glob(f"*/{MANIFEST}"))
        return sorted((self.manifest(ref) for ref in refs), key=lambda found: -found.timings.finished)

    def manifest(self, ref: ArtifactRef) -> Manifest:
        """The artifact's manifest.

        Raises:
            ArtifactError: there is no such artifact here, or its manifest cannot be read.
        """
        path = self.root / ref.folder / MANIFEST
        try:
            text = path.read_text()
        except FileNotFoundError:
            raise ArtifactError(f"{path}: missing, so {ref} is not in this store. {_RESTORE}") from None
        try:
            version = json.loads(text).get("schema_version")
            if version != SCHEMA:
                raise ArtifactError(f"{path}: schema version {version}; this code reads {SCHEMA}. Update the code.")
            return Manifest.model_validate_json(text)
        except (ValueError, ValidationError, AttributeError) as error:
            raise ArtifactError(f"{path}: not a manifest ({error}). {_RESTORE}") from None

    def path(self, ref: ArtifactRef) -> Path:
        """The folder of an artifact whose every file has been checked against its digest.

        Raises:
            ArtifactError: a file is missing or differs.
        """
        folder = self.root / ref.folder
        manifest = self.manifest(ref)
        if manifest.digest != ref.digest:
            raise ArtifactError(f"{folder}: holds digest {manifest.digest}, not {ref.digest}. {_RESTORE}")
        for name, entry in manifest.files.items():
            file = folder / name
            if not file.is_file():
                raise ArtifactError(f"{file}: missing, but the manifest names it. {_RESTORE}")
            found = sha256(file)
            if found != entry.sha256:
                raise ArtifactError(
                    f"{file}: corrupted (sha256 {found[:16]}, {file.stat().st_size} bytes; "
                    f"expected {entry.sha256[:16]}, {entry.bytes} bytes). {_RESTORE}"
                )
        return folder


_RESTORE = "Restore it from a copy, or recompute with `pyflyte run --overwrite-cache`."


def sha256(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _disk_errors(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        mends = {
            errno.ENOSPC: "The disk is full: free some space",
            errno.EDQUOT: "The disk quota is used up: free some space",
            errno.EACCES: "No permission: choose another store, or allow writing",
            errno.EROFS: "Read-only file system: choose another store",
        }
        if error.errno in mends:
            raise ArtifactError(
                f"{error.filename or root}: {error.strerror}. {mends[error.errno]}, then start the same command again: "
                "what was committed is kept."
            ) from error
        raise
