"""The graphs of the workflows as they are registered, for the pictures in the README and in reports.

python -m tests.graphs      writes tasks/report/graphs.json and docs/mu_grpo.svg (make graph)
"""

import json
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flyteidl.core import literals_pb2, workflow_pb2

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


@dataclass(frozen=True)
class Step:
    """A node that runs a task, with those of sub-workflows in their places."""

    id: str
    node: workflow_pb2.Node
    after: frozenset[str]
    """Steps that it waits for."""
    stage: int | None
    """Of the sub-workflow that it is in."""


def steps_of(found: Serialised, workflow: str) -> list[Step]:
    """The steps of a workflow, each after those that it waits for."""
    steps: list[Step] = []
    _unfold(found, found.workflows[workflow].template, defaultdict(frozenset), "", None, steps)
    return steps


Sources = dict[str, frozenset[str]]
"""The steps that a name, such as that of an input, stands for."""


def _unfold(
    found: Serialised,
    graph: workflow_pb2.WorkflowTemplate,
    inputs: Sources,
    inside: str,
    stage: int | None,
    steps: list[Step],
) -> Sources:
    """Adds a workflow's steps; which of them gave its outputs."""
    made: dict[str, Sources] = {"": inputs, "start-node": inputs}
    waiting = [node for node in graph.nodes if node.id not in ("start-node", "end-node")]
    while waiting:
        node = next(one for one in waiting if made.keys() >= set(one.upstream_node_ids))
        waiting.remove(node)
        given = {one.var: _givers(one.binding, made) for one in node.inputs}
        name = f"{inside}{node.id}"
        if node.WhichOneof("target") == "workflow_node":
            numbers = [one.binding.scalar.primitive.integer + 1 for one in node.inputs if one.var == "stage"]
            inner = found.workflows[node.workflow_node.sub_workflow_ref.name].template
            within = numbers[0] if numbers else stage
            made[node.id] = _unfold(found, inner, given, f"{name}-", within, steps)
        else:
            steps.append(Step(name, node, frozenset().union(*given.values()), stage))
            made[node.id] = defaultdict(lambda name=name: frozenset([name]))  # type: ignore[misc]
    return {one.var: _givers(one.binding, made) for one in graph.outputs}


def _givers(binding: literals_pb2.BindingData, made: dict[str, Sources]) -> frozenset[str]:
    if binding.HasField("promise"):
        return made[binding.promise.node_id][binding.promise.var]
    return frozenset().union(*(_givers(one, made) for one in binding.collection.bindings))


def task_of(node: workflow_pb2.Node) -> str:
    """The name of the task that a node runs, once or over the elements of a list."""
    name: str = (node.array_node.node if node.HasField("array_node") else node).task_node.reference_id.name
    return name


def read_graphs(found: Serialised) -> dict[str, list[Node]]:
    """Of every workflow that ends with a report, by its name."""
    return {
        name.rpartition(".")[2]: _nodes(found, steps_of(found, name))
        for name in sorted(found.workflows)
        if name.startswith(_WITH_REPORT)
    }


def _nodes(found: Serialised, steps: list[Step]) -> list[Node]:
    """Without two steps that are short and would hide the others: the training set, of which the stages' prompts are
    cut, and the mean over a policy's evaluations."""
    nodes: dict[str, Node] = {}
    before: dict[str, set[str]] = {}
    short: dict[str, set[str]] = {}
    for one in steps:
        waits = {other for first in one.after for other in short.get(first, {first})}
        name = task_of(one.node)
        if function_of(name) in _STANDS_FOR:
            short[one.id] = {other for other in waits if nodes[other].task == _STANDS_FOR[function_of(name)]}
            continue
        before[one.id] = waits.union(*(before[other] for other in waits))
        nodes[one.id] = Node(
            id=one.id,
            task=function_of(name),
            stage=one.stage,
            mapped=one.node.HasField("array_node"),
            image=found.tasks[name].template.container.image.rpartition(":")[0].rpartition("-")[2],
            after=sorted(
                (other for other in waits if not any(other in before[third] for third in waits)), key=list(nodes).index
            ),
        )
    return list(nodes.values())


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
