"""Named rows of objective settings: every algorithm, and the modifiers that multiply any of them, from presets.yaml."""

from dataclasses import dataclass
from typing import Any

from tasks.settings.base import read_packaged_yaml
from tasks.settings.objective import ObjectiveSettings


@dataclass(frozen=True)
class Preset:
    """A row: what differs from ObjectiveSettings' defaults."""

    row: dict[str, Any]
    source: str
    chosen: str = ""
    """Choices that were made here where the source leaves them open."""


def _preset(source: str, chosen: str = "", **row: Any) -> Preset:
    return Preset(row, source, chosen)


_FILE: dict[str, Any] = read_packaged_yaml(__file__, "presets.yaml")
PRESETS: dict[str, Preset] = {name: _preset(**fields) for name, fields in _FILE["presets"].items()}
"""Every algorithm; what a row does not name has the default of ObjectiveSettings."""
MODIFIERS: dict[str, Preset] = {name: _preset(**fields) for name, fields in _FILE["modifiers"].items()}
"""Corrections for an engine that differs from the trainer."""


def resolve(preset: str, modifier: str = "none") -> dict[str, Any]:
    """Return the row of a preset with a modifier."""
    return ObjectiveSettings.merge(PRESETS[preset].row, MODIFIERS[modifier].row)
