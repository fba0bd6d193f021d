"""Where the nodes of a workflow's graph stand, and how its edges run: a column per stage, a row per kind of step.

Pixels, from the upper left corner.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tasks.report.graph import Graph, Node

CARD = (152, 42)
"""Width and height of a node."""
_BEHIND = (7, 3)
"""By how much the cards behind that of a map task stand out, above and to the right."""
_GAP = (28, 32)
"""Between columns and between rows."""
_MARGIN = 20
_HEADING = 38
"""Above the first row: the stages' names, and a lane for edges."""
_LANE = 13
"""From a row to the lane beside it."""

Point = tuple[int, int]


@dataclass(frozen=True)
class Box:
    """The place of a node."""

    column: int
    row: int
    x: int
    y: int
    mapped: bool = False

    @property
    def behind(self) -> tuple[int, ...]:
        """The offset of every card of its stack, above and to the right, the last one first; 0 is the front."""
        return (*_BEHIND, 0) if self.mapped else (0,)

    @property
    def middle(self) -> int:
        """Of its width."""
        return self.x + CARD[0] // 2

    @property
    def level(self) -> int:
        """The middle of its height."""
        return self.y + CARD[1] // 2

    @property
    def top(self) -> int:
        """Where an edge from above ends."""
        return self.y - self.behind[0]

    @property
    def bottom(self) -> int:
        """Where an edge downwards starts."""
        return self.y + CARD[1]

    @property
    def right(self) -> int:
        """Where an edge to a later column starts."""
        return self.x + CARD[0] + self.behind[0]


@dataclass(frozen=True)
class Edge:
    """From a node to one that waits for it: corners of its line, with the ends."""

    source: str
    target: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Layout:
    """A graph in its places."""

    boxes: dict[str, Box]
    """By the node's id."""
    edges: list[Edge]
    stages: dict[int, tuple[Point, Point]]
    """Upper left and lower right corner of the nodes of every stage."""
    size: Point


def lay_out(graph: Graph) -> Layout:
    """Columns are what comes before the stages, the stages, and what comes after them."""
    columns = _columns(graph)
    rows = _rows(graph, columns)
    boxes = {
        node.id: Box(
            columns[node.id],
            rows[node.id],
            _MARGIN + columns[node.id] * (CARD[0] + _GAP[0]),
            _MARGIN + _HEADING + rows[node.id] * (CARD[1] + _GAP[1]),
            node.mapped,
        )
        for node in graph
    }
    edges = [Edge(before, node.id, tuple(_route(boxes, before, node.id))) for node in graph for before in node.after]
    stages = {
        stage: _corners(boxes[node.id] for node in graph if node.stage == stage)
        for stage in sorted({node.stage for node in graph if node.stage})
    }
    (_, (right, low)) = _corners(boxes.values())
    return Layout(boxes, edges, stages, (right + _MARGIN, low + _MARGIN))


def _corners(boxes: Iterable[Box]) -> tuple[Point, Point]:
    boxes = list(boxes)
    upper_left = min(box.x for box in boxes), min(box.y for box in boxes)
    return upper_left, (max(box.x for box in boxes) + CARD[0], max(box.bottom for box in boxes))


def _columns(graph: Graph) -> dict[str, int]:
    last = max(node.stage or 0 for node in graph)
    columns: dict[str, int] = {}
    for node in graph:
        later = any(columns[before] > 0 for before in node.after)
        columns[node.id] = node.stage or (last + 1 if later else 0)
    return columns


def _rows_of_tasks(graph: Graph) -> dict[str, int]:
    """Of the tasks of the stages: each below those that it waits for."""
    nodes = {node.id: node for node in graph}
    rows: dict[str, int] = {}
    for node in graph:
        if node.stage:
            above = [rows[nodes[one].task] + 1 for one in node.after if nodes[one].stage == node.stage]
            rows[node.task] = max([rows.get(node.task, 0), *above])
    return rows


def _rows(graph: Graph, columns: dict[str, int]) -> dict[str, int]:
    """The same row for the same task of every stage, and no two nodes of a column in one."""
    of_task = _rows_of_tasks(graph)
    rows: dict[str, int] = {}
    taken: set[tuple[int, int]] = set()

    def place(node: Node, wanted: int) -> None:
        # The nearest one that is free, the lower of two.
        choices = sorted(range(len(graph)), key=lambda row: (abs(row - wanted), -row))
        rows[node.id] = next(row for row in choices if (columns[node.id], row) not in taken)
        taken.add((columns[node.id], rows[node.id]))

    for node in graph:
        if node.task in of_task:
            place(node, of_task[node.task])
    others = [node for node in graph if node.task not in of_task]
    for node in reversed([one for one in others if columns[one.id] == 0]):
        place(node, min(rows[one.id] for one in graph if node.id in one.after))
    for node in [one for one in others if columns[one.id] > 0]:
        place(node, max(rows[one] for one in node.after))
    return rows


def _route(boxes: dict[str, Box], source: str, target: str) -> list[Point]:
    start, end = boxes[source], boxes[target]
    if start.column == end.column:
        return _within_column(boxes.values(), start, end)
    first, last = (start.right, start.level), (end.x, end.level)
    leaving, entering = start.x + CARD[0] + _GAP[0] // 2, end.x - _GAP[0] // 2
    if start.row == end.row and start.column + 1 == end.column:
        return [first, last]
    if start.column == 0 and start.row == end.row + 1:
        # Along the source's own row, and up from there.
        return [first, (end.middle, start.level), (end.middle, end.bottom)]
    if leaving == entering:
        return [first, (leaving, start.level), (leaving, end.level), last]
    if end.column < max(box.column for box in boxes.values()):
        lane = end.top - _LANE
        return [first, (leaving, start.level), (leaving, lane), (end.middle, lane), (end.middle, end.top)]
    lane = start.bottom + _LANE
    return [first, (leaving, start.level), (leaving, lane), (entering, lane), (entering, end.level), last]


def _within_column(boxes: Iterable[Box], start: Box, end: Box) -> list[Point]:
    between = range(min(start.row, end.row) + 1, max(start.row, end.row))
    if any(box.column == start.column and box.row in between for box in boxes):
        beside = start.x - _GAP[0] // 2
        return [(start.x, start.level), (beside, start.level), (beside, end.level), (end.x, end.level)]
    if start.row < end.row:
        return [(start.middle, start.bottom), (end.middle, end.top)]
    return [(start.middle, start.top), (end.middle, end.bottom)]


def longest_chain(graph: Graph, seconds: dict[str, float]) -> list[str]:
    """The nodes of the path that takes longest; of equal ones the one with the most nodes, and of those the last.

    Args:
        graph: of the workflow.
        seconds: of nodes, by id; others take none.
    """
    best: dict[str, tuple[float, int, list[str]]] = {}
    for node in graph:
        total, count, path = max(
            (best[one] for one in reversed(node.after)), default=(0.0, 0, []), key=lambda found: found[:2]
        )
        best[node.id] = (total + seconds.get(node.id, 0.0), count + 1, [*path, node.id])
    return max(best.values(), key=lambda found: found[:2])[2]
