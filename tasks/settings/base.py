"""Base of all settings: strictness, numbers as YAML writes them, and one readable message per mistake."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from datetime import datetime
from inspect import isclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, get_args

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic_core import CoreSchema, ErrorDetails, InitErrorDetails, PydanticCustomError

from tasks.errors import DeploymentError, SettingsError

WHOLE_RUN = "settings"
"""The name of a whole run's settings, whose fields are named without a prefix."""
STORES = "a folder, or s3://bucket/prefix"
"""Places of a store, for messages."""
DAY = "%d %b %Y"
"""Format of a day, as in ``26 Jul 2024``."""
OPERATIONAL = ("operation", "store", "workers")
"""Names of the fields that change no result, and so enter no key. Manifests hold plain values: a name is enough."""
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_BUCKET = re.compile(r"[A-Za-z0-9._-]{1,255}|arn:.+")
"""Buckets as clients take them; servers allow less."""
_SCHEMAS: dict[tuple[object, ...], dict[str, Any]] = {}


def in_bucket(text: str) -> bool:
    """Return True if a text names a bucket, or something in one."""
    bucket, _, _ = text.removeprefix("s3://").partition("/")
    return text.startswith("s3://") and _BUCKET.fullmatch(bucket) is not None


def is_place(text: str) -> bool:
    """Return True if a text names something here, or in a bucket."""
    return in_bucket(text) or (bool(text.strip()) and _ADDRESS.match(text) is None)


def _number(value: object) -> object:
    # YAML 1.1 reads 1e-4 as a string: only 1.0e-4 is a float to it.
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _day(value: str) -> str:
    try:
        return datetime.strptime(value, DAY).strftime(DAY)
    except ValueError:
        raise ValueError("allowed: a day as in 26 Jul 2024") from None


def _text(holds: Callable[[str], bool], allowed: str) -> AfterValidator:
    def check(text: str) -> str:
        if not holds(text):
            raise ValueError(f"allowed: {allowed}")
        return text

    return AfterValidator(check)


Number = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
"""A finite float that may be written as ``1e-4`` in YAML."""
Day = Annotated[str, AfterValidator(_day)]
"""A day, written so that YAML reads it as a text, and as chat templates write it."""
Template = Annotated[str, _text(lambda text: "{prompt}" in text, "a text that contains {prompt}")]
"""A text in which ``{prompt}`` stands for a prompt."""
StorePlace = Annotated[str, _text(is_place, STORES)]
FilePlace = Annotated[str, _text(is_place, "a file or a folder, here or at s3://bucket/key")]
ModelPlace = Annotated[
    str, _text(is_place, "a folder, s3://bucket/prefix, or the name of a model on the Hugging Face hub")
]


def result_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as plain values, without the fields that change no result."""
    return {
        name: result_values(value) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if name not in OPERATIONAL
    }


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings as one level, with names as in ``gate.low``."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return found


def read_packaged_yaml(module: str, name: str) -> Any:
    """Return the values of the YAML file ``name`` beside a module of the package, given by its ``__file__``.

    Raises:
        DeploymentError: the file is missing, as where modules alone were copied to a pod.
    """
    path = Path(module).with_name(name)
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DeploymentError(
            f"{path} is missing: the code here is a part of the project. pyflyte run --remote brings all of it along "
            "with --copy all; elsewhere install the package again."
        ) from None


def read_yaml(path: Path, keys: Iterable[str], example: str, name: str = "") -> dict[str, Any]:
    """Return the mapping in a YAML file; its keys, an example and a name are for messages.

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


class FlyteModel(BaseModel):
    """A model that caches its JSON schema: Flyte asks for it at every input of every node of a workflow."""

    @classmethod
    def model_json_schema(cls, *choices: Any, **named: Any) -> dict[str, Any]:
        """See pydantic."""
        key = (cls, choices, tuple(named.items()))
        if key not in _SCHEMAS:
            _SCHEMAS[key] = super().model_json_schema(*choices, **named)
        return deepcopy(_SCHEMAS[key])


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

    def result_values(self) -> dict[str, Any]:
        """Plain values of all fields that can change a result."""
        return result_values(self.model_dump(mode="json"))

    def one_of(self, *names: str) -> None:
        """Raise ValueError unless exactly one of several fields is given."""
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) != 1:
            *others, last = names
            allowed = f"exactly one of {', '.join(others)} and {last}"
            raise ValueError(f"{' and '.join(given) or 'none'} given; allowed: {allowed}")

    @classmethod
    def title(cls) -> str:
        """The name of these settings as the user writes it: ``RolloutSettings`` is ``rollout``."""
        return cls.__name__.removesuffix("Settings").lower()

    @classmethod
    def merge(cls, values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return plain values with changes merged in, section by section.

        The fields of this class say which sections have kinds (see ``Kinds``); ``Settings`` itself knows of none.
        """
        merged = dict(values)
        for name, new in changes.items():
            old, field = merged.get(name), cls.model_fields.get(name)
            if isinstance(old, Mapping) and isinstance(new, Mapping):
                types = (field.annotation, *get_args(field.annotation)) if field else ()
                section = next((one for one in types if isclass(one) and issubclass(one, Settings)), Settings)
                merged[name] = section.merge(old, new)
            else:
                merged[name] = new
        return merged


class Kinds(Settings):
    """Base of settings that come in several kinds, each a subclass with fields of its own.

    The field ``tag`` tells the kinds apart: a subclass narrows it to the values that it stands for. Plain values, and
    the constructor of the base class, give an object of the class that belongs to their tag. A subclass may have
    subclasses that another tag tells apart. A field that only other kinds have is an unknown field.
    """

    tag: ClassVar[str] = "kind"

    def __new__(cls, *_: Any, **values: Any) -> Any:
        """Return an object of the class of the kind, which ``__init__`` then fills."""
        found = cls.of_kind(values)
        return super().__new__(cls) if found is None or found is cls else found.__new__(found, **values)

    @classmethod
    def kinds(cls) -> dict[str, type[Self]]:
        """Return the class of every value of the tag; nothing for a class without kinds."""
        return {value: one for one in cls.__subclasses__() for value in get_args(one.model_fields[cls.tag].annotation)}

    @classmethod
    def of_kind(cls, values: Mapping[str, Any]) -> type[Self] | None:
        """Return the class for the tag in plain values; the class itself without kinds, None for an unknown tag."""
        kinds, name = cls.kinds(), values.get(cls.tag, cls.model_fields[cls.tag].default)
        return (kinds.get(name) if isinstance(name, str) else None) if kinds else cls

    @classmethod
    def leaves(cls) -> list[type[Self]]:
        """Return the classes of all kinds, of the kinds of a kind, and so on; the class itself without kinds."""
        return [leaf for one in dict.fromkeys(cls.kinds().values()) for leaf in one.leaves()] or [cls]

    @classmethod
    def all_fields(cls) -> set[str]:
        """Return the names of the fields of all kinds."""
        return {name for one in cls.leaves() for name in one.model_fields}

    @classmethod
    def title(cls) -> str:
        """The name of the base class: fields of every kind have it."""
        base = next(one for one in cls.__mro__ if Kinds in one.__bases__)
        return base.__name__.removesuffix("Settings").lower()

    @classmethod
    def merge(cls, values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return plain values with changes merged in; a new kind keeps of the values only the fields that it has."""
        found = cls.of_kind({**values, **changes})
        if found is None or found is cls:
            return super().merge(values, changes)
        if cls.tag in changes:
            lost = cls.all_fields() - found.all_fields()
            values = {name: value for name, value in values.items() if name not in lost}
        return found.merge(values, changes)

    @model_validator(mode="wrap")
    @classmethod
    def _by_kind(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Any:
        if not isinstance(values, dict) or (found := cls.of_kind(values)) is cls:
            return handler(values)
        if found is None:
            errors = {cls.tag: f"should be {_join_or(map(repr, cls.kinds()))}"}
        else:
            kind, errors = values.get(cls.tag, cls.model_fields[cls.tag].default), {}
            for name in [name for name in values if name in cls.all_fields() - found.all_fields()]:
                having = _join_or(kind for kind, one in cls.kinds().items() if name in one.all_fields())
                errors[name] = f"unknown field with {cls.tag} {kind}; allowed: with {cls.tag} {having}"
            if not errors:
                return found.__pydantic_validator__.validate_json(json.dumps(values, default=str))
        details = [
            InitErrorDetails(
                type=PydanticCustomError("kind", "{text}", {"text": text}), loc=(name,), input=values[name]
            )
            for name, text in errors.items()
        ]
        raise ValidationError.from_exception_data(cls.__name__, details)

    @model_serializer(mode="plain")
    def _all_fields(self) -> dict[str, Any]:
        # Also where a field is annotated with the base class, whose own serializer would leave out the kind's fields.
        return dict(self)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema of a kind; that of a base class has the fields of all kinds."""
        own = handler.resolve_ref_schema(handler(schema))
        for kind in cls.leaves() if cls.kinds() else ():
            of_kind = handler.resolve_ref_schema(handler(kind.__pydantic_core_schema__))
            own["properties"] = of_kind["properties"] | own["properties"]
        return own


def _join_or(values: Iterable[str]) -> str:
    *others, last = values
    return f"{', '.join(others)} or {last}" if others else last


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
