"""Tables as text: for a terminal, and for a page in Markdown."""

import re
from io import StringIO

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table

COLUMNS = 80


def render(renderable: RenderableType, width: int = COLUMNS) -> str:
    """Plain text of a rich table: no colors, no trailing blanks, no blank lines around it."""
    console = Console(file=StringIO(), width=width, color_system=None, force_terminal=False, legacy_windows=False)
    with console.capture() as capture:
        console.print(renderable)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    return "\n".join(lines).strip("\n")


def render_markdown(table: Table) -> str:
    """A rich table as Markdown, without padding."""
    table.box = box.MARKDOWN
    lines = [re.sub(r" {2,}", " ", line) for line in render(table, 4000).splitlines() if line.strip()]
    return "\n".join([lines[0], re.sub(r"-+", "---", lines[1]), *lines[2:]])
