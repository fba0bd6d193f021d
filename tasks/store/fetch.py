"""Fetch files from outside of a store, on S3 or the Hugging Face hub, and detect that they changed."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from tasks.errors import DataError, FetchError
from tasks.store.files import sha256

_HASHED_BYTES = 64 * 2**20


def fetch(uri: str, folder: Path, setting: str, wanted: Callable[[str], bool] = lambda _: True) -> None:
    """Copy an object, or the wanted objects directly below a prefix, from an ``s3://`` address into a folder.

    ``setting`` names the address in errors; ``wanted`` takes the name of an object below the address.

    Raises:
        DataError: there is no object at the address.
        FetchError: the server does not give it.
    """
    from tasks.store.s3 import TRANSFER_ERRORS, connect, retrying

    again = retrying()
    try:
        files = connect(connections=8)
        keys = [str(key) for key in again(files.find, uri.rstrip("/"), maxdepth=1)]
        for key in keys:
            name = key.rpartition("/")[2]
            if wanted(name):
                again(files.get_file, key, str(folder / name))
    except TRANSFER_ERRORS as error:
        raise FetchError(f"{setting}: {uri} could not be fetched: {error}") from error
    if not keys:
        raise DataError(f"{setting}: there is nothing at {uri}.")


def fingerprint(path: str | None) -> str:
    """Return a digest of a file, or of names and contents in a folder; empty when there is nothing at ``path``.

    Files over 64 MiB enter with size and time of change instead of their content: to copy a changed one again, into the
    same artifact, is cheaper than hashing it at every start. Objects on S3 enter with their ETags.

    Raises:
        DataError: objects on S3 could not be listed.
    """
    if path and path.startswith("s3://"):
        from tasks.store.s3 import TRANSFER_ERRORS, connect, retrying

        try:
            found = retrying()(connect(connections=1).find, path, detail=True)
        except TRANSFER_ERRORS as error:
            raise DataError(f"{path} could not be listed: {error}") from error
        lines = [f"{name}={about.get('ETag')}/{about.get('size')}\n" for name, about in sorted(found.items())]
        return hashlib.sha256("".join(lines).encode()).hexdigest()
    place = Path(path).expanduser() if path else None
    if place is None or not place.exists():
        return ""
    digest = hashlib.sha256()
    for file in [place] if place.is_file() else sorted(file for file in place.iterdir() if file.is_file()):
        state = file.stat()
        content = sha256(file) if state.st_size <= _HASHED_BYTES else f"{state.st_size}/{state.st_mtime_ns}"
        digest.update(f"{file.name}={content}\n".encode())
    return digest.hexdigest()


def snapshot(
    kind: Literal["model", "dataset"], name: str, revision: str | None, wanted: Sequence[str], setting: str
) -> Path:
    """Return a folder with files of a model or data set of the Hugging Face hub, named by their commit.

    Files that were fetched before are used if the hub does not answer. Without patterns in ``wanted`` only the commit
    is looked up. ``setting`` names the repository in errors.

    Raises:
        FetchError: the hub does not give them.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, repo_type=kind, revision=revision, allow_patterns=list(wanted)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        at = f" at revision {revision}" if revision else ""
        raise FetchError(
            f"{setting}: {name!r}{at} is no folder here and could not be fetched from the Hugging Face hub: {error}"
        ) from None
