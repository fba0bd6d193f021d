"""Reference by commands: every preset, data set and field of settings has a row, and pages are renewed."""

import pytest
from typer.testing import CliRunner

from tasks.cli.main import app
from tasks.cli.settings import FILES, sections
from tasks.settings import BENCHMARKS, PRESETS, TRAINING_SETS, RunSettings


@pytest.mark.parametrize(
    ("command", "names"), [("algorithms", {*PRESETS, "+ tis", "+ mis"}), ("data", {*BENCHMARKS, *TRAINING_SETS})]
)
def test_every_preset_has_a_row(command: str, names: set[str]) -> None:
    printed = CliRunner().invoke(app, [command]).stdout
    assert names <= {line[1:].split("  ")[0].strip() for line in printed.splitlines() if line[2:3].strip()}


def test_every_field_that_yaml_can_hold_has_a_row_that_names_its_kinds() -> None:
    rows = {entry.path: entry for section in sections(RunSettings) for entry in section.entries}
    assert {"seed", "evaluate.benchmarks[].source", "policy.tiny.heads"} <= rows.keys()
    outer = rows["optimize.objective.gate.outer_high"]
    assert (outer.type, outer.default) == ("number, above 0", "3")
    assert outer.meaning.startswith("With kind `ring`: ")
    kind = rows["optimize.objective.gate.kind"]
    assert (kind.type, kind.default) == ("`none` or `one_side` or `two_side` or `ring` or `centred`", "one_side")
    assert "`centred`: " in kind.meaning
    assert rows["optimize.objective.gate.second_moment.form"].type == "`winsorize` or `drop`"
    assert all(section.about for model, _ in FILES.values() for section in sections(model))


@pytest.mark.parametrize("name", ["optimize.objective.veto", "optimize.objective.veto.kappa"])
def test_the_command_prints_a_part(name: str) -> None:
    printed = CliRunner().invoke(app, ["settings", name]).stdout
    assert "optimize.objective.veto.kappa" in printed
    assert "optimize.objective.gate.low" not in printed
