"""The reference of settings: every field of every class, also where a section is one of several kinds."""

from typing import Annotated, Literal

import pytest
from pydantic import Field
from typer.testing import CliRunner

from tasks.cli.main import app
from tasks.cli.settings import FILES, sections
from tasks.errors import SettingsError
from tasks.settings import RunSettings
from tasks.settings.base import Number, Settings


class RingSettings(Settings):
    """Pass inside the interval and far outside of it."""

    kind: Literal["ring"] = "ring"
    outer_high: Number = Field(3.0, gt=1)
    """Ratio above which tokens pass again."""


class OpenSettings(Settings):
    """Let every token pass."""

    kind: Literal["none"] = "none"


class ParentSettings(Settings):
    """Fields that others inherit."""

    gate: Annotated[RingSettings | OpenSettings, Field(discriminator="kind")] = OpenSettings()
    """Which tokens pass."""


class WholeSettings(ParentSettings):
    """A file with a union."""

    others: list[Annotated[OpenSettings | RingSettings, Field(discriminator="kind")]] = Field([], max_length=2)
    maybe: RingSettings | None = None


def test_a_section_of_several_kinds_is_shown_kind_by_kind() -> None:
    found = {section.title: section for section in sections(WholeSettings)}
    assert set(found) == {"`top level`", "`gate`, `kind: ring`", "`gate`, `kind: none`"}
    ring = found["`gate`, `kind: ring`"]
    assert ring.about == "Pass inside the interval and far outside of it."
    assert [(one.path, one.type, one.default, one.meaning) for one in ring.entries][1] == (
        "gate.outer_high",
        "number, above 1",
        "3",
        "Ratio above which tokens pass again.",
    )
    gate, others, maybe = found["`top level`"].entries
    assert gate.meaning == "Which tokens pass."
    assert "(#gate-kind-ring) or " in gate.type
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
