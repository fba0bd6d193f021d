"""Sections of pages of docs/, between two marks, and tables in Markdown."""

import re
from pathlib import Path

from rich import box
from rich.table import Table

from tasks.errors import DataError
from tasks.report.tables import render_text


def find_section(page: Path, name: str) -> re.Match[str]:
    """Return the match of the text between the marks ``<!-- name -->`` and ``<!-- end of name -->`` in a page.

    Raises:
        DataError: the page has no such marks.
    """
    first, last = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    content = page.read_text(encoding="utf-8")
    if (found := re.search(rf"(?<={re.escape(first)}).*?(?={re.escape(last)})", content, re.DOTALL)) is None:
        raise DataError(f"{page}: no marks `{first.strip()}` and `{last}`. Add them where the text belongs.")
    return found


def replace_section(page: Path, name: str, text: str) -> None:
    """Replace the text between the marks ``<!-- name -->`` and ``<!-- end of name -->``.

    Raises:
        DataError: the page has no such marks.
    """
    found = find_section(page, name)
    page.write_text(found.string[: found.start()] + text + found.string[found.end() :], encoding="utf-8")


def render_markdown(table: Table) -> str:
    """Return a rich table as Markdown, without padding."""
    table.box, table.pad_edge = box.MARKDOWN, True
    lines = [re.sub(r" {2,}", " ", line) for line in render_text(table).splitlines() if line.strip()]
    return "\n".join([lines[0], re.sub(r"-+", "---", lines[1]), *lines[2:]])
