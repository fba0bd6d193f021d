"""Base classes of all settings: strict types, numbers in YAML's notation, and one readable message per mistake."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
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

from tasks.errors import DataError, DeploymentError, SettingsError

WHOLE_RUN = "settings"
"""Title of the settings of a whole run, whose fields have no prefix in messages."""
STORES = "a folder, or s3://bucket/prefix"
"""Allowed values of a store, for messages."""
DAY = "%d %b %Y"
"""Format of a day, as in ``26 Jul 2024``."""
OPERATIONAL = (
    *("operation", "store", "workers"),
    *("max_failure_share", "max_logp_mismatch", "max_missing_share", "max_dropped_share", "max_unusable_share"),
)
"""Names of the fields that change no result and are left out of cache keys: those that decide where steps run, and
limits that can only stop a step. The name alone decides, in settings of every class."""
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_BUCKET = re.compile(r"[A-Za-z0-9._-]{1,255}|arn:.+")
"""Names of buckets that S3 clients accept; servers allow fewer."""


def in_bucket(text: str) -> bool:
    """Return True if a text is the ``s3://`` address of a bucket, or of a key in it."""
    bucket, _, _ = text.removeprefix("s3://").partition("/")
    return text.startswith("s3://") and _BUCKET.fullmatch(bucket) is not None


def is_place(text: str) -> bool:
    """Return True if a text is a path on this machine or an ``s3://`` address."""
    return in_bucket(text) or (bool(text.strip()) and _ADDRESS.match(text) is None)


def local_path(place: str | Path) -> Path:
    """Return the path of a place on this machine, in which ``~`` stands for a home.

    Raises:
        DataError: the place begins with the name of a user that this machine does not know.
    """
    try:
        return Path(place).expanduser()
    except RuntimeError:
        raise DataError(f"{str(place)!r}: this machine knows no such user. Name the place without ~.") from None


def _number(value: object) -> object:
    # YAML 1.1 reads 1e-4 as a string, and only 1.0e-4 as a float.
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _day(value: str) -> str:
    try:
        return datetime.strptime(value, DAY).strftime(DAY)
    except ValueError:
        raise ValueError("allowed: a day as in 26 Jul 2024") from None


def _text(is_allowed: Callable[[str], bool], allowed: str) -> AfterValidator:
    def check(text: str) -> str:
        if not is_allowed(text):
            raise ValueError(f"allowed: {allowed}")
        return text

    return AfterValidator(check)


Number = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
"""A finite float that may be written as ``1e-4`` in YAML."""
Day = Annotated[str, AfterValidator(_day)]
"""A day in the form that chat templates write; YAML reads this form as a string."""
Template = Annotated[str, _text(lambda text: "{prompt}" in text, "a text that contains {prompt}")]
"""A text in which ``{prompt}`` stands for a prompt."""
StorePlace = Annotated[str, _text(is_place, STORES)]
FilePlace = Annotated[str, _text(is_place, "a file or a folder, here or at s3://bucket/key")]
ModelPlace = Annotated[
    str, _text(is_place, "a folder, s3://bucket/prefix, or the name of a model on the Hugging Face hub")
]


def result_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as plain values, without the fields that change no result."""
    return {
        name: result_values(value) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if name not in OPERATIONAL
    }


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings as one flat dictionary, with names such as ``gate.low``."""
    flattened: dict[str, Any] = {}
    for name, value in settings.items():
        flattened |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return flattened


def names_that_differ(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the values in which flat settings differ; a missing value equals null."""
    names = dict.fromkeys(name for values in settings for name in values)
    return [name for name in names if any(values.get(name) != settings[0].get(name) for values in settings)]


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, which refuses a repeated key; the safe loader would drop the first of the two values."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        lines: dict[Any, int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in lines:
                    problem = f"the key {key.value!r} is in line {lines[key.value]} already; remove one of them"
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                lines[key.value] = key.start_mark.line + 1
        return node


def load_yaml(text: str) -> Any:
    """Return the value that a text in YAML has; raise ``yaml.YAMLError`` if it is not YAML or repeats a key."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a subclass of the safe loader
    except RecursionError:
        raise yaml.YAMLError("lists or dictionaries are nested too deeply") from None


def read_packaged_yaml(module: str, name: str) -> Any:
    """Return the content of the YAML file ``name`` in the folder of a module; ``module`` is its ``__file__``.

    Raises:
        DeploymentError: the file is missing, for example because only modules were copied to a pod.
    """
    path = Path(module).with_name(name)
    try:
        # Every command reads these files when it starts, and PyYAML may be built without its faster loader in C.
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return yaml.load(path.read_text(encoding="utf-8"), loader)  # noqa: S506 - both are safe loaders
    except FileNotFoundError:
        raise DeploymentError(
            f"{path} is missing: this copy of the project is incomplete. pyflyte run --remote copies all of it with "
            "--copy all; elsewhere install the package again."
        ) from None


def read_yaml(path: str | Path, keys: Iterable[str], example: str, name: str = "") -> dict[str, Any]:
    """Return the dictionary in a YAML file; messages show ``keys``, ``example`` and ``name``.

    Raises:
        SettingsError: the file cannot be read, or does not hold a dictionary.
    """
    where = f"{name}: {path}" if name else str(path)
    try:
        values = load_yaml(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{where}: {error.strerror}. Name a YAML file such as {example}.") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{where}: not a text in UTF-8. Name a YAML file such as {example}.") from None
    except yaml.YAMLError as error:
        raise SettingsError(f"{where}: not YAML: {error}") from None
    if not isinstance(values, dict):
        raise SettingsError(f"{where}: holds no settings; allowed: the keys {', '.join(keys)}.")
    return values


class FlyteModel(BaseModel):
    """An immutable model, which Flyte's tasks can take and return."""

    model_config = ConfigDict(frozen=True)


class Settings(FlyteModel):
    """Base of all settings: strict types, no unknown fields, immutable.

    Raises:
        SettingsError: ``parse`` or ``model_validate_json`` got wrong values. The message names each field, its value
            and what is allowed.
    """

    # Commands start faster, because they use few of the models.
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    @classmethod
    def parse(cls, values: Mapping[str, Any], name: str = "") -> Self:
        """Return settings from plain values, as YAML or JSON has them; ``name`` prefixes the fields in messages."""
        try:
            return super().model_validate_json(json.dumps(values, default=str))
        except ValidationError as error:
            raise SettingsError(describe(error, name or cls.title(), cls)) from None

    @classmethod
    def parse_stored(cls, values: Mapping[str, Any], place: object) -> Self:
        """Return settings from plain values in a manifest; messages begin with ``place``, a store or an artifact.

        Raises:
            DataError: this code does not read them, because another version of it wrote them.
        """
        try:
            return cls.parse(values)
        except SettingsError as error:
            first, *others = error.message.splitlines()
            raise DataError(
                f"{place}: settings that another version of the code wrote, and this one does not read: {first}"
                f"{f', and {len(others)} more' if others else ''}. Start the run again with this code, or use the code "
                "of the run's commit, which `mu-grpo lineage` shows."
            ) from None

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **_: Any) -> Self:
        """Return settings from JSON; Flyte calls this for inputs on the command line and between tasks."""
        return cls.parse(json.loads(json_data))

    def result_values(self) -> dict[str, Any]:
        """Return the plain values of all fields that can change a result."""
        return result_values(self.model_dump(mode="json"))

    def one_of(self, *names: str) -> None:
        """Raise ValueError unless exactly one of the named fields is given."""
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) != 1:
            *others, last = names
            allowed = f"exactly one of {', '.join(others)} and {last}"
            raise ValueError(f"{' and '.join(given) or 'none'} given; allowed: {allowed}")

    @classmethod
    def title(cls) -> str:
        """Return the name of these settings as users write it: ``rollout`` for ``RolloutSettings``."""
        return cls.__name__.removesuffix("Settings").lower()

    @classmethod
    def merge(cls, values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return plain values with changes merged in, section by section.

        The types of the fields of this class say which sections have kinds (see ``Kinds``).
        """
        merged = dict(values)
        for name, new in changes.items():
            old = merged.get(name)
            if isinstance(old, Mapping) and isinstance(new, Mapping):
                merged[name] = cls.section(name).merge(old, new)
            else:
                merged[name] = new
        return merged

    @classmethod
    def all_fields(cls) -> set[str]:
        """Return the names of the fields."""
        return set(cls.model_fields)

    @classmethod
    def section(cls, name: str) -> "type[Settings]":
        """Return the class of the settings in a field; ``Settings`` itself, which has no fields, if it has none."""
        field = cls.model_fields.get(name)
        types = (field.annotation, *get_args(field.annotation)) if field else ()
        return next((kind for kind in types if isclass(kind) and issubclass(kind, Settings)), Settings)

    @classmethod
    def similar_field(cls, name: str) -> str | None:
        """Return the field with the most similar name, also in a section, as in ``optimize.preset``; None without."""
        fields = {
            inner: f"{outer}.{inner}"
            for outer in reversed(cls.model_fields)
            for inner in cls.section(outer).all_fields()
        } | {field: field for field in cls.all_fields()}
        return next((fields[close] for close in get_close_matches(name, fields, 1)), None)


class Kinds(Settings):
    """Base of settings that have several kinds, each a subclass with fields of its own.

    The value of the tag, a field, decides the kind: a subclass narrows the type of this field to the values of its
    kind. ``parse`` and the constructor of the base class return an object of the subclass that the tag decides. A
    subclass may have kinds too, with another tag. A field that only other kinds have is an unknown field.
    """

    tag: ClassVar[str] = "kind"
    """Name of the field that decides the kind."""

    def __new__(cls, *_: Any, **values: Any) -> Any:
        """Return an empty object of the kind's class, which ``__init__`` then fills."""
        kind = cls.of_kind(values)
        return super().__new__(cls) if kind is None or kind is cls else kind.__new__(kind, **values)

    @classmethod
    def kinds(cls) -> dict[str, type[Self]]:
        """Return the class for every value of the tag; empty for a class without kinds."""
        kinds = cls.__subclasses__()
        return {value: kind for kind in kinds for value in get_args(kind.model_fields[cls.tag].annotation)}

    @classmethod
    def of_kind(cls, values: Mapping[str, Any]) -> type[Self] | None:
        """Return the class for the tag in plain values: this class if it has no kinds, None if the tag is unknown."""
        kinds, name = cls.kinds(), values.get(cls.tag, cls.model_fields[cls.tag].default)
        return (kinds.get(name) if isinstance(name, str) else None) if kinds else cls

    @classmethod
    def leaves(cls) -> list[type[Self]]:
        """Return the subclasses that have no further kinds; this class itself if it has none."""
        return [leaf for kind in dict.fromkeys(cls.kinds().values()) for leaf in kind.leaves()] or [cls]

    @classmethod
    def all_fields(cls) -> set[str]:
        """Return the names of the fields of all kinds."""
        return {name for leaf in cls.leaves() for name in leaf.model_fields}

    @classmethod
    def title(cls) -> str:
        """Return the name of the base class, the same for every kind."""
        base = next(ancestor for ancestor in cls.__mro__ if Kinds in ancestor.__bases__)
        return base.__name__.removesuffix("Settings").lower()

    @classmethod
    def merge(cls, values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return plain values with changes merged in; a change of the kind drops the fields that the new kind lacks."""
        kind = cls.of_kind({**values, **changes})
        if kind is None or kind is cls:
            return super().merge(values, changes)
        if cls.tag in changes:
            dropped = cls.all_fields() - kind.all_fields()
            values = {name: value for name, value in values.items() if name not in dropped}
        return kind.merge(values, changes)

    @model_validator(mode="wrap")
    @classmethod
    def _by_kind(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Any:
        if not isinstance(values, dict) or (kind := cls.of_kind(values)) is cls:
            return handler(values)
        if kind is None:
            errors = {cls.tag: f"should be {_join_or(map(repr, cls.kinds()))}"}
        else:
            tag, errors = values.get(cls.tag, cls.model_fields[cls.tag].default), {}
            for name in [name for name in values if name in cls.all_fields() - kind.all_fields()]:
                allowed = _join_or(value for value, other in cls.kinds().items() if name in other.all_fields())
                errors[name] = f"unknown field with {cls.tag} {tag}; allowed: with {cls.tag} {allowed}"
            if not errors:
                return kind.__pydantic_validator__.validate_json(json.dumps(values, default=str))
        details = [
            InitErrorDetails(
                type=PydanticCustomError("kind", "{text}", {"text": text}), loc=(name,), input=values[name]
            )
            for name, text in errors.items()
        ]
        raise ValidationError.from_exception_data(cls.__name__, details)

    @model_serializer(mode="plain")
    def _all_fields(self) -> dict[str, Any]:
        # A field annotated with the base class would use that class's serializer, which leaves out the kind's fields.
        return dict(self)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema; that of a base class has the fields of all kinds."""
        schema_of_class = handler.resolve_ref_schema(handler(schema))
        for kind in cls.leaves() if cls.kinds() else ():
            schema_of_kind = handler.resolve_ref_schema(handler(kind.__pydantic_core_schema__))
            schema_of_class["properties"] = schema_of_kind["properties"] | schema_of_class["properties"]
        return schema_of_class


def _join_or(values: Iterable[str]) -> str:
    *others, last = values
    return f"{', '.join(others)} or {last}" if others else last


def describe(error: ValidationError, name: str, model: type[Settings]) -> str:
    """Return one line per mistake in settings of a class: the field, its value and what is allowed."""
    return "\n".join(_describe_one(details, name, model) for details in error.errors())


def _describe_one(details: ErrorDetails, name: str, model: type[Settings]) -> str:
    path = [str(key) for key in details["loc"]]
    field = ".".join(path if name == WHOLE_RUN else [name, *path])
    kind, value = details["type"], details["input"]
    if kind == "extra_forbidden":
        for key in path[:-1]:
            model = model.section(key) if key in model.all_fields() else model  # Other keys are of lists and mappings.
        similar = model.similar_field(path[-1])
        fix = (
            f"Did you mean {field.removesuffix(path[-1])}{similar}?"
            if similar
            else "Remove it or correct its spelling."
        )
        return f"{field}: unknown field (value {value!r}). {fix}"
    if kind == "missing":
        return f"{field}: missing. This field has no default and must be given."
    message = details["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if not field:
        return message
    # A section is not printed where one of its fields is wrong, or belongs to another kind.
    got = f" got {value!r};" if not isinstance(value, dict) or kind not in ("value_error", "kind") else ""
    return f"{field}:{got} {message}"
