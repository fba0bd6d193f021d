"""The picture of the workflow in the README, drawn from the workflow itself.

python -m tools.graphs      writes docs/mu_grpo.svg (make graph)
"""

from collections.abc import Iterator
from dataclasses import replace

from flytekit.core.node import Node

from tasks.report.steps import AFTER, BEFORE, SHORT, Card, draw
from tools import ROOT
from workflows.mu_grpo import mu_grpo

PICTURE = ROOT / "docs/mu_grpo.svg"


def cards_of(node: Node) -> Iterator[Card]:
    """Yield the cards of a node: of its task, or of all tasks of its sub-workflow."""
    entity = node.flyte_entity
    if hasattr(entity, "nodes"):
        for inner in entity.nodes:
            yield from cards_of(inner)
        return
    mapped = getattr(entity, "python_function_task", None)  # of a map task
    task = (mapped or entity).name.rpartition(".")[2]
    if task not in SHORT:
        yield replace(Card.of_task(task), mapped=mapped is not None)


def columns() -> dict[str, list[Card]]:
    """Return the cards of the workflow before the stages, of every stage, and after the stages."""
    found: dict[str, list[Card]] = {}
    heading = BEFORE
    for node in mu_grpo.nodes:
        if node.id.startswith("stage-"):
            heading = AFTER
            found[node.id.replace("-", " ")] = list(cards_of(node))
        else:
            found.setdefault(heading, []).extend(cards_of(node))
    return found


def picture() -> str:
    """Return the picture as the text of an SVG file."""
    return draw(columns(), "The workflow mu_grpo", alone=True) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
    print(f"wrote {PICTURE.relative_to(ROOT)}")
