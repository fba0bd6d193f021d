"""Files from outside a store, on S3 or the Hugging Face hub: downloads, and fingerprints that show changes."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tasks.errors import DataError, FetchError
from tasks.settings.base import local_path
from tasks.store.files import sha256

if TYPE_CHECKING:
    from s3fs import S3FileSystem

_HASHED_BYTES = 64 * 2**20


def fetch(uri: str, folder: Path, setting: str, wanted: Callable[[str], bool] = lambda _: True) -> None:
    """Copy the object at ``s3://bucket/key``, or objects directly below ``s3://bucket/prefix``, into a folder.

    ``wanted`` selects objects by their names below the address; ``setting`` names the address in errors.

    Raises:
        DataError: there is no object at the address.
        FetchError: an object could not be fetched.
    """
    from tasks.store.s3 import TRANSFER_ERRORS, connect, retrying

    retry = retrying()
    try:
        files = connect()
        keys = list(_objects(files, uri))
        for key in keys:
            name = key.rpartition("/")[2]
            if wanted(name):
                retry(files.get_file, key, str(folder / name))
    except TRANSFER_ERRORS as error:
        raise FetchError(f"{setting}: {uri} could not be fetched: {error}") from error
    if not keys:
        raise DataError(f"{setting}: there is nothing at {uri}.")


def _objects(files: "S3FileSystem", uri: str) -> dict[str, dict[str, Any]]:
    """Return S3's entries of the object at an address, or of the objects directly below it, by key."""
    from tasks.store.s3 import retrying

    retry, place = retrying(), uri.rstrip("/")
    try:
        found = retry(files.info, place)
        # find and walk take a listing that fails for an empty one.
        listed = retry(files.ls, place, detail=True) if found["type"] == "directory" else [found]
    except FileNotFoundError:
        return {}
    return {str(one["name"]): one for one in listed if one["type"] == "file"}


def fingerprint(path: str | None) -> str:
    """Return a digest of a file, or of the names and contents in a folder; empty when ``path`` does not exist.

    Files over 64 MiB are represented by size and time of change instead of content: importing them again is cheaper
    than hashing them at every start, and makes the same artifact. Objects on S3 are represented by their ETags.

    Raises:
        DataError: a file cannot be read; see ``local_path`` for another mistake.
        FetchError: objects on S3 could not be listed.
    """
    if path and path.startswith("s3://"):
        from tasks.store.s3 import TRANSFER_ERRORS, connect

        try:
            objects = _objects(connect(), path)
        except TRANSFER_ERRORS as error:
            raise FetchError(f"{path} could not be listed: {error}") from error
        contents = {name: f"{about.get('ETag')}/{about.get('size')}" for name, about in sorted(objects.items())}
    elif path:
        try:
            if not (root := local_path(path)).exists():
                return ""
            files = [root] if root.is_file() else sorted(file for file in root.iterdir() if file.is_file())
            contents = {file.name: _content(file) for file in files}
        except OSError as error:
            raise DataError(
                f"{error.filename or path} cannot be read: {error.strerror}. Allow reading it, or name another place."
            ) from None
    else:
        return ""
    return hashlib.sha256("".join(f"{name}={content}\n" for name, content in contents.items()).encode()).hexdigest()


def _content(file: Path) -> str:
    state = file.stat()
    return sha256(file) if state.st_size <= _HASHED_BYTES else f"{state.st_size}/{state.st_mtime_ns}"


def check_fingerprint(before: str, now: str, setting: str) -> None:
    """Raise DataError if files changed after a run started; ``setting`` names them.

    ``before`` is their fingerprint at the start, which the run's cache key holds; empty if it is not known.
    """
    if before not in ("", now):
        raise DataError(
            f"{setting}: the files changed after this run started, before they were read. "
            "To fix it: start the run again; it reads the present files."
        )


def snapshot(
    kind: Literal["model", "dataset"], name: str, revision: str | None, wanted: Sequence[str], setting: str
) -> Path:
    """Return the folder with files of a model or data set of the Hugging Face hub; the folder's name is their commit.

    When the hub does not answer, files that were fetched before are used. ``wanted`` holds patterns of file names;
    without any, only the commit is requested. ``setting`` names the repository in errors.

    Raises:
        FetchError: the files could not be fetched.
    """
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, repo_type=kind, revision=revision, allow_patterns=list(wanted)))
    except Exception as error:  # Those of a lost connection are of the hub's HTTP client, which differs by version.
        at = f" at revision {revision}" if revision else ""
        raise FetchError(
            f"{setting}: {name!r}{at} is not a folder here and could not be fetched from the Hugging Face hub: {error}"
        ) from None
