"""Places of a store: a folder, or an S3 prefix with a local copy of what this machine read and wrote."""

import json
import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tasks.store.files import StoredFile, atomic_path, disk_errors, replace_file, sha256
from tasks.store.layout import MANIFEST, MARKER
from tasks.store.records import SCHEMA, StoreRef

if TYPE_CHECKING:
    from tasks.store.s3 import Bucket


class Folder:
    """Files of a store on this machine; keys are relative to it, as those of ``s3.Bucket``."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def listing(self, prefix: str) -> dict[str, StoredFile]:
        """Return size and age of every file below a folder, by key."""
        found = {}
        for folder, _, names in os.walk(self._root / prefix, onerror=_raise_unless_gone):
            for path in (Path(folder, name) for name in names):
                with suppress(FileNotFoundError):  # Deleted while it was listed.
                    state = path.stat()
                    found[path.relative_to(self._root).as_posix()] = StoredFile(state.st_size, state.st_mtime)
        return found

    def read(self, key: str) -> bytes | None:
        """Return the content of a file; None when there is none."""
        path = self._root / key
        return path.read_bytes() if path.is_file() else None

    def write(self, key: str, content: bytes) -> None:
        """Write a file, over one that is there."""
        with disk_errors(self._root):
            replace_file(self._root / key, content)

    def write_new(self, key: str, content: bytes) -> None:
        """Write a file unless there is one already."""
        with disk_errors(self._root), atomic_path(self._root / key) as staged:
            staged.write_bytes(content)
            with suppress(FileExistsError):
                os.link(staged, self._root / key)

    def digest(self, key: str, size: int) -> str | None:  # noqa: ARG002 - a file of any size
        """Return the SHA-256 of a file; None when there is none."""
        try:
            return sha256(self._root / key)
        except FileNotFoundError:
            return None

    def delete(self, keys: Sequence[str]) -> list[str]:
        """Delete files, and the folders below an area that are empty then; none is refused without an OSError."""
        for key in keys:
            path = self._root / key
            if not path.is_dir():
                path.unlink(missing_ok=True)
            for folder in [path, *path.parents][: key.count("/")]:
                with suppress(OSError):  # Not empty yet.
                    folder.rmdir()
        return []


Place: TypeAlias = "Folder | Bucket"


def delete_folder(places: Sequence[Place], name: str) -> list[str]:
    """Delete a folder or a file everywhere, manifests first, so that what is half deleted does not count as there.

    Returns:
        The files that a server does not delete, each with its reason.
    """
    keys = [list(place.listing(name)) or [name] for place in places]
    return [
        refused
        for manifests in (True, False)
        for place, here in zip(places, keys, strict=True)
        for refused in place.delete([key for key in here if key.endswith(f"/{MANIFEST}") is manifests])
    ]


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def bucket_of(uri: str, seconds: float | None = None) -> "Bucket | None":
    """Return the objects at an ``s3://`` address, see ``Bucket``; None for a folder."""
    if not uri.startswith("s3://"):
        return None
    from tasks.store.s3 import Bucket  # Its packages take a second to load.

    return Bucket(uri, seconds)


def local_copy(ref: StoreRef) -> Path:
    """Return the folder for what this machine reads from, and writes to, a store on S3."""
    base = os.environ.get("MU_GRPO_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "mu-grpo"
    return Path(base).expanduser() / ref.id


def store_id(place: Place, create: bool) -> str | None:
    """Return the id of the store at a place; None when there is none and none is to be made."""
    found = place.read(MARKER)
    if found is None and create:
        # Of processes that make the store at the same time the first one's id counts.
        place.write_new(MARKER, json.dumps({"schema_version": SCHEMA, "id": uuid.uuid4().hex}).encode())
        found = place.read(MARKER)
    return None if found is None else str(json.loads(found)["id"])
