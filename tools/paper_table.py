"""The paper's runs, read from configs/paper/table.yaml, which has every value once, with its source."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, reduce
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from tasks.settings import RunSettings, Settings
from tasks.settings.base import flat
from tools import ROOT

FOLDER = ROOT / "configs/paper"
TABLE = FOLDER / "table.yaml"


@dataclass(frozen=True)
class Entry:
    """A setting in a layer of the table."""

    setting: str
    """Full name of a setting, as in ``optimize.learning_rate``, or of a section for all settings in it."""
    tag: str
    reason: str
    runs: Mapping[str, Sequence[str]]
    """Names by axis. A missing axis means all names of this axis."""
    given: bool
    """True if the entry has a value, which the files of its runs state."""
    value: Any = None


@dataclass(frozen=True)
class PaperRun:
    """A run of the paper: a model that a system trains on some hardware."""

    model: str
    system: str
    hardware: str

    @property
    def path(self) -> Path:
        return FOLDER / self.hardware / f"{self.model}-{self.system.replace('_', '-')}.yaml"

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """Entries of this run by setting."""
        axes = {"model": self.model, "system": self.system, "hardware": self.hardware}
        return {one.setting: one for one in layers() if all(axes[axis] in names for axis, names in one.runs.items())}

    @cached_property
    def settings(self) -> RunSettings:
        values: dict[str, Any] = {}
        for one in [found for found in self.entries.values() if found.given]:
            change: Any = one.value
            for key in reversed(one.setting.split(".")):
                change = {key: change}
            values = RunSettings.merge(values, change)
        return RunSettings.parse(values)


@cache
def table() -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load(TABLE.read_text())
    return values


@cache
def layers() -> list[Entry]:
    """Return all entries in the order of the table."""
    entries = []
    for layer in table()["layers"]:
        runs = {axis: names for axis, names in layer.items() if axis != "settings"}
        for axis, names in runs.items():
            if unknown := set(names) - set(table()["axes"][axis]):
                raise ValueError(f"{TABLE.name}: {axis} {', '.join(unknown)} is not in axes.{axis}")
        entries += [entry(setting, fields, runs) for setting, fields in layer["settings"].items()]
    return entries


def entry(setting: str, fields: Mapping[str, Any], runs: Mapping[str, Sequence[str]]) -> Entry:
    """Return the entry of a setting from its fields in the table: a tag with a reason, and an optional value."""
    tags = [name for name in fields if name != "value"]
    if len(tags) != 1 or tags[0] not in table()["tags"]:
        raise ValueError(f"{TABLE.name}: {setting} has {tags}; allowed: one of {', '.join(table()['tags'])}")
    return Entry(setting, tags[0], fields[tags[0]], runs, "value" in fields, fields.get("value"))


@cache
def runs() -> list[PaperRun]:
    """Return all runs, in the order of hardware, model and system."""
    axes = table()["axes"]
    every = product(axes["hardware"], axes["model"], axes["system"])
    return [PaperRun(model, system, hardware) for hardware, model, system in every]


def covers(setting: str, leaf: str) -> bool:
    """Return whether an entry with the name ``setting`` is about the setting ``leaf``."""
    return f"{leaf}.".startswith(f"{setting}.")


def ordered(names: Iterable[str]) -> list[str]:
    """Return names of entries in the order of the models' fields.

    Raises:
        ValueError: there is no setting with one of the names.
    """
    places = {name: next((i for i, leaf in enumerate(_fields()) if covers(name, leaf)), None) for name in names}
    if unknown := [name for name, place in places.items() if place is None]:
        raise ValueError(f"{TABLE.name}: {', '.join(unknown)}: no such setting")
    return sorted(places, key=lambda name: places[name] or 0)


@cache
def _fields() -> list[str]:
    return list(flat(reduce(Settings.merge, (run.settings.model_dump(mode="json") for run in runs()))))
