"""Pages of documentation in which commands renew what they found, between marks."""

import re
from pathlib import Path

from tasks.errors import DataError


def renew(page: Path, name: str, text: str) -> None:
    """Replaces what stands between the marks ``<!-- name -->`` and ``<!-- end of name -->``.

    Raises:
        DataError: the page has no such marks.
    """
    first, last = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    marks = re.compile(rf"({re.escape(first)}).*?({re.escape(last)})", re.DOTALL)
    written = page.read_text(encoding="utf-8")
    if not marks.search(written):
        raise DataError(f"{page}: no marks `{first.strip()}` and `{last}`. Write them where the text shall stand.")
    page.write_text(marks.sub(lambda match: match[1] + text + match[2], written), encoding="utf-8")
