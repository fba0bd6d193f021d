"""Pointers of Git LFS: three lines in place of a file whose content a clone has not fetched."""

from pathlib import Path

from tasks.errors import DataError

_POINTER = b"version https://git-lfs.github.com/spec/"


def check_fetched(file: Path, name: str) -> None:
    """Raise DataError if a file is a pointer; ``name`` is what the message calls the file."""
    with file.open("rb") as opened:
        if opened.read(len(_POINTER)) == _POINTER:
            raise DataError(f"{name}: a pointer of Git LFS, and no such file yet. Run `git lfs pull` in its folder.")
