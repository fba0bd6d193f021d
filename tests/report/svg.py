"""Looks into the figures of a run."""

import re
import xml.etree.ElementTree as ET

from tasks.report.drawing import Picture
from tasks.report.figures import make_figures
from tasks.report.history import load_history
from tests.report.synthetic import SyntheticRun

SVG = "{http://www.w3.org/2000/svg}"


def drawn_of(run: SyntheticRun) -> dict[str, Picture]:
    return make_figures(load_history(run.store, run.evaluations))


def figures_of(run: SyntheticRun) -> dict[str, str]:
    return {name: figure.svg for name, figure in drawn_of(run).items()}


def colored(svg: str, color: str) -> list[ET.Element]:
    """Elements that a color of the palette draws or fills."""
    return [one for one in ET.fromstring(svg).iter() if f"var(--{color}," in one.get("style", "")]


def paths(svg: str, color: str) -> list[str]:
    """What is drawn in a color, but for markers."""
    return [one.get("d", "") for one in colored(svg, color) if one.tag == f"{SVG}path"]


def lines(svg: str, color: str) -> list[int]:
    """Number of points of every line of a color."""
    return [len(re.findall("[ML]", path)) for path in paths(svg, color)]


def texts(svg: str) -> list[str]:
    return ["".join(one.itertext()) for one in ET.fromstring(svg).iter(f"{SVG}text")]
