"""Reference of all settings, read from their classes: path, type, default and meaning of every field."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from rich import box
from rich.markup import escape
from rich.table import Table

from tasks.errors import SettingsError
from tasks.settings import ExperimentSettings, RunSettings
from tasks.settings.base import OPERATIONAL, Kinds
from tasks.settings.cost import CostSettings
from tasks.settings.deployment import DeploymentSettings

FILES: dict[str, tuple[type[BaseModel], str]] = {
    "A run": (RunSettings, "A file such as `configs/tiny-cpu.yaml`, the inputs of a workflow, and `--overrides`."),
    "An experiment": (ExperimentSettings, "The key `experiment` of a file such as `configs/reproduce-tiny.yaml`."),
    "A deployment": (DeploymentSettings, "A file of `configs/deployments`, which `MU_GRPO_DEPLOYMENT` names."),
    "Prices": (CostSettings, "The file `configs/prices.yaml`, or another that `mu-grpo plan --prices` names."),
}
"""Classes that YAML files are read into, by title, each with a text about its file."""
_PLAIN = {int: "integer", float: "number", str: "text", bool: "true or false", NoneType: "null", dict: "mapping"}
_LITERAL: Any = Literal
_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


@dataclass(frozen=True)
class Entry:
    """A field of a class of settings, as the reference shows it."""

    path: str
    """Full name of the field, as in ``optimize.objective.gate.low``."""
    type: str
    """Type and bounds in words."""
    default: str
    """Default in YAML; empty for a section whose fields have their own defaults."""
    meaning: str


@dataclass(frozen=True)
class Section:
    """The fields of a class of settings, under the path where the class occurs first."""

    path: str
    """Path of the section; empty for the top level of a file."""
    about: str
    entries: list[Entry]


def sections(model: type[BaseModel]) -> list[Section]:
    """Return all classes of settings that a file can hold, each once, in the order of the fields."""
    return list(_sections(model, "", {}))


def _sections(model: type[BaseModel], path: str, seen: dict[type, str]) -> Iterator[Section]:
    seen[model] = path
    rows = [(f"{path}.{name}".removeprefix("."), field, meaning) for name, field, meaning in _fields(model)]
    new = []
    for name, field, _ in rows:
        for inner, inner_path in _models(field.annotation, name):
            if inner not in seen:
                seen[inner] = inner_path
                new.append((inner, inner_path))
    entries = [Entry(name, _type_of(field, seen), _default(field), meaning) for name, field, meaning in rows]
    yield Section(path, inspect.cleandoc(model.__doc__ or ""), entries)
    for inner, inner_path in new:
        yield from _sections(inner, inner_path, seen)


def _fields(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo, str]]:
    """Yield name, field and meaning of all fields. Meanings of fields that not all kinds have name their kinds."""
    if not issubclass(model, Kinds) or not model.kinds():
        yield from (
            (name, field, _meaning(name, field, meanings(model)[name])) for name, field in model.model_fields.items()
        )
        return
    abouts = {kind: inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0] for kind in model.kinds().values()}
    about_kinds = " ".join(f"{_values(kind, model.tag)}: {about}" for kind, about in abouts.items())
    field = FieldInfo(annotation=_LITERAL[tuple(model.kinds())], default=model.model_fields[model.tag].default)
    yield model.tag, field, f"{meanings(model)[model.tag]} {about_kinds}".strip()
    fields: dict[tuple[str, str, str], tuple[FieldInfo, list[str]]] = {}
    for kind in abouts:
        for name, field, meaning in _fields(kind):
            if name != model.tag:
                key = name, meaning, repr(field) if name in kind.model_fields else ""
                fields.setdefault(key, (field, []))[1].append(_values(kind, model.tag))
    for (name, meaning, _), (field, kinds) in fields.items():
        # Fields of a kind of a kind have a meaning that names the inner kind already.
        shared = len(kinds) == len(abouts) or meaning.startswith("With ")
        yield name, field, meaning if shared else f"With {model.tag} {' or '.join(kinds)}: {meaning}"


def _values(kind: type[Kinds], tag: str) -> str:
    return " or ".join(f"`{value}`" for value in get_args(kind.model_fields[tag].annotation))


def _models(annotation: Any, path: str) -> Iterator[tuple[type[BaseModel], str]]:
    """Yield the classes of settings in a type, each with its path."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation, path
        return
    suffix = {list: "[]", tuple: "[]", dict: ".<name>"}.get(get_origin(annotation), "")
    for inner in get_args(annotation):
        if not isinstance(inner, str | int):
            yield from _models(inner, path + suffix)


@cache
def meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings under the fields of a class and of its bases; empty for a field without docstring."""
    docstrings = dict.fromkeys(model.model_fields, "")
    for base in reversed(model.__mro__):
        if base is BaseModel or not issubclass(base, BaseModel):
            continue
        definition = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(definition, ast.ClassDef)
        for statement, below in pairwise(definition.body):
            match statement, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ) if name in docstrings:
                    docstrings[name] = " ".join(inspect.cleandoc(text).split())
    return docstrings


def _meaning(name: str, field: FieldInfo, docstring: str) -> str:
    inner = next((model for model, _ in _models(field.annotation, "")), None)
    text = field.description or docstring
    if not text and inner is not None:
        text = inspect.cleandoc(inner.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    return f"{text} Changes no result.".strip() if name in OPERATIONAL else text


def _type_of(field: FieldInfo, seen: dict[type, str]) -> str:
    return ", ".join([_type(field.annotation, seen), *_bounds(field.metadata)])


def _type(annotation: Any, seen: dict[type, str]) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        bounds = [bound for item in inner[1:] for bound in _bounds(getattr(item, "metadata", [item]))]
        return ", ".join([_type(inner[0], seen), *bounds])
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in inner)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_type(member, seen) for member in inner))
    if origin is list:
        return f"list of {_type(inner[0], seen)}"
    if origin is dict:
        return f"mapping from {_type(inner[0], seen)} to {_type(inner[1], seen)}"
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if annotation in seen:
        return f"section `{seen[annotation]}`"
    return f"`{annotation.__name__}`"


def _bounds(metadata: list[Any]) -> list[str]:
    bounds = [
        f"{word} {getattr(item, name):g}" for item in metadata for name, word in _BOUNDS.items() if hasattr(item, name)
    ]
    most = [getattr(item, "max_length", None) for item in metadata]
    lengths = [least for item in metadata if (least := getattr(item, "min_length", None))]
    bounds += [f"{least}{' or more' * (least not in most)} of them" for least in lengths]
    return bounds + [f"of the form `{item.pattern}`" for item in metadata if getattr(item, "pattern", None)]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default_factory is not None:
        return {"dict": "{}", "list": "[]"}.get(getattr(field.default_factory, "__name__", ""), "derived")
    value = field.default
    if isinstance(value, Kinds):
        return ""
    if isinstance(value, BaseModel):
        given = value.model_dump(mode="json", exclude_unset=True)
        return _yaml(given) if given else ""
    if isinstance(value, list):
        value = [
            item.model_dump(mode="json", exclude_unset=True) if isinstance(item, BaseModel) else item for item in value
        ]
    return _yaml(value)


def _yaml(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if value == "":
        return '""'
    return yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("...\n").strip()


def settings_table(name: str) -> Table:
    """Return a table of the settings whose path begins with a name, or else contains it.

    Raises:
        SettingsError: no setting has this name.
    """
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("setting", "type", "default", "meaning"):
        table.add_column(column, overflow="fold")
    entries = [entry for model, _ in FILES.values() for section in sections(model) for entry in section.entries]
    name = re.sub(r"\[\]|\.\d+\b", "", name)
    second = name.split(".")[1] if "." in name else "<name>"

    def plain(path: str) -> str:
        """Return a path as messages write it, without indices of lists and with a name in place of ``<name>``."""
        return path.replace("[]", "").replace("<name>", second)

    found = [entry for entry in entries if not name or f"{plain(entry.path)}.".startswith(f"{name}.")]
    if not found:
        for entry in entries:  # A section that occurs twice has its fields where it occurs first.
            first, path = re.match(r"section `(.*?)`", entry.type), plain(entry.path)
            if first and first[1] != entry.path and name.startswith(f"{path}."):
                return settings_table(first[1] + name.removeprefix(path))
        found = [entry for entry in entries if f".{name}." in f".{entry.path}."]
    if not found:
        raise SettingsError(f"{name}: no setting has this name; `mu-grpo settings` lists all of them.")
    for entry in found:
        row = (entry.path, entry.type.replace("`", ""), entry.default, entry.meaning.replace("``", ""))
        table.add_row(*map(escape, row))
    return table
