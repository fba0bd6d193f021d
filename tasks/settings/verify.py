"""Settings of the verifier, one class for each kind of judging, told apart by ``kind``."""

import json
from typing import Any, Literal, Self

from pydantic import (
    Field,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError

from tasks.settings.base import OPERATIONAL, Number, Settings
from tasks.settings.code import CodeSettings
from tasks.settings.functions import find_function

VerifyKind = Literal["math", "code", "function"]


class VerifySettings(Settings):
    """How responses are judged: in worker processes, which can be killed.

    ``VerifySettings(...)`` and ``VerifySettings.parse(...)`` give an object of the class that belongs to ``kind``. A
    field of another kind is an unknown field.
    """

    kind: VerifyKind = "math"
    """How a response is judged: ``math`` compares the answer in its box by math-verify, ``code`` runs its program on
    tests in a sandbox, ``function`` calls a function of your own."""
    workers: int = Field(2, ge=1, json_schema_extra=OPERATIONAL)
    """Processes that judge side by side."""
    memory_mib: int = Field(2048, ge=256)
    """Address space of a worker."""
    max_failure_share: Number = Field(0.02, ge=0, le=1)
    """The stage stops when a larger share of its responses timed out or crashed the verifier."""

    def __new__(cls, *_: Any, **values: Any) -> Self:
        """An object of the class of ``kind``, which ``__init__`` then fills."""
        return super().__new__(_class_of(values) or cls if cls is VerifySettings else cls)  # type: ignore[return-value]

    @classmethod
    def title(cls) -> str:
        """Fields of every kind are those of ``verify``."""
        return "verify"

    def as_kind(self, kind: VerifyKind) -> "VerifySettings":
        """These settings for another kind of judging; fields that this kind does not have take their defaults."""
        if kind == self.kind:
            return self
        other = KINDS[kind]
        common = {name: value for name, value in self if name in other.model_fields and name != "kind"}
        return other(kind=kind, **common)

    @model_validator(mode="wrap")
    @classmethod
    def _by_kind(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Any:
        if cls is not VerifySettings or not isinstance(values, dict):
            return handler(values)
        found = _class_of(values)
        if found is None:
            return handler({"kind": values["kind"]})  # It is refused, whatever the other fields are.
        _refuse_fields_of_other_kinds(values, found)
        return found.__pydantic_validator__.validate_json(json.dumps(values, default=str))

    @model_serializer(mode="plain")
    def _all_fields(self) -> dict[str, Any]:
        # Also where a field is annotated with the base class, whose own serializer would leave out the kind's fields.
        return dict(self)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The schema of a kind; that of the base class has the fields of all kinds."""
        own = handler.resolve_ref_schema(handler(schema))
        if cls is VerifySettings:
            for kind in KINDS.values():
                of_kind = handler.resolve_ref_schema(handler(kind.__pydantic_core_schema__))
                own["properties"] = of_kind["properties"] | own["properties"]
        return own


class MathVerifySettings(VerifySettings):
    """Mathematics in a box, compared with the gold answer by math-verify."""

    kind: Literal["math"] = "math"
    deadline_seconds: Number = Field(2.0, gt=0)
    """CPU time for one answer; then its worker is killed and replaced."""
    max_answer_characters: int = Field(2000, ge=1)
    """A longer answer counts as no_answer."""


class CodeVerifySettings(VerifySettings):
    """A program, run on the tests of the gold answer in a sandbox."""

    kind: Literal["code"] = "code"
    code: CodeSettings = CodeSettings()


class FunctionVerifySettings(VerifySettings):
    """A function of the user's own: ``score(prompt, response, answer)`` gives the reward of a response."""

    kind: Literal["function"] = "function"
    source_digest: str = ""
    """SHA-256 of the function's file and of the files beside it that it imports. It is filled in when settings are
    read, so that an edited function judges anew; workers refuse to load another source."""
    function: str
    """The function as ``module:name``, such as ``my_rewards:score``. The module is importable or a file in the current
    folder."""
    deadline_seconds: Number = Field(2.0, gt=0)
    """CPU time for one call; then its worker is killed and replaced."""
    correct_from: Number = 1.0
    """The least reward with which a response counts as correct in accuracies and tallies. Learning sees the reward."""

    @model_validator(mode="before")
    @classmethod
    def _fill_digest(cls, values: Any) -> Any:
        if not isinstance(values, dict) or values.get("source_digest") or not isinstance(values.get("function"), str):
            return values
        try:
            return {**values, "source_digest": find_function(values["function"]).digest}
        except ValueError:
            return values  # The field itself is refused.

    @field_validator("function")
    @classmethod
    def _is_found(cls, value: str, info: ValidationInfo) -> str:
        if not info.data.get("source_digest"):
            find_function(value)
        return value


KINDS: dict[VerifyKind, type[VerifySettings]] = {
    "math": MathVerifySettings,
    "code": CodeVerifySettings,
    "function": FunctionVerifySettings,
}


def _refuse_fields_of_other_kinds(values: dict[str, Any], given: type[VerifySettings]) -> None:
    """Name the kinds that have a field which the given kind lacks.

    Raises:
        ValidationError: there is such a field.
    """
    errors = []
    for name in values:
        having = [kind for kind, one in KINDS.items() if name in one.model_fields]
        if having and name not in given.model_fields:
            kind = given.model_fields["kind"].default
            message = f"unknown field with kind {kind}; allowed: with kind {' or '.join(having)}"
            why = PydanticCustomError("other_kind", "{message}", {"message": message})
            errors.append(InitErrorDetails(type=why, loc=(name,), input=values[name]))
    if errors:
        raise ValidationError.from_exception_data("verify", errors)


def _class_of(values: dict[str, Any]) -> type[VerifySettings] | None:
    """The class of the kind in plain values; None where no kind has this name."""
    kind = values.get("kind", "math")
    return KINDS.get(kind) if isinstance(kind, str) else None  # type: ignore[call-overload]
