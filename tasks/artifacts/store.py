"""A store of artifacts, in a folder or on S3: data files first, manifest.json last, every digest checked on read.

A store on S3 has a local copy of what was read and written, with the same layout: below ``MU_GRPO_CACHE``, or
``~/.cache/mu-grpo``.
"""

import errno
import hashlib
import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tasks.artifacts import files as disk
from tasks.artifacts.draft import Draft, Parents
from tasks.artifacts.files import MANIFEST, RESTORE, check, disk_errors, flush, is_json, replace_text
from tasks.artifacts.places import MARKER, bucket_marker, bucket_of, folder_marker, local_copy
from tasks.artifacts.progress import Progress
from tasks.artifacts.provenance import commit, gpus, packages, process
from tasks.artifacts.records import SCHEMA, ArtifactRef, FileEntry, Kind, Manifest, StoreRef, Timings
from tasks.artifacts.staging import leftovers, staged
from tasks.errors import ArtifactError, DamagedError
from tasks.settings.base import Settings
from tasks.settings.places import STORES, is_place


def content_digest(kind: Kind, files: Mapping[str, FileEntry], parents: Mapping[str, Sequence[ArtifactRef]]) -> str:
    """The digest of an artifact: over its kind, its files' digests by name, and its parents' digests by role."""
    origin = {role: [ref.digest for ref in refs] for role, refs in parents.items()}
    content = {name: entry.sha256 for name, entry in files.items()}
    return hashlib.sha256(json.dumps([kind, content, origin], sort_keys=True).encode()).hexdigest()


class Store:
    """Artifacts below one folder, or below one S3 prefix.

    Args:
        ref: where it is.
        task: noted in what it writes.
        version: noted in what it writes.
        work: names the work that is done here, so that it can go on after an interruption (see ``work.once``).
    """

    def __init__(self, ref: StoreRef, task: str = "", version: str = "", work: str = "") -> None:
        self.ref = ref
        self.remote = bucket_of(ref.uri)
        self.root = Path(ref.uri) if self.remote is None else local_copy(ref)
        """The folder of the artifacts, or of their local copy."""
        self.progress = Progress(self, work)
        """Of the unfinished work."""
        self._task = task
        self._version = version

    @classmethod
    def open(cls, uri: str | Path, create: bool = True) -> "Store":
        """The store at a folder or an ``s3://`` address, made there when it does not exist.

        Raises:
            ArtifactError: it is no place for a store, it cannot be written, or (``create`` false) holds no store.
        """
        if not is_place(str(uri)):
            raise ArtifactError(f"store: {str(uri)!r} is no place for one; allowed: {STORES}.")
        bucket = bucket_of(str(uri))
        marker = (
            folder_marker(Path(uri).expanduser().absolute(), create)
            if bucket is None
            else bucket_marker(bucket, create)
        )
        if marker is None:
            raise ArtifactError(f"{uri}: no store here (no {MARKER}). Name the one that a run wrote to.")
        place = bucket.uri if bucket else str(Path(uri).expanduser().absolute())
        store = cls(StoreRef(uri=place, id=json.loads(marker)["id"]))
        store.remote = bucket  # Its connection is open.
        return store

    def sweep(self) -> None:
        """Removes what writers that died on this machine left behind."""
        for folder in leftovers(self.root):
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def write(
        self, kind: Kind, *, settings: Mapping[str, Any] | Settings, parents: Parents, seed: int
    ) -> Iterator[Draft]:
        """A draft that becomes an artifact when the block ends without an error, and nothing otherwise.

        Raises:
            ArtifactError: the disk is full or cannot be written, or S3 does not take it; nothing is committed then.
        """
        with staged(self.root) as staging:
            draft = Draft(staging, parents)
            self.progress.time(draft)
            yield draft
            plain = settings.model_dump(mode="json") if isinstance(settings, Settings) else dict(settings)
            draft._ref = self._commit(draft, kind, plain, seed)

    def _commit(self, draft: Draft, kind: Kind, settings: dict[str, Any], seed: int) -> ArtifactRef:
        # On S3 the objects last: what a power failure leaves of a local copy is checked, and fetched again.
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
            try:
                self._check_local(ref)  # The same content is there already: keep it, when it is whole.
            except DamagedError:
                shutil.rmtree(final)
                draft.path.rename(final)
        if self.remote is None:
            flush(final.parent)
        else:
            self.remote.upload(final, files, ref.folder)
            self.remote.write_new(f"{ref.folder}/{MANIFEST}", (final / MANIFEST).read_bytes())
        return ref

    def read_note(self, name: str) -> str | None:
        """A small file that is no artifact; None when it is not there."""
        local = self.root / name
        if local.is_file():
            return local.read_text()
        found = self.remote.read(name) if self.remote else None
        return None if found is None else found.decode()

    def write_note(self, name: str, text: str) -> Path:
        """Writes a small file that is no artifact, over one that is there; returns its place on this machine.

        Raises:
            ArtifactError: the disk is full or cannot be written, or S3 does not take it.
        """
        path = self.root / name
        with disk_errors(self.root):
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_text(path, text)
        if self.remote is not None:
            self.remote.write(name, text.encode())
        return path

    def refs(self, kind: Kind) -> list[ArtifactRef]:
        """All artifacts of a kind, by the names of their folders; the digests are abbreviated."""
        if self.remote is None:
            names = [path.parent.name for path in (self.root / kind).glob(f"*/{MANIFEST}")]
        else:
            keys = [key.split("/") for key in self.remote.sizes(kind)]
            names = [parts[1] for parts in keys if parts[2:] == [MANIFEST]]
        return [ArtifactRef(kind=kind, digest=name) for name in names]

    def manifests(self, kind: Kind) -> list[Manifest]:
        """All artifacts of a kind, the latest first."""
        return sorted((self.manifest(ref) for ref in self.refs(kind)), key=lambda found: -found.timings.finished)

    def manifest(self, ref: ArtifactRef, copied: bool = True) -> Manifest:
        """The artifact's manifest; on S3 the local copy's, unless ``copied`` is false.

        Raises:
            ArtifactError: there is no such artifact here, or its manifest cannot be read.
        """
        return self._parsed(ref, self._manifest_texts([ref], copied)[0])

    def _parsed(self, ref: ArtifactRef, text: bytes | None) -> Manifest:
        name = f"{self.ref.uri}/{ref.folder}/{MANIFEST}"
        if text is None:
            raise DamagedError(f"{name}: missing, so {ref} is not in this store. {RESTORE}")
        try:
            version = json.loads(text).get("schema_version")
            if version != SCHEMA:
                raise ArtifactError(f"{name}: schema version {version}; this code reads {SCHEMA}. Update the code.")
            return Manifest.model_validate_json(text)
        except (ValueError, ValidationError, AttributeError) as error:
            raise DamagedError(f"{name}: not a manifest ({error}). {RESTORE}") from None

    def _manifest_texts(self, refs: Sequence[ArtifactRef], copied: bool = True) -> list[bytes | None]:
        """Of each artifact, or None where there is none; what must be fetched is fetched side by side."""
        found: dict[str, bytes | None] = {}
        for ref in refs:
            local = self.root / ref.folder / MANIFEST
            text = local.read_bytes() if (copied or self.remote is None) and local.is_file() else None
            found[ref.folder] = text if self.remote is None or is_json(text) else None
        missing = [folder for folder, text in found.items() if text is None]
        if self.remote is not None:
            found.update(zip(missing, self.remote.read_all([f"{one}/{MANIFEST}" for one in missing]), strict=True))
        return [found[ref.folder] for ref in refs]

    def holds(self, ref: ArtifactRef) -> bool:
        """Whether the artifact is here and whole; on S3, whether all its objects have their sizes."""
        try:
            manifest = self.manifest(ref)
            if self.remote is None:
                check(self.root / ref.folder, manifest.files)
                return True
        except DamagedError:
            return False
        there = self.remote.sizes(ref.folder)
        expected = {f"{ref.folder}/{name}": entry.bytes for name, entry in manifest.files.items()}
        return f"{ref.folder}/{MANIFEST}" in there and expected.items() <= there.items()

    def path(self, ref: ArtifactRef, without: str | None = None) -> Path:
        """The folder of an artifact whose every file has been checked against its digest.

        Args:
            ref: the artifact.
            without: files below this folder of the artifact are not needed; they are neither fetched nor checked.

        Raises:
            ArtifactError: a file is missing or differs.
        """
        manifest = self._checked(ref, self._manifest_texts([ref])[0])
        wanted = {
            name: entry
            for name, entry in manifest.files.items()
            if without is None or not name.startswith(f"{without}/")
        }
        return self._fetched([(manifest, wanted)])[0]

    def paths(self, refs: Sequence[ArtifactRef]) -> list[Path]:
        """The folders of many artifacts; as ``path``, but what must be fetched is fetched side by side."""
        manifests = [self._checked(ref, text) for ref, text in zip(refs, self._manifest_texts(refs), strict=True)]
        return self._fetched([(manifest, manifest.files) for manifest in manifests])

    def file(self, manifest: Manifest, name: str) -> Path:
        """One file of an artifact, checked against its digest.

        Raises:
            ArtifactError: the artifact has no such file, or it is missing or differs.
        """
        if name not in manifest.files:
            where = f"{self.ref.uri}/{manifest.ref.folder}/{name}"
            raise ArtifactError(f"{where}: missing. Make it again with the step {manifest.task or manifest.kind!r}.")
        return self._fetched([(manifest, {name: manifest.files[name]})])[0] / name

    def _checked(self, ref: ArtifactRef, text: bytes | None) -> Manifest:
        """The manifest in the artifact's folder, which is named by an abbreviated digest; it must have all of it."""
        manifest = self._parsed(ref, text)
        if manifest.digest != ref.digest:
            folder = f"{self.ref.uri}/{ref.folder}"
            raise DamagedError(f"{folder}: holds digest {manifest.digest}, not {ref.digest}. {RESTORE}")
        return manifest

    def _fetched(self, wanted: Sequence[tuple[Manifest, Mapping[str, FileEntry]]]) -> list[Path]:
        """The folders of artifacts on this machine, in which these files are whole."""
        files = {f"{manifest.ref.folder}/{name}": entry for manifest, some in wanted for name, entry in some.items()}
        if self.remote is None:
            check(self.root, files)
        elif missing := {
            key: files[key] for key, found in disk.digests(self.root, files).items() if found != files[key].sha256
        }:
            with disk_errors(self.root):
                self.remote.download(missing, self.root)
        for manifest, some in wanted:
            place = self.root / manifest.ref.folder / MANIFEST
            if some.keys() == manifest.files.keys() and not (place.is_file() and is_json(place.read_bytes())):
                replace_text(place, manifest.model_dump_json(indent=1), flushed=False)
        return [self.root / manifest.ref.folder for manifest, _ in wanted]

    def _check_local(self, ref: ArtifactRef) -> None:
        manifest = self.root / ref.folder / MANIFEST
        text = manifest.read_bytes() if manifest.is_file() else b""
        try:
            check(self.root / ref.folder, Manifest.model_validate_json(text).files)
        except ValidationError as error:
            raise DamagedError(str(error)) from None
