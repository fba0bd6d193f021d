"""Fetches files from outside of a store: from S3 or from the Hugging Face hub."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from tasks.errors import DataError, FetchError


def fetch(uri: str, folder: Path, setting: str, wanted: Callable[[str], bool] = lambda _: True) -> None:
    """Copy the object at ``s3://bucket/key``, or those directly below ``s3://bucket/prefix``, into a folder.

    Args:
        uri: the address.
        folder: the folder to copy to.
        setting: the setting that names the address, for errors.
        wanted: whether an object is wanted, by its name below the address.

    Raises:
        DataError: there is nothing there.
        FetchError: it could not be fetched.
    """
    from tasks.artifacts.s3_connection import TRANSFER_ERRORS, connect, patience, retrying

    prefix = uri.removeprefix("s3://").rstrip("/")
    try:
        files = connect(connections=8)
        again = retrying(patience())
        keys = [str(key) for key in again(files.find, prefix, maxdepth=1)]
        for key in keys:
            name = key.rpartition("/")[2]
            if wanted(name):
                again(files.get_file, key, str(folder / name))
    except TRANSFER_ERRORS as error:
        raise FetchError(f"{setting}: {uri} could not be fetched: {error}") from error
    if not keys:
        raise DataError(f"{setting}: there is nothing at {uri}.")


@contextmanager
def local_file(path: str, setting: str) -> Iterator[Path]:
    """Yield a local path of a file, which is fetched for the length of the block if it is on S3.

    Raises:
        FetchError: it is on S3 and could not be fetched.
    """
    if not path.startswith("s3://"):
        yield Path(path).expanduser()
        return
    with TemporaryDirectory() as folder:
        fetch(path, Path(folder), setting)
        yield Path(folder) / path.rstrip("/").rpartition("/")[2]


def snapshot(
    kind: Literal["model", "dataset"], name: str, revision: str | None, wanted: Sequence[str], setting: str
) -> Path:
    """Return the folder with files of a model or data set of the Hugging Face hub; it is named by their commit.

    Files that were fetched before are found again when the hub does not answer.

    Args:
        kind: the kind of repository.
        name: its name on the hub.
        revision: a commit, tag or branch; ``main`` when None.
        wanted: patterns of files; with none, only the commit is asked for.
        setting: the setting that names it, for errors.

    Raises:
        FetchError: it could not be fetched.
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
