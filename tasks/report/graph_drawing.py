"""A workflow's graph as SVG, in the colors of the page around it; the same graph gives the same bytes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from tasks.report.formats import duration
from tasks.report.graph import Graph, Measured, Node, Step
from tasks.report.graph_layout import CARD, Box, Edge, Point, lay_out, longest_chain
from tasks.report.templates import render
from tasks.settings.deployment import Image

_RUNS_ON: dict[Image, tuple[str, str]] = {
    "cpu": ("CPU", "muted"),
    "rollout": ("engine", "orange"),
    "train": ("trainer", "blue"),
    "alternate": ("engine and trainer", "blue"),
}
"""What an image is for, and its color."""
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_LIGHT, _DARK = "#ffffff", "#161b22"
"""Backgrounds of a file of its own."""
_BEND = 7
"""Radius of a line's corner."""
_HEAD = (7, 3.5)
"""Length of an arrow's head, and half its width."""


@dataclass(frozen=True)
class _Card:
    """A node as it is drawn."""

    box: Box
    name: str
    below: str
    color: str
    dashed: bool


def draw(
    graph: Graph,
    title: str,
    measured: Mapping[Step, Measured] | None = None,
    *,
    unfinished: bool = False,
    alone: bool = False,
) -> str:
    """The graph as an ``<svg>`` element.

    Args:
        graph: of the workflow.
        title: what a screen reader says first; the steps, stage by stage, come after it.
        measured: what steps took. Without it they tell what they run on.
        unfinished: the run is; steps of stages that were not measured are not made yet.
        alone: it is a file of its own and not a part of a page with the palette; readable on light and dark pages.
    """
    layout, measured = lay_out(graph), measured or {}
    wide, high = layout.size
    cards = [_card(node, layout.boxes[node.id], measured, unfinished) for node in graph]
    seconds = {node.id: measured[node.step].seconds for node in graph if node.step in measured}
    chain = set(pairwise(longest_chain(graph, seconds)))
    strong = [edge for edge in layout.edges if (edge.source, edge.target) in chain]
    others = [edge for edge in layout.edges if edge not in strong]
    return render(
        "report/graph.svg.j2",
        wide=wide,
        high=high,
        alone=alone,
        font=_FONT,
        title=title,
        words=_in_words(graph, cards),
        background=f"var(--card, {_LIGHT})",
        dark_background=_DARK,
        stages=layout.stages,
        edges=[
            (name, width, _lines(some), _heads(some))
            for name, width, some in (("muted", 1.1, others), ("ink", 2, strong))
        ],
        cards=cards,
        size=CARD,
    )


def _card(node: Node, box: Box, measured: Mapping[Step, Measured], unfinished: bool) -> _Card:
    words, color = _RUNS_ON[node.image]
    taken = measured.get(node.step)
    name, below = node.task, "" if measured else words
    if taken is not None:
        name += f" ({taken.artifacts})" if node.mapped else ""
        below = duration(taken.seconds) + (", found" if taken.found else "")
    elif unfinished and node.stage is not None:
        return _Card(box, name, "not made", "muted", dashed=True)
    elif node.mapped:
        below += ", per shard"
    return _Card(box, name, below, color, taken is not None and taken.found)


def _in_words(graph: Graph, cards: Iterable[_Card]) -> str:
    groups: dict[str, list[str]] = {}
    for node, card in zip(graph, cards, strict=True):
        when = f"Stage {node.stage}" if node.stage else "At the end" if card.box.column else "Before the stages"
        groups.setdefault(when, []).append(f"{card.name}, {card.below}" if card.below else card.name)
    return " ".join(f"{when}: {'; '.join(steps)}." for when, steps in groups.items())


def _lines(edges: Iterable[Edge]) -> str:
    return "".join(_line(edge.points) for edge in edges)


def _line(points: tuple[Point, ...]) -> str:
    (x, y) = points[0]
    drawn = f"M{x} {y}"
    for before, (x, y), after in zip(points, points[1:], points[2:], strict=False):
        start, end = _towards((x, y), before, _BEND), _towards((x, y), after, _BEND)
        drawn += f"L{_pair(start)}Q{x} {y} {_pair(end)}"
    return drawn + f"L{_pair(_towards(points[-1], points[-2], _HEAD[0] - 1))}"


def _heads(edges: Iterable[Edge]) -> str:
    return "".join(_head(edge.points[-1], edge.points[-2]) for edge in edges)


def _head(tip: Point, before: Point) -> str:
    (x, y), half = _towards(tip, before, _HEAD[0]), _HEAD[1]
    corners = [(x, y - half), (x, y + half)] if y == tip[1] else [(x - half, y), (x + half, y)]
    return f"M{_pair(tip)}L{_pair(corners[0])}L{_pair(corners[1])}z"


def _towards(start: Point, end: Point, distance: float) -> tuple[float, float]:
    """The point on the way, which is along an axis; at most halfway."""
    (x, y), (to_x, to_y) = start, end
    step = min(distance, (abs(to_x - x) + abs(to_y - y)) / 2)
    return x + step * ((to_x > x) - (to_x < x)), y + step * ((to_y > y) - (to_y < y))


def _pair(point: tuple[float, float]) -> str:
    return f"{point[0]:g} {point[1]:g}"
