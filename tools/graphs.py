"""The picture of the workflow in the README, drawn from the code of the workflow.

python -m tools.graphs      writes docs/mu_grpo.svg (make graph)
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from flytekit.core.node import Node
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from tasks.report import drawing
from tasks.report.theme import BLUE, INK, MUTED, ORANGE, PALETTE
from tools import ROOT
from workflows.mu_grpo import mu_grpo

PICTURE = ROOT / "docs/mu_grpo.svg"
BEFORE, AFTER = "before the stages", "after the stages"
_RUNS_ON = {"generate": ("engine", ORANGE), "evaluate": ("engine", ORANGE), "optimize": ("trainer", BLUE)}
"""Engine or trainer whose GPUs a task uses, with its color. Other tasks run on CPUs."""
_WIDTH, _HEIGHT, _PILE = 0.84, 0.62, 0.06
"""Width and height of a card as shares of its cell, and the offset between the cards of a pile."""
_CORNERS = "round,pad=0,rounding_size=0.06"
_DARK = "".join(f"--{name}: {dark}; " for name, (_, dark) in PALETTE.items())
_GROUND = (
    f"<style>@media (prefers-color-scheme: dark) {{ svg {{ {_DARK}--card: #161b22 }} }}</style>"
    '<rect width="100%" height="100%" rx="8" style="fill: var(--card, #ffffff)"/>'
)


class Card(NamedTuple):
    """A task, and whether it is mapped over shards."""

    task: str
    mapped: bool


def cards_of(node: Node) -> Iterator[Card]:
    """Yield the card of a node's task, or the cards of all tasks in its sub-workflow."""
    entity = node.flyte_entity
    if hasattr(entity, "nodes"):
        for inner in entity.nodes:
            yield from cards_of(inner)
        return
    mapped = getattr(entity, "python_function_task", None)  # Only map tasks have it.
    task = (mapped or entity).name.rpartition(".")[2]
    if task != "average":  # An average takes no time.
        yield Card(task, mapped is not None)


def columns() -> dict[str, list[Card]]:
    """Return the cards of the workflow before the stages, of every stage, and after the stages."""
    cards: dict[str, list[Card]] = {}
    heading = BEFORE
    for node in mu_grpo.nodes:
        if node.id.startswith("stage-"):
            heading = AFTER
            cards[node.id.replace("-", " ")] = list(cards_of(node))
        else:
            cards.setdefault(heading, []).extend(cards_of(node))
    return cards


def picture() -> str:
    """Return the picture as the text of an SVG file."""
    found = columns()
    deepest = max(map(len, found.values()))
    with drawing.style():
        figure = Figure(figsize=(1.95 * len(found), 0.72 * (deepest + 0.8)))
        figure.set_layout_engine("none")
        axes = figure.add_axes((0, 0, 1, 1), xlim=(-0.5, len(found) - 0.5), ylim=(deepest + 0.5, -0.3))
        axes.set_axis_off()
        for column, (heading, cards) in enumerate(found.items()):
            axes.text(column - _WIDTH / 2, 0.15, heading, color=MUTED, va="center")
            if column:
                _arrow(axes, (column - 0.65, 0.15), (column - 0.46, 0.15))
            for row, card in enumerate(cards, 1):
                _draw_card(axes, card, column, row)
                if row > 1 and heading != BEFORE:
                    _arrow(axes, (column, row - 1 + _HEIGHT / 2), (column, row - _HEIGHT / 2))
        svg = drawing.to_svg(figure, "mu-grpo", "The workflow mu_grpo: its tasks, stage by stage")
    svg = svg.replace("#ffffff", "var(--card, #ffffff)")
    start = svg.index(">") + 1
    return f"{svg[:start]}{_GROUND}{svg[start:]}\n"


def _draw_card(axes: Any, card: Card, column: int, row: int) -> None:
    runs_on, color = _RUNS_ON.get(card.task, ("CPU", MUTED))
    left, top = column - _WIDTH / 2, row - _HEIGHT / 2
    for out in (_PILE, 0.0) if card.mapped else (0.0,):
        place = (left + out / 2, top - out)
        axes.add_patch(FancyBboxPatch(place, _WIDTH, _HEIGHT, _CORNERS, facecolor="white", edgecolor=color))
    axes.text(left + 0.05, row - 0.13, card.task, color=INK, va="center", fontsize=9.5)
    unit = "shard" if card.task == "generate" else "benchmark"
    below = f"{runs_on}, per {unit}" if card.mapped else runs_on
    axes.text(left + 0.05, row + 0.15, below, color=color, va="center", fontsize=9)


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": INK, "shrinkA": 0, "shrinkB": 1})


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
    print(f"wrote {PICTURE.relative_to(ROOT)}")
