"""The sections of the pages of docs/ that are made from the code.

python -m tools.docs.pages      writes all of them (make docs)
"""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tasks.cli.algorithms import algorithms_table, benchmarks_table, describe, training_sets_table
from tasks.cli.settings import FILES, Entry, sections
from tasks.settings import PRESETS, ObjectiveSettings
from tools.docs import DOCS
from tools.docs.sections import render_markdown, replace_section


def commands() -> str:
    """Return typer's reference of all ``mu-grpo`` commands, with headings one level lower."""
    command = [sys.executable, "-m", "typer", "tasks.cli.main", "utils", "docs", "--name", "mu-grpo"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=DOCS.parent)
    # The text before the first command is a list of commands with truncated descriptions.
    lines = done.stdout[done.stdout.index("## `mu-grpo ") :].rstrip().splitlines()
    return "\n".join(["#" + line if line.startswith("#") else line for line in lines]) + "\n"


def settings() -> str:
    """Return a table for each class of settings that a file can hold."""
    lines = []
    for title, (model, file) in FILES.items():
        lines += ["", f"## {title}", "", file]
        for section in sections(model):
            lines += ["", f"### `{section.path or 'top level'}`", "", section.about.replace("``", "`"), ""]
            lines += ["| setting | type and what is allowed | default | meaning |", "|---|---|---|---|"]
            lines += [_row(entry) for entry in section.entries]
    return "\n".join([*lines, "", ""])


def _row(entry: Entry) -> str:
    default = f"`{entry.default}`" if entry.default not in ("", "required", "derived") else entry.default
    kind = re.sub(r"section `(.*?)`", _link, entry.type)
    cells = [f"`{entry.path}`", kind, default, entry.meaning.replace("``", "`")]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _link(section: re.Match[str]) -> str:
    anchor = re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", section[1]))
    return f"section [`{section[1]}`](#{anchor.lower()})"


def preset_lines() -> str:
    """Return a table of the terms of the objective, with a preset per row."""
    rows = ["| preset | `A` | `c` | divided by | other rules |", "|---|---|---|---|---|"]
    for name, preset in PRESETS.items():
        *formulas, rules = describe(ObjectiveSettings.parse(preset.row)).values()
        rows.append(f"| {' | '.join([*(f'`{one}`' for one in [name, *formulas]), rules])} |")
    return "\n".join(rows) + "\n"


PARTS: dict[tuple[str, str], Callable[[], str]] = {
    ("algorithms.md", "presets"): lambda: render_markdown(algorithms_table()) + "\n",
    ("data.md", "benchmarks"): lambda: render_markdown(benchmarks_table()) + "\n",
    ("data.md", "training sets"): lambda: render_markdown(training_sets_table()) + "\n",
    ("settings.md", "settings"): settings,
    ("commands.md", "mu-grpo"): commands,
    ("objective.md", "presets"): lambda: "\n" + preset_lines() + "\n",
}
"""Functions that return the text of a section, by page and by the name of the marks around the section."""


def write(folder: Path = DOCS) -> None:
    """Rewrite all sections of the pages in a folder."""
    for (page, marks), text in PARTS.items():
        replace_section(folder / page, marks, text())


if __name__ == "__main__":
    write()
