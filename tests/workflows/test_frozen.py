"""The tiny runs give the numbers that they always gave; `python -m tools.frozen` wrote them, and says what they are."""

import json
from pathlib import Path

import pytest

from tools.frozen import RUNS, file_of_processor, numbers


@pytest.mark.parametrize("name", RUNS)
def test_every_number_of_a_tiny_run_is_unchanged(name: str, tmp_path: Path) -> None:
    if not (file := file_of_processor()).exists():
        pytest.skip(f"{file.parent.name}/ has no numbers of {file.stem}")
    frozen, found = json.loads(file.read_text())[name], numbers(name, tmp_path)
    assert found["verdicts"] == frozen["verdicts"]
    for row, kept in zip(found["metrics"], frozen["metrics"], strict=True):
        assert row == kept
    assert found["evaluations"] == frozen["evaluations"]
