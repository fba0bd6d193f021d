"""Flyte's own settings as helm merges and renders them."""

import re
from typing import Any

import yaml

from tasks.settings import Settings
from tools import ROOT

Values = dict[str, Any]
FOLDER = ROOT / "k8s/flyte"
ESCAPED = re.compile(r"\{\{`(.*?)`\}\}")


def values(*names: str) -> Values:
    """Return what helm merges from several files; values and whole lists of a later file replace earlier ones."""
    merged: Values = {}
    for name in names:
        merged = Settings.merge(merged, yaml.safe_load((FOLDER / name).read_text()))
    return merged


def within(said: Any, found: Any, place: str = "") -> list[str]:
    """Return the places where found values lack a stated value or differ from it; found maps may have more keys."""
    if isinstance(said, dict) and isinstance(found, dict):
        return [wrong for key in said for wrong in within(said[key], found.get(key), f"{place}.{key}")]
    return [] if said == found else [f"{place}: {said!r} became {found!r}"]


def as_helm_writes(said: Any) -> Any:
    """Return values below ``inline`` after the chart's ``tpl``, which fails for templates without backquotes."""
    if isinstance(said, dict):
        return {key: as_helm_writes(value) for key, value in said.items()}
    if isinstance(said, list):
        return [as_helm_writes(value) for value in said]
    if isinstance(said, str):
        assert "{{" not in ESCAPED.sub("", said), f"helm would take this for its own template: {said}"
        return ESCAPED.sub(r"\1", said)
    return said
