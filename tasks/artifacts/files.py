"""Files of an artifact: digests, flushes, and errors of the disk that a user can mend."""

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tasks.artifacts.records import FileEntry
from tasks.errors import ArtifactError, DamagedError

MANIFEST = "manifest.json"
RESTORE = (
    "Restore it from a copy, or start the run again with `pyflyte run --overwrite-cache`: only what is damaged or "
    "missing is made anew."
)

_AT_ONCE = min(8, os.cpu_count() or 1)
"""Files that are digested side by side."""
Item = TypeVar("Item")
Made = TypeVar("Made")
_MENDS = {
    errno.ENOSPC: "The disk is full: free some space",
    errno.EDQUOT: "The disk quota is used up: free some space",
    errno.EACCES: "No permission: choose another store, or allow writing",
    errno.EPERM: "No permission: choose another store, or allow writing",
    errno.ENOTDIR: "A file is in the place of a folder: choose another store",
    errno.EROFS: "Read-only file system: choose another store",
}


def side_by_side(one: Callable[[Item], Made], items: Sequence[Item]) -> list[Made]:
    """What a function that waits for the disk makes of items, in their order."""
    if len(items) < 2:
        return [one(item) for item in items]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(one, items))


def sha256(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def entries(folder: Path, flushed: bool = True) -> dict[str, FileEntry]:
    """Every file below a folder, by its relative name; flushed to the disk, unless ``flushed`` is false."""

    def entry(path: Path) -> FileEntry:
        if flushed:
            flush(path)
        return FileEntry(sha256=sha256(path), bytes=path.stat().st_size)

    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return dict(zip([path.relative_to(folder).as_posix() for path in paths], side_by_side(entry, paths), strict=True))


def digests(folder: Path, names: Iterable[str]) -> dict[str, str | None]:
    """Hex digests of files of a folder, by name; None for one that is not there."""
    found: dict[str, str | None] = dict.fromkeys(names)
    there = [name for name in found if (folder / name).is_file()]
    found.update(zip(there, side_by_side(lambda name: sha256(folder / name), there), strict=True))
    return found


def check(folder: Path, files: Mapping[str, FileEntry]) -> None:
    """Compares files with their digests.

    Raises:
        DamagedError: one is missing or differs.
    """
    for name, found in digests(folder, files).items():
        file, entry = folder / name, files[name]
        if found is None:
            raise DamagedError(f"{file}: missing, but the manifest names it. {RESTORE}")
        if found != entry.sha256:
            raise DamagedError(
                f"{file}: corrupted (sha256 {found[:16]}, {file.stat().st_size} bytes; "
                f"expected {entry.sha256[:16]}, {entry.bytes} bytes). {RESTORE}"
            )


def is_json(text: bytes | None) -> bool:
    """Whether a text is whole; what a power failure leaves of one is not."""
    try:
        return text is not None and bool(json.loads(text))
    except ValueError:
        return False


def flush(path: Path) -> None:
    """Waits until a file or a folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_text(path: Path, text: str, flushed: bool = True) -> None:
    """Writes a small file at once: a reader sees the old text or the new one, after a power failure if ``flushed``."""
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    staged.write_text(text)
    if flushed:
        flush(staged)
    staged.replace(path)


@contextmanager
def disk_errors(root: Path) -> Iterator[None]:
    """Errors of the disk inside the block, about files below ``root`` or about none that they name, say what to do."""
    try:
        yield
    except OSError as error:
        below = not isinstance(error.filename, str) or Path(error.filename).is_relative_to(root)
        if below and (mend := disk_mend(error)):
            raise ArtifactError(
                f"{error.filename or root}: {error.strerror}. {mend}, then start the same command again: "
                "what was committed is kept."
            ) from error
        raise


def disk_mend(error: OSError) -> str:
    """What to do about an error of the disk; empty when it is of another kind."""
    return _MENDS.get(error.errno or 0, "")
