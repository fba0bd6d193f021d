"""The parts of the pages of docs/ that are made from the code.

python -m tools.docs.pages      writes all of them (make docs)
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tasks.cli.algorithms import algorithms_table, preset_lines
from tasks.cli.data import benchmarks_table, training_sets_table
from tasks.cli.pages import renew
from tasks.cli.settings import settings_text
from tasks.report.tables import render_markdown
from tools.docs import DOCS


def commands() -> str:
    """The reference of every ``mu-grpo`` command, by typer, with its headings one level lower."""
    command = [sys.executable, "-m", "typer", "tasks.cli.main", "utils", "docs", "--name", "mu-grpo"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=DOCS.parent)
    # What comes before the first command lists the commands, with their texts cut off.
    lines = done.stdout[done.stdout.index("## `mu-grpo ") :].rstrip().splitlines()
    return "\n".join(["#" + line if line.startswith("#") else line for line in lines]) + "\n"


PARTS: dict[tuple[str, str], Callable[[], str]] = {
    ("algorithms.md", "presets"): lambda: render_markdown(algorithms_table()) + "\n",
    ("data.md", "benchmarks"): lambda: render_markdown(benchmarks_table()) + "\n",
    ("data.md", "training sets"): lambda: render_markdown(training_sets_table()) + "\n",
    ("settings.md", "settings"): settings_text,
    ("commands.md", "mu-grpo"): commands,
    ("objective.md", "presets"): lambda: "\n" + preset_lines() + "\n",
}
"""Texts of parts, by page and the name of the marks between which a part stands."""


def write(folder: Path = DOCS) -> None:
    """Renew every part in a folder with the pages."""
    for (page, marks), text in PARTS.items():
        renew(folder / page, marks, text())


if __name__ == "__main__":
    write()
