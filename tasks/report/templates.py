"""The templates of pages and pictures."""

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tasks.report import formats
from tasks.report.palette import PALETTE, variable


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parents[1]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        percent=formats.percent,
        number=formats.number,
        tiny=formats.tiny,
        duration=formats.duration,
        label=formats.label,
        interval=lambda estimate: formats.percent_range(estimate.low, estimate.high),
        color=variable,
    )
    made.globals["palette"] = PALETTE
    return made


def render(name: str, **values: Any) -> str:
    """A template with its values in place; what is no markup of a template is escaped.

    Args:
        name: of the file, from tasks/ on.
        values: that it names; one that is missing is an error.
    """
    return _environment().get_template(name).render(**values)
