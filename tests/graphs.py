"""The graphs of the workflows as they are registered, for the pictures in the README and in reports.

python -m tests.graphs      writes tasks/report/graphs.json and docs/mu_grpo.svg (make graph)
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from flyteidl.core import workflow_pb2

from tasks.report.graph import FILE, Node
from tasks.report.graph_drawing import draw
from tests.cache_versions import ROOT
from tests.platform.serialised import Serialised, function_of, serialise

DEPLOYMENT = ROOT / "configs/deployments/gpu-4.yaml"
"""In which every role has an image of its own."""
PICTURE = ROOT / "docs/mu_grpo.svg"
_WITH_REPORT = ("workflows.mu_grpo.", "workflows.grpo.")

_STANDS_FOR = {"prepare_training_set": "open_run", "average": "evaluate"}
"""Steps that are not drawn, and what those after them wait for in the picture."""


def read_graphs(found: Serialised) -> dict[str, list[Node]]:
    """Of every workflow that ends with a report, by its name."""
    return {
        name.rpartition(".")[2]: _nodes(found, spec.template.nodes)
        for name, spec in sorted(found.workflows.items())
        if name.startswith(_WITH_REPORT)
    }


def _nodes(found: Serialised, registered: list[workflow_pb2.Node]) -> list[Node]:
    """Without two steps that are short and would hide the others: the training set, of which the stages' prompts are
    cut, and the mean over a policy's evaluations."""
    nodes: dict[str, Node] = {}
    before: dict[str, set[str]] = {}
    short: dict[str, set[str]] = {}
    for one in registered:
        inner = one.array_node.node if one.HasField("array_node") else one
        # Nodes are registered in the order in which they were made: what one waits for is known.
        waits = {other for first in one.upstream_node_ids for other in short.get(first, {first})}
        name = inner.task_node.reference_id.name
        if function_of(name) in _STANDS_FOR:
            short[one.id] = {other for other in waits if nodes[other].task == _STANDS_FOR[function_of(name)]}
            continue
        before[one.id] = waits.union(*(before[other] for other in waits))
        nodes[one.id] = Node(
            id=one.id,
            task=function_of(name),
            stage=_stage(one, nodes),
            mapped=one.HasField("array_node"),
            image=found.tasks[name].template.container.image.rpartition(":")[0].rpartition("-")[2],
            after=sorted(
                (other for other in waits if not any(other in before[third] for third in waits)), key=list(nodes).index
            ),
        )
    return list(nodes.values())


def _stage(node: workflow_pb2.Node, nodes: dict[str, Node]) -> int | None:
    """Of an input of its own, or of the node that made its policy."""
    inputs = {one.var: one.binding for one in node.inputs}
    if "stage" in inputs:
        return inputs["stage"].scalar.primitive.integer + 1
    maker = nodes.get(inputs["policy"].promise.node_id) if "policy" in inputs else None
    return maker.stage if maker else None


def to_text(graphs: dict[str, list[Node]]) -> str:
    """The graphs as JSON, a line per node."""
    written = {
        name: ",\n".join(f"  {json.dumps(node.model_dump(mode='json', exclude_defaults=True))}" for node in graph)
        for name, graph in graphs.items()
    }
    return "{\n" + ",\n".join(f' "{name}": [\n{nodes}\n ]' for name, nodes in written.items()) + "\n}\n"


def picture(graph: Sequence[Node]) -> str:
    """The README's."""
    return draw(tuple(graph), "The workflow mu_grpo", alone=True)


def main() -> None:
    """Renews both files."""
    with tempfile.TemporaryDirectory() as folder:
        graphs = read_graphs(serialise(Path(folder), DEPLOYMENT))
    for path, text in ((FILE, to_text(graphs)), (PICTURE, picture(graphs["mu_grpo"]))):
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
