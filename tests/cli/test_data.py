"""The table of data sets has a row for each, and the page in docs/ holds it."""

import subprocess
import sys
from pathlib import Path

from tasks.cli.data import data_page
from tasks.settings import BENCHMARKS, TRAINING_SETS

ROOT = Path(__file__).parents[2]


def test_a_row_per_data_set() -> None:
    command = [Path(sys.executable).parent / "mu-grpo", "data"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = {line.split()[0] for line in printed.splitlines() if line[2:3].strip()}
    assert {*BENCHMARKS, *TRAINING_SETS} <= names


def test_the_page_in_docs_is_the_table() -> None:
    assert (ROOT / "docs/data.md").read_text() == data_page(), "renew it: mu-grpo data --markdown docs/data.md"
