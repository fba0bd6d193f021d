"""The table of algorithms says what the settings do, and the page in docs/ is the table."""

import subprocess
import sys
from pathlib import Path

from tasks.cli.algorithms import describe
from tasks.settings import PRESETS, ObjectiveSettings

ROOT = Path(__file__).parents[2]


def test_a_row_per_preset_and_modifier() -> None:
    command = [Path(sys.executable).parent / "mu-grpo", "algorithms"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = {line.split()[0] for line in printed.splitlines() if line[2:3].strip()}
    assert set(PRESETS) <= names
    assert "+ tis" in printed
    assert "+ mis" in printed
    assert len(PRESETS) + 2 >= 26


def test_two_presets_that_differ_are_described_differently() -> None:
    rows = {}
    for name, preset in PRESETS.items():
        settings = ObjectiveSettings.parse(preset.row)
        rows.setdefault(settings.model_dump_json(), []).append((name, tuple(describe(settings).values())))
    described = [row for same in rows.values() for _, row in same[:1]]
    assert len(set(described)) == len(rows)


def test_every_preset_names_its_source() -> None:
    assert not [name for name, preset in PRESETS.items() if "arXiv" not in preset.source]
