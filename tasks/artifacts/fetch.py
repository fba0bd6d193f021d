"""Files from outside of a store, taken in from S3."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from tasks.errors import DataError


def fetch(uri: str, folder: Path, setting: str, wanted: Callable[[str], bool] = lambda _: True) -> None:
    """Copies the object at ``uri``, or those directly below it whose names are wanted, into a folder.

    Args:
        uri: ``s3://bucket/key`` or ``s3://bucket/prefix``.
        folder: where the files go.
        setting: that names the address, for errors.
        wanted: by an object's name below the address.

    Raises:
        DataError: there is nothing, or it could not be fetched.
    """
    from tasks.artifacts.s3_connection import TRANSFER_ERRORS, connect, transient

    prefix = uri.removeprefix("s3://").rstrip("/")
    try:
        files = connect(connections=8)
        again = Retrying(
            retry=retry_if_exception(transient), stop=stop_after_attempt(5), wait=wait_exponential(max=30), reraise=True
        )
        keys = [str(key) for key in again(files.find, prefix, maxdepth=1)]
        for key in keys:
            name = key.rpartition("/")[2]
            if wanted(name):
                again(files.get_file, key, str(folder / name))
    except TRANSFER_ERRORS as error:
        raise DataError(f"{setting}: {uri} could not be fetched: {error}") from error
    if not keys:
        raise DataError(f"{setting}: there is nothing at {uri}.")


@contextmanager
def local_file(path: str, setting: str) -> Iterator[Path]:
    """A file as a local one, for the length of the block; what is on S3 is fetched.

    Raises:
        DataError: it is on S3 and could not be fetched.
    """
    if not path.startswith("s3://"):
        yield Path(path).expanduser()
        return
    with TemporaryDirectory() as folder:
        fetch(path, Path(folder), setting)
        yield Path(folder) / path.rstrip("/").rpartition("/")[2]
