"""Fingerprints of files that a run reads from outside of its store, so that a changed file changes cache keys."""

import hashlib
from pathlib import Path

from tasks.artifacts.files import sha256
from tasks.errors import DataError

_HASHED_BYTES = 64 * 1024 * 1024


def fingerprint(path: str | None) -> str:
    """Return a digest of a file, or of names and contents in a folder; empty when there is nothing at ``path``.

    Files over 64 MiB enter with their size and time of change instead of their content: taking them in again is
    cheaper than hashing them at every start, and gives the same artifact. Objects on S3 enter with their ETags.
    """
    if path and path.startswith("s3://"):
        return _of_objects(path)
    place = Path(path).expanduser() if path else None
    if place is None or not place.exists():
        return ""
    files = [place] if place.is_file() else sorted(file for file in place.iterdir() if file.is_file())
    digest = hashlib.sha256()
    for file in files:
        state = file.stat()
        content = sha256(file) if state.st_size <= _HASHED_BYTES else f"{state.st_size}/{state.st_mtime_ns}"
        digest.update(f"{file.name}={content}\n".encode())
    return digest.hexdigest()


def _of_objects(uri: str) -> str:
    from tasks.artifacts.s3_connection import TRANSFER_ERRORS, connect, patience, retrying

    try:
        found = retrying(patience())(connect(connections=1).find, uri, detail=True)
    except TRANSFER_ERRORS as error:
        raise DataError(f"{uri} could not be listed: {error}") from error
    tags = [f"{name}={about.get('ETag')}/{about.get('size')}\n" for name, about in sorted(found.items())]
    return hashlib.sha256("".join(tags).encode()).hexdigest()
