"""A section of a run's settings as somebody wrote it, for workflows that take overrides of single fields beside it."""

import json
from typing import Any, Generic, Self, TypeVar

from pydantic import ConfigDict

from tasks.errors import SettingsError
from tasks.model import FlyteModel
from tasks.settings.base import Settings

Section = TypeVar("Section", bound=Settings)


class Given(FlyteModel, Generic[Section]):
    """The plain values of a section; they are checked when overrides are merged in (``RunSettings.merged``).

    Flyte makes an input before any task runs. Checked there, a file would be refused that its overrides make right.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **_: Any) -> Self:
        """The door that Flyte uses for inputs on the command line and between tasks."""
        values = json.loads(json_data)
        if not isinstance(values, dict):
            raise SettingsError(f"{cls._section().title()}: got {values!r}; allowed: fields with values")
        return super().model_validate(values)

    @classmethod
    def model_json_schema(cls, *choices: Any, **named: Any) -> dict[str, Any]:
        """Return the schema of the section, for forms that start a workflow."""
        return cls._section().model_json_schema(*choices, **named)

    @classmethod
    def _section(cls) -> type[Settings]:
        section: type[Settings] = cls.__pydantic_generic_metadata__["args"][0]
        return section
