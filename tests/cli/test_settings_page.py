"""The reference of settings: every field of every class, also where a section is one of several kinds."""

from typing import Literal

import pytest
from pydantic import Field
from typer.testing import CliRunner

from tasks.cli.main import app
from tasks.cli.settings import FILES, sections
from tasks.errors import SettingsError
from tasks.settings import RunSettings
from tasks.settings.base import Kinds, Number, Settings


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
