"""The table of data sets has a row for each, and a page is written or renewed."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tasks.cli.main import app
from tasks.settings import BENCHMARKS, TRAINING_SETS

ROOT = Path(__file__).parents[2]


def test_a_row_per_data_set() -> None:
    printed = CliRunner().invoke(app, ["data"]).stdout
    names = {line.split()[0] for line in printed.splitlines() if line[2:3].strip()}
    assert {*BENCHMARKS, *TRAINING_SETS} <= names


@pytest.mark.parametrize(
    ("command", "page"), [("data", "data"), ("algorithms", "algorithms"), ("settings", "settings")]
)
def test_a_page_is_renewed_between_its_marks_and_a_new_one_is_the_tables(
    command: str, page: str, tmp_path: Path
) -> None:
    kept, new = tmp_path / "kept.md", tmp_path / "new.md"
    text = (ROOT / f"docs/{command}.md").read_text()
    kept.write_text(text)
    for file in (kept, new):
        assert CliRunner().invoke(app, [command, "--markdown", str(file)]).exit_code == 0
    assert kept.read_text() == text
    assert new.read_text().strip().splitlines()[-1] in text
