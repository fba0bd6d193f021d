"""What all settings share: strictness, numbers as YAML writes them, and one readable message per mistake."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from tasks.errors import SettingsError
from tasks.model import FlyteModel


def _number(value: object) -> object:
    # YAML 1.1 reads 1e-4 as a string: only 1.0e-4 is a float to it.
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


WHOLE_RUN = "settings"
"""The name of a whole run's settings, whose fields are named without a prefix."""

Number = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
"""A finite float that may be written as ``1e-4`` in YAML."""


DAY = "%d %b %Y"
"""How a day is written, as in ``26 Jul 2024``."""


def _day(value: str) -> str:
    try:
        return datetime.strptime(value, DAY).strftime(DAY)
    except ValueError:
        raise ValueError("allowed: a day as in 26 Jul 2024") from None


Day = Annotated[str, AfterValidator(_day)]
"""A day, written so that YAML reads it as a text, and as chat templates write it."""


OPERATIONAL: dict[str, Any] = {"operational": True}
"""Marks a field that changes no result, and so enters no key (``json_schema_extra`` of a Field)."""
_OPERATIONAL_NAMES = ("operation", "store", "workers")
"""The names of all fields with that mark; a test compares."""


def determining(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as plain values, without the fields that change no result."""
    return {
        name: determining(value) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if name not in _OPERATIONAL_NAMES
    }


def read_yaml(path: Path, keys: Iterable[str], example: str, name: str = "") -> dict[str, Any]:
    """The mapping in a YAML file.

    Args:
        path: of the file.
        keys: that it may have, for the message when it holds no mapping.
        example: of such a file.
        name: what the message begins with.

    Raises:
        SettingsError: the file cannot be read, or holds something else.
    """
    where = f"{name}: {path}" if name else str(path)
    try:
        values = yaml.safe_load(path.read_text())
    except OSError as error:
        raise SettingsError(f"{where}: {error.strerror}. Name a YAML file such as {example}.") from None
    except yaml.YAMLError as error:
        raise SettingsError(f"{where}: not YAML: {error}") from None
    if not isinstance(values, dict):
        raise SettingsError(f"{where}: holds no settings; allowed: the keys {', '.join(keys)}.")
    return values


class Settings(FlyteModel):
    """Base of all settings: strict types, no unknown fields, immutable.

    Raises:
        SettingsError: from ``parse`` and ``model_validate_json``; names each field, its value and what is allowed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @classmethod
    def parse(cls, values: Mapping[str, Any], name: str = "") -> Self:
        """Settings from plain values (as YAML or JSON gives them); ``name`` prefixes the fields in messages."""
        try:
            return super().model_validate_json(json.dumps(values, default=str))
        except ValidationError as error:
            raise SettingsError(describe(error, name or cls.title())) from None

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **_: Any) -> Self:
        """The door that Flyte uses for inputs on the command line and between tasks."""
        return cls.parse(json.loads(json_data))

    def determining(self) -> dict[str, Any]:
        """Plain values of all fields that can change a result."""
        values = self.model_dump(mode="json")
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if field.json_schema_extra == OPERATIONAL:
                del values[name]
            elif isinstance(value, Settings):
                values[name] = value.determining()
        return values

    @classmethod
    def title(cls) -> str:
        """The name of these settings as the user writes it: ``RolloutSettings`` is ``rollout``."""
        return cls.__name__.removesuffix("Settings").lower()


def describe(error: ValidationError, name: str) -> str:
    """One line per mistake: the field, the value, what is allowed."""
    return "\n".join(_describe_one(details, name) for details in error.errors())


def _describe_one(details: ErrorDetails, name: str) -> str:
    parts = [str(part) for part in details["loc"]]
    place = ".".join(parts if name == WHOLE_RUN else [name, *parts])
    kind, value = details["type"], details["input"]
    if kind == "extra_forbidden":
        return f"{place}: unknown field (value {value!r}). Remove it or correct its spelling."
    if kind == "missing":
        return f"{place}: missing. This field has no default and must be given."
    message = details["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if not place:
        return message
    shown = f" got {value!r};" if not isinstance(value, dict) else ""
    return f"{place}:{shown} {message}"
