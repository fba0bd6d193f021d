"""Colors, templates and filters of pages. The filters format numbers as the terminal does."""

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tasks import formats

INK, MUTED, GRID = "#1c2330", "#5b6472", "#e1e5eb"
BLUE, ORANGE, GREEN = "#1f5fa8", "#c2500a", "#0f7b63"
PALETTE = {
    "ink": (INK, "#e6e9ef"),
    "muted": (MUTED, "#a3adbb"),
    "grid": (GRID, "#323b48"),
    "blue": (BLUE, "#6fb1ff"),
    "orange": (ORANGE, "#ff9a57"),
    "green": (GREEN, "#4fd0ad"),
}
"""Colors by name, for a light and for a dark page."""


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parents[1]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        percent=formats.percent,
        number=formats.number,
        scientific=formats.scientific,
        duration=formats.duration,
        label=formats.label,
        shown=formats.printable,
        interval=lambda estimate: formats.percent_range(estimate.low, estimate.high),
    )
    environment.globals["palette"] = PALETTE
    return environment


def render(name: str, **values: Any) -> str:
    """Render a template. Every value is escaped unless the template marks it as safe.

    Args:
        name: path of the template, relative to ``tasks/``.
        values: variables of the template; a missing variable is an error.
    """
    return _environment().get_template(name).render(**values)
