"""The pages of docs/ that are made from the code, and the parts of pages that are.

python -m tools.docs.pages      writes all of them (make docs)
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tasks.cli.algorithms import algorithms_page, preset_lines
from tasks.cli.data import data_page
from tasks.cli.pages import renew
from tasks.cli.settings import settings_page
from tools.docs import DOCS


def commands() -> str:
    """The reference of every ``mu-grpo`` command, by typer, with its headings one level lower."""
    command = [sys.executable, "-m", "typer", "tasks.cli.main", "utils", "docs", "--name", "mu-grpo"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=DOCS.parent)
    # What comes before the first command lists the commands, with their texts cut off.
    lines = done.stdout[done.stdout.index("## `mu-grpo ") :].rstrip().splitlines()
    return "\n".join(["#" + line if line.startswith("#") else line for line in lines]) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "algorithms.md": algorithms_page,
    "data.md": data_page,
    "settings.md": settings_page,
}
PARTS: dict[tuple[str, str], Callable[[], str]] = {
    ("commands.md", "mu-grpo"): commands,
    ("objective.md", "presets"): lambda: "\n" + preset_lines() + "\n",
}
"""By page and the name of the marks between which the part stands."""


def write(folder: Path = DOCS) -> None:
    """Writes every page and renews every part in a folder with the pages."""
    for page, text in PAGES.items():
        (folder / page).write_text(text(), encoding="utf-8")
    for (page, marks), text in PARTS.items():
        renew(folder / page, marks, text())


if __name__ == "__main__":
    write()
