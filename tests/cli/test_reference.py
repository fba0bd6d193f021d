"""Reference by commands: every preset, data set and field of settings has a row, and pages are renewed."""

from pathlib import Path
from typing import Literal

import pytest
from pydantic import Field
from typer.testing import CliRunner

from tasks.cli.algorithms import describe
from tasks.cli.main import app
from tasks.cli.settings import FILES, sections
from tasks.errors import SettingsError
from tasks.settings import BENCHMARKS, PRESETS, TRAINING_SETS, ObjectiveSettings, RunSettings
from tasks.settings.base import Kinds, Number, Settings
from tools import ROOT


@pytest.mark.parametrize(
    ("command", "names"),
    [("algorithms", {*PRESETS, "+ tis", "+ mis"}), ("data", {*BENCHMARKS, *TRAINING_SETS})],
)
def test_a_row_for_each(command: str, names: set[str]) -> None:
    printed = CliRunner().invoke(app, [command]).stdout
    assert names <= {line[1:].split("  ")[0].strip() for line in printed.splitlines() if line[2:3].strip()}


@pytest.mark.parametrize("command", ["data", "algorithms", "settings"])
def test_a_page_is_renewed_between_its_marks_and_a_new_one_is_the_tables(command: str, tmp_path: Path) -> None:
    kept, new = tmp_path / "kept.md", tmp_path / "new.md"
    text = (ROOT / f"docs/{command}.md").read_text()
    kept.write_text(text)
    for file in (kept, new):
        assert CliRunner().invoke(app, [command, "--markdown", str(file)]).exit_code == 0
    assert kept.read_text() == text
    assert new.read_text().strip().splitlines()[-1] in text


def test_two_presets_that_differ_are_described_differently() -> None:
    objectives = [ObjectiveSettings.parse(preset.row) for preset in PRESETS.values()]
    different = {objective.model_dump_json(): objective for objective in objectives}
    described = {tuple(describe(objective).values()) for objective in different.values()}
    assert len(described) == len(different)


def test_every_preset_names_its_source() -> None:
    assert not [name for name, preset in PRESETS.items() if "arXiv" not in preset.source]


class PassSettings(Kinds):
    """Which tokens pass."""

    kind: str = "none"
    most: int = 1
    """A field of all kinds."""


class RingPass(PassSettings):
    """Pass inside the interval and far outside of it."""

    kind: Literal["ring"] = "ring"
    outer_high: Number = Field(3.0, gt=1)
    """Ratio above which tokens pass again."""


class OpenPass(PassSettings):
    """Let every token pass."""

    kind: Literal["none", "all"] = "none"


class ParentSettings(Settings):
    """Fields that others inherit."""

    gate: PassSettings = OpenPass()
    """Which tokens pass."""


class WholeSettings(ParentSettings):
    """A file with kinds."""

    others: list[PassSettings] = Field([], max_length=2)
    maybe: PassSettings | None = None


def test_settings_of_several_kinds_are_one_section_that_names_the_kinds() -> None:
    found = {section.title: section for section in sections(WholeSettings)}
    assert set(found) == {"`top level`", "`gate`"}
    kind, most, outer = found["`gate`"].entries
    assert (kind.type, kind.default) == ("`ring` or `none` or `all`", "none")
    assert "`none` or `all`: Let every token pass." in kind.meaning
    assert (most.path, most.meaning) == ("gate.most", "A field of all kinds.")
    assert (outer.path, outer.type, outer.default, outer.meaning) == (
        "gate.outer_high",
        "number, above 1",
        "3",
        "With kind `ring`: Ratio above which tokens pass again.",
    )
    gate, others, maybe = found["`top level`"].entries
    assert gate.meaning == "Which tokens pass."
    assert gate.type == "section [`gate`](#gate)"
    assert others.type.startswith("list of section [")
    assert maybe.type.endswith(" or null")


def test_every_field_that_yaml_can_hold_has_a_row() -> None:
    rows = {entry.path for section in sections(RunSettings) for entry in section.entries}
    for path in (
        "seed",
        "optimize.objective.gate.second_moment.form",
        "evaluate.benchmarks[].source",
        "policy.tiny.heads",
    ):
        assert path in rows
    assert all(section.about for model, _ in FILES.values() for section in sections(model))


@pytest.mark.parametrize("name", ["optimize.objective.veto", "optimize.objective.veto.kappa"])
def test_the_command_prints_a_part(name: str) -> None:
    printed = CliRunner().invoke(app, ["settings", name]).stdout
    assert "optimize.objective.veto.kappa" in printed
    assert "optimize.objective.gate.low" not in printed


def test_a_name_that_no_setting_has_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"optimize\.objective\.vito: no setting has this name"):
        CliRunner().invoke(app, ["settings", "optimize.objective.vito"], catch_exceptions=False)
