"""Base of the pydantic models that Flyte passes between tasks."""

from copy import deepcopy
from typing import Any

from pydantic import BaseModel

_SCHEMAS: dict[tuple[object, ...], dict[str, Any]] = {}


class FlyteModel(BaseModel):
    """A model that caches its JSON schema: Flyte asks for it at every input of every node of a workflow."""

    @classmethod
    def model_json_schema(cls, *choices: Any, **named: Any) -> dict[str, Any]:
        """See pydantic."""
        key = (cls, choices, tuple(named.items()))
        if key not in _SCHEMAS:
            _SCHEMAS[key] = super().model_json_schema(*choices, **named)
        return deepcopy(_SCHEMAS[key])
