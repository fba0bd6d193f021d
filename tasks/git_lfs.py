"""Files of a clone whose content Git LFS has not fetched: in their place are pointers of three lines."""

from pathlib import Path

from tasks.errors import DataError

_POINTER = b"version https://git-lfs.github.com/spec/"


def check_fetched(file: Path, name: str) -> None:
    """Raises DataError for a pointer.

    Args:
        file: that is to be read.
        name: of the file to its user.
    """
    with file.open("rb") as opened:
        if opened.read(len(_POINTER)) == _POINTER:
            raise DataError(f"{name}: a pointer of Git LFS, and no such file yet. Run `git lfs pull` in its folder.")
