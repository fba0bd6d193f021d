"""The paper's runs, as configs/paper/table.yaml has them: every value once, with where it comes from."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, reduce
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from tasks.settings import RunSettings, Settings
from tools import ROOT

FOLDER = ROOT / "configs/paper"
TABLE = FOLDER / "table.yaml"


@dataclass(frozen=True)
class Entry:
    """A setting in a layer of the table."""

    setting: str
    """The whole name, as in ``optimize.learning_rate``; or a section, for what is in it."""
    tag: str
    reason: str
    runs: Mapping[str, Sequence[str]]
    """Names by axis; an axis that is not there stands for all of its names."""
    given: bool
    """There is a value, which files state."""
    value: Any = None


@dataclass(frozen=True)
class PaperRun:
    """A model, trained by a system, on some hardware."""

    model: str
    system: str
    hardware: str

    @property
    def path(self) -> Path:
        return FOLDER / self.hardware / f"{self.model}-{self.system.replace('_', '-')}.yaml"

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """The entries that hold for it, by setting."""
        own = {"model": self.model, "system": self.system, "hardware": self.hardware}
        return {one.setting: one for one in layers() if all(own[axis] in names for axis, names in one.runs.items())}

    @cached_property
    def settings(self) -> RunSettings:
        given = (nested(one.setting.split("."), one.value) for one in self.entries.values() if one.given)
        values: dict[str, Any] = {}
        for one in given:
            values = RunSettings.merge(values, one)
        return RunSettings.parse(values)


@cache
def table() -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load(TABLE.read_text())
    return values


@cache
def layers() -> list[Entry]:
    """Every entry, in the table's order."""
    found = []
    for layer in table()["layers"]:
        runs = {axis: names for axis, names in layer.items() if axis != "settings"}
        for axis, names in runs.items():
            if unknown := set(names) - set(table()["axes"][axis]):
                raise ValueError(f"{TABLE.name}: {axis} {', '.join(unknown)} is not in axes.{axis}")
        found += [entry(setting, fields, runs) for setting, fields in layer["settings"].items()]
    return found


def entry(setting: str, fields: Mapping[str, Any], runs: Mapping[str, Sequence[str]]) -> Entry:
    """A setting's entry from its fields in the table: a tag with a reason, and perhaps a value."""
    tags = [name for name in fields if name != "value"]
    if len(tags) != 1 or tags[0] not in table()["tags"]:
        raise ValueError(f"{TABLE.name}: {setting} has {tags}; allowed: one of {', '.join(table()['tags'])}")
    return Entry(setting, tags[0], fields[tags[0]], runs, "value" in fields, fields.get("value"))


@cache
def runs() -> list[PaperRun]:
    """Hardware by hardware."""
    axes = table()["axes"]
    every = product(axes["hardware"], axes["model"], axes["system"])
    return [PaperRun(model, system, hardware) for hardware, model, system in every]


def nested(place: Sequence[str], value: Any) -> dict[str, Any]:
    """``a, b`` and 1 as ``{a: {b: 1}}``."""
    inner, *outer = reversed(place)
    return reduce(lambda found, key: {key: found}, outer, {inner: value})


def leaves(values: Mapping[str, Any], name: str = "") -> dict[str, Any]:
    """Every setting that is no section, by its whole name, in the order of the models' fields."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        inner = f"{name}.{key}".removeprefix(".")
        found |= leaves(value, inner) if isinstance(value, dict) and value else {inner: value}
    return found


def covers(setting: str, leaf: str) -> bool:
    """Return True if an entry of that name speaks of a setting."""
    return f"{leaf}.".startswith(f"{setting}.")


def ordered(names: Iterable[str]) -> list[str]:
    """Entries' names in the order of the models' fields.

    Raises:
        ValueError: a name is that of no setting.
    """
    places = {name: next((i for i, leaf in enumerate(_fields()) if covers(name, leaf)), None) for name in names}
    if unknown := [name for name, place in places.items() if place is None]:
        raise ValueError(f"{TABLE.name}: {', '.join(unknown)}: no such setting")
    return sorted(places, key=lambda name: places[name] or 0)


@cache
def _fields() -> list[str]:
    return list(leaves(reduce(Settings.merge, (run.settings.model_dump(mode="json") for run in runs()))))
