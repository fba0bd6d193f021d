"""Named rows of objective settings from presets.yaml: presets (algorithms), and modifiers that multiply any of them."""

from dataclasses import dataclass
from typing import Any

from tasks.settings.base import read_packaged_yaml
from tasks.settings.objective import ObjectiveSettings


@dataclass(frozen=True)
class Preset:
    """A named row of settings of the objective."""

    row: dict[str, Any]
    """Fields whose values differ from the defaults of ObjectiveSettings."""
    source: str
    chosen: str = ""
    """Choices that were made here where the source leaves them open."""


def _preset(source: str, chosen: str = "", **row: Any) -> Preset:
    return Preset(row, source, chosen)


_FILE: dict[str, Any] = read_packaged_yaml(__file__, "presets.yaml")
PRESETS: dict[str, Preset] = {name: _preset(**fields) for name, fields in _FILE["presets"].items()}
"""Presets by name; fields that are not in a row have the defaults of ObjectiveSettings."""
MODIFIERS: dict[str, Preset] = {name: _preset(**fields) for name, fields in _FILE["modifiers"].items()}
"""Modifiers by name: corrections for an engine whose probabilities differ from the trainer's."""


def resolve(preset: str, modifier: str) -> dict[str, Any]:
    """Return the row of a preset, with the row of a modifier merged in."""
    return ObjectiveSettings.merge(PRESETS[preset].row, MODIFIERS[modifier].row)
