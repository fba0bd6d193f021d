"""Every preset's line in docs/objective.md holds all of its settings."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from docs.tools.presets import line
from tasks.errors import SettingsError
from tasks.settings import PRESETS, ObjectiveSettings


def leaves(row: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in row.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name)


def without(row: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """The row with one field at its default."""
    changed = deepcopy(row)
    section = changed
    for name in path[:-1]:
        section = section[name]
    del section[path[-1]]
    return changed


FIELDS = [
    pytest.param(name, path, id=f"{name}-{'.'.join(path)}") for name in PRESETS for path in leaves(PRESETS[name].row)
]


@pytest.mark.parametrize(("name", "path"), FIELDS)
def test_a_line_shows_every_setting_of_its_preset(name: str, path: tuple[str, ...]) -> None:
    own = ObjectiveSettings.parse(PRESETS[name].row)
    try:
        other = ObjectiveSettings.parse(without(PRESETS[name].row, path))
    except SettingsError:
        return  # The field cannot be left out of this row.
    assert own == other or line(own) != line(other)


def test_presets_that_differ_have_lines_that_differ() -> None:
    settings = {name: ObjectiveSettings.parse(preset.row) for name, preset in PRESETS.items()}
    lines = {line(one) for one in settings.values()}
    assert len(lines) == len({one.model_dump_json() for one in settings.values()})


@pytest.mark.parametrize(
    ("row", "part"),
    [
        ({"mismatch": {"kind": "mask"}}, "mask(e, 0.5, 2) * A"),
        ({"denominator": "kept"}, "tokens, of kept tokens"),
        ({"ratio": {"level": "sequence_product", "reference": "proximal"}}, "one_side(product(r / q), 0.8, 1.2)"),
        ({"veto": {"scope": "suffix", "window": 8, "direction": "both", "kappa": 0.5}}, "r outside 0.5 to 2, window=8"),
        ({"regulariser": {"kind": "reference_kl", "coefficient": 0.01}}, "0.01 * k3 of the KL to the reference"),
    ],
)
def test_settings_that_no_preset_has_are_shown_too(row: dict[str, Any], part: str) -> None:
    assert part in " | ".join(line(ObjectiveSettings.parse(row)))
