"""Pages of documentation in which commands replace the text between marks."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.errors import DataError


@contextmanager
def explain_write_errors(page: Path, option: str) -> Iterator[None]:
    """Replace an OSError in the block by a DataError that names the option, the file and the fix."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{option}: {page} cannot be written ({error.strerror}). Name another file.") from error


def find_marks(page: Path, name: str) -> re.Match[str]:
    """Return the match of the text between the marks ``<!-- name -->`` and ``<!-- end of name -->`` in a page.

    Raises:
        DataError: the page has no such marks, or cannot be read.
    """
    first, last = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    try:
        content = page.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{page}: cannot be read ({error.strerror}). Name a page that has the marks.") from error
    if (found := re.search(rf"(?<={re.escape(first)}).*?(?={re.escape(last)})", content, re.DOTALL)) is None:
        raise DataError(f"{page}: no marks `{first.strip()}` and `{last}`. Add them where the text belongs.")
    return found


def replace_between_marks(page: Path, name: str, text: str) -> None:
    """Replace the text between the marks ``<!-- name -->`` and ``<!-- end of name -->``.

    Raises:
        DataError: the page has no such marks, or cannot be read or written.
    """
    found = find_marks(page, name)
    with explain_write_errors(page, "the page"):
        page.write_text(found.string[: found.start()] + text + found.string[found.end() :], encoding="utf-8")
