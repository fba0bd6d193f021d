"""Tables as text, for a terminal."""

from collections.abc import Iterable, Sequence
from io import StringIO

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

TERMINAL_WIDTH = 80
_WIDEST, _WIDEST_CELL = 4000, 30


def render_text(table: Table) -> str:
    """Return a table as plain text, with cells as written, without trailing spaces and surrounding blank lines.

    A line is as long as its cells, also in a narrow terminal.
    """
    console = Console(
        file=StringIO(), width=_WIDEST, color_system=None, force_terminal=False, markup=False, emoji=False
    )
    with console.capture() as capture:
        console.print(table)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    return "\n".join(lines).strip("\n")


def text_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with names in the first column and numbers in the others; an empty row ends a section."""
    table = number_table("", headings[:1], headings[1:], rows)
    for column in table.columns[1:]:
        column.no_wrap, column.max_width, column.overflow = False, _WIDEST_CELL, "fold"
    return render_text(table)


def number_table(title: str, names: Sequence[str], numbers: Sequence[str], rows: Iterable[Sequence[str]] = ()) -> Table:
    """Return a table with a title, columns of names and columns of numbers; an empty row ends a section.

    No column wraps.
    """
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    table.caption_justify = "left"
    for name in names:
        table.add_column(name, no_wrap=True)
    for number in numbers:
        table.add_column(number, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row) if row else table.add_section()
    return table


def folding_table(name: str, *texts: str) -> Table:
    """Return an empty table with a column of names, which does not wrap, and columns of texts, which wrap."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column(name, no_wrap=True)
    for text in texts:
        table.add_column(text, overflow="fold")
    return table


def print_whole(console: Console, table: Table) -> None:
    """Print a table. If no column wraps, the table keeps its width, so that a narrow terminal truncates no number."""
    if not all(column.no_wrap for column in table.columns):
        console.print(table)
        return
    wide = Measurement.get(console, console.options.update(width=_WIDEST), table).maximum
    if wide > console.width:
        console = Console(file=console.file, width=wide, force_terminal=console.is_terminal)
    console.print(table)
