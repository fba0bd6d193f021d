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
    """What helm makes of several files of values: later ones go over earlier ones, lists whole."""
    merged: Values = {}
    for name in names:
        merged = Settings.merge(merged, yaml.safe_load((FOLDER / name).read_text()))
    return merged


def within(said: Any, found: Any, place: str = "") -> list[str]:
    """Where what was found lacks something of what was said, or says something else; maps may hold more."""
    if isinstance(said, dict) and isinstance(found, dict):
        return [wrong for key in said for wrong in within(said[key], found.get(key), f"{place}.{key}")]
    return [] if said == found else [f"{place}: {said!r} became {found!r}"]


def as_helm_writes(said: Any) -> Any:
    """Values below ``inline`` after the chart's ``tpl``, which fails for what is not in backquotes."""
    if isinstance(said, dict):
        return {key: as_helm_writes(value) for key, value in said.items()}
    if isinstance(said, list):
        return [as_helm_writes(value) for value in said]
    if isinstance(said, str):
        assert "{{" not in ESCAPED.sub("", said), f"helm would take this for its own template: {said}"
        return ESCAPED.sub(r"\1", said)
    return said
