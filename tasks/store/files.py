"""Files on a disk: a store's folder, digests, atomic writes, and errors with their fixes."""

import errno
import hashlib
import os
import re
import shutil
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import psutil
from filelock import FileLock

from tasks.errors import DamagedError, StorageError
from tasks.process.logs import bar
from tasks.store.layout import STAGING
from tasks.store.records import FileEntry

RESTORE = (
    "Restore it from a copy, or start the run again with `pyflyte run --overwrite-cache` or `mu-grpo start "
    "--overwrite-cache`: only damaged or missing artifacts are made again."
)

_FILES_AT_ONCE = min(8, os.cpu_count() or 1)
"""Number of files that are hashed in parallel."""
OBJECTS_AT_ONCE = 32
"""Number of small objects that are read in parallel."""
_BAR_FROM_ITEMS = 500
"""Number of requests, in parallel, that take about a second."""
_NO_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
"""Errors of reading a path that is no file, for example because another process deleted it after it was listed."""
Item = TypeVar("Item")
Made = TypeVar("Made")
_RUST_ERROR = re.compile(r"\(os error (\d+)\)$")
"""End of the message of an error of the system in Rust, with its number."""
_FIXES = {
    errno.ENOENT: "The store, or a part of it, was moved, deleted or unmounted: bring it back",
    errno.ENOSPC: "The disk is full: free some space",
    errno.EDQUOT: "The disk quota is used up: free some space",
    errno.EACCES: "No permission: choose another store, or allow reading and writing",
    errno.EPERM: "No permission: choose another store, or allow reading and writing",
    errno.ENAMETOOLONG: "The file system allows no such name: choose another store",
    errno.ENOTDIR: "A file is in the place of a folder: choose another store",
    errno.EEXIST: "A file, or a link to a disk that is not mounted, is in the place of a folder: choose another store",
    errno.EXDEV: "A folder of the store is on another disk: move the whole store to one disk",
    errno.EROFS: "Read-only file system: choose another store",
    errno.ENOLCK: "The file system has no locks (flock): choose another store, or mount it with locks",
    errno.EOPNOTSUPP: "The file system lacks an operation, such as locks (flock): choose another store",
}


class StoredFile(NamedTuple):
    """Size and time of change of a file or an object."""

    bytes: int
    modified: float
    """Unix seconds."""


def thread_map(
    function: Callable[[Item], Made], items: Sequence[Item], at_once: int = _FILES_AT_ONCE, title: str = ""
) -> list[Made]:
    """Apply a function to items in threads, and return the results in the order of the items.

    It is for functions that wait for a disk or a server. The first error is raised; calls that have not begun by then
    are not made. A ``title`` is that of a progress bar, which many items have.
    """
    if len(items) < 2:
        return [function(item) for item in items]
    results = []
    shown = bar(title, len(items)) if title and len(items) >= _BAR_FROM_ITEMS else nullcontext()
    with shown as progress, ThreadPoolExecutor(min(at_once, len(items))) as pool:
        for result in pool.map(function, items):
            results.append(result)
            if progress:
                progress.advance()
    return results


def sha256(path: Path) -> str:
    """Return the hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def entries(folder: Path, flushed: bool = True) -> dict[str, FileEntry]:
    """Return digest and size of every file below a folder, by relative name; flush the files first if ``flushed``.

    Whoever can read the folder can then read its files, even those of safetensors, which only their owner could read.
    """
    mode = folder.stat().st_mode & 0o666

    def entry(path: Path) -> FileEntry:
        if (path.stat().st_mode ^ mode) & 0o444:
            path.chmod(mode)
        if flushed:
            flush(path)
        return FileEntry(sha256=sha256(path), bytes=path.stat().st_size)

    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return dict(zip([path.relative_to(folder).as_posix() for path in paths], thread_map(entry, paths), strict=True))


def digests(folder: Path, names: Iterable[str]) -> dict[str, str | None]:
    """Return hex digests of files of a folder, by name; None for a missing file."""
    files = list(names)
    return dict(zip(files, thread_map(_digest, [folder / name for name in files]), strict=True))


def _digest(path: Path) -> str | None:
    try:
        return sha256(path)
    except _NO_FILE:
        return None


def modified(path: Path) -> int | None:
    """Return the time of a file's last change, in nanoseconds; None for a missing file."""
    try:
        return path.stat().st_mtime_ns
    except _NO_FILE:
        return None


def check(folder: Path, files: Mapping[str, FileEntry]) -> None:
    """Raise DamagedError if a file of a folder is missing or has another digest."""
    for name, digest in digests(folder, files).items():
        file, entry = folder / name, files[name]
        if digest is None:
            raise DamagedError(f"{file}: missing, but the manifest names it. {RESTORE}")
        if digest != entry.sha256:
            raise DamagedError(
                f"{file}: corrupted (sha256 {digest[:16]}, {file.stat().st_size} bytes; "
                f"expected {entry.sha256[:16]}, {entry.bytes} bytes). {RESTORE}"
            )


def flush(path: Path) -> None:
    """Wait until a file or a folder is on the disk; some file systems, such as VirtualBox's, cannot flush folders."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(handle)


class Folder:
    """Files of a store on this machine, by keys relative to ``root``. ``s3.Bucket`` has methods with the same names."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def listing(self, prefix: str) -> dict[str, StoredFile]:
        """Return size and time of change of every file below a folder, by key."""
        files = {}
        for folder, _, names in os.walk(self._root / prefix, onerror=_raise_unless_gone):
            for path in (Path(folder, name) for name in names):
                with suppress(FileNotFoundError):  # Deleted while it was listed.
                    state = path.stat()
                    files[path.relative_to(self._root).as_posix()] = StoredFile(state.st_size, state.st_mtime)
        return files

    def read(self, key: str) -> bytes | None:
        """Return the content of a file; None when there is none."""
        try:
            return (self._root / key).read_bytes()
        except _NO_FILE:
            return None

    def write(self, key: str, content: bytes) -> None:
        """Write a small file; readers see the old content or the new one, even after a power failure."""
        target = self._root / key
        with staged_file(self._root, target) as staged:
            staged.write_bytes(content)
            flush(staged)
            staged.replace(target)

    def write_new(self, key: str, content: bytes) -> None:
        """Write a file unless it exists; if several processes write at the same time, the first one wins."""
        target = self._root / key
        with staged_file(self._root, target) as staged:
            staged.write_bytes(content)
            flush(staged)
            try:
                os.link(staged, target)
            except FileExistsError:
                pass
            except OSError:  # Not every file system has hard links.
                with FileLock(f"{target}.lock"):
                    if not target.exists():
                        staged.replace(target)

    def digest(self, key: str, size: int) -> str | None:  # noqa: ARG002 - Bucket needs the size
        """Return the SHA-256 of a file; None when there is none."""
        return _digest(self._root / key)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete files, then the empty folders below an area."""
        for key in keys:
            path = self._root / key
            if not path.is_dir():
                path.unlink(missing_ok=True)
            for folder in [path, *path.parents][: key.count("/")]:
                with suppress(OSError):  # Not empty yet.
                    folder.rmdir()


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _process_space() -> str:
    """Return a name for the processes that this process can see; containers of one host name see different ones."""
    try:
        namespace = f"-{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:  # Only Linux has these files.
        namespace = ""
    return socket.gethostname() + namespace


@contextmanager
def staging_folder(root: Path) -> Iterator[Path]:
    """Yield a folder of a store in which to prepare files; it is removed after the block, unless it was moved."""
    folder = root / STAGING / f"{_process_space()}-{os.getpid()}-{uuid.uuid4().hex}"
    try:
        with disk_errors(root):
            folder.mkdir(parents=True)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def staged_file(root: Path, target: Path) -> Iterator[Path]:
    """Yield a temporary path for a file of a store, which the caller then moves to the target; make its folder."""
    with staging_folder(root) as folder:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield folder / target.name


def sweep(root: Path) -> None:
    """Remove the staging folders of dead writers whose processes this process could see."""
    for folder in (root / STAGING).glob("*-*-*"):
        space, pid, _ = folder.name.rsplit("-", 2)
        if space == _process_space() and pid.isdigit() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def disk_errors(root: Path) -> Iterator[None]:
    """Raise errors of the disk inside the block with their fixes, if they name a file below ``root`` or no file."""
    try:
        yield
    except Exception as error:  # tokenizers, in Rust, raises plain exceptions; other errors are raised again.
        cause = _os_error(error)
        place = cause.filename2 or cause.filename  # The second one is the target of a copy.
        below = not isinstance(place, str) or Path(place).is_relative_to(root)
        if below and (fix := disk_fix(cause)):
            raise StorageError(
                f"{place or root}: {cause.strerror}. {fix}, then start the same command again: "
                "committed artifacts are kept."
            ) from error
        raise


def _os_error(error: Exception) -> OSError:
    """Return an error of the system as OSError, also one of a library in Rust; number 0 stands for any other error."""
    if isinstance(error, OSError):
        return error
    match = _RUST_ERROR.search(str(error))
    number = int(match[1]) if match else 0
    return OSError(number, os.strerror(number))


def disk_fix(error: OSError) -> str:
    """Return the fix for an error of the disk; empty for other errors."""
    return _FIXES.get(error.errno or 0, "")
