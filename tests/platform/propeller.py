"""Drives a workflow from its serialised form, task by task, as Flyte's propeller does on a cluster.

Inputs and outputs of every task are ``inputs.pb`` and ``outputs.pb`` on S3; a dynamic task leaves ``futures.pb``, the
nodes that are to run for it. What starts a pod is given: a process or a container. An attempt that ends without outputs
is followed by another, as often as the task was registered with; those that end by an error of the system's do not
count, up to a number of their own. A cached task whose inputs have been seen is not run. Unlike a real one it waits
for an attempt's end before it starts the next: tests/store/test_lease.py has two that overlap.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from flyteidl.admin import task_pb2
from flyteidl.core import dynamic_job_pb2, errors_pb2, literals_pb2, tasks_pb2, workflow_pb2
from flyteidl.core.execution_pb2 import ExecutionError
from flytekit import FlyteContextManager, PythonFunctionTask
from flytekit.core.type_engine import TypeEngine
from flytekit.core.workflow import PythonFunctionWorkflow

from tools.s3 import S3
from tools.serialised import Serialised

Literals = dict[str, literals_pb2.Literal]
_PARTS = ("container", "metadata", "security_context", "extended_resources", "custom", "config", "type")
_SYSTEM_FAILURES = 10
"""The number in k8s/flyte/values.yaml: max-node-retries-system-failures."""


def literals(of: PythonFunctionTask | PythonFunctionWorkflow, values: Mapping[str, Any]) -> Literals:
    """The inputs of a task or a workflow in Flyte's form."""
    context = FlyteContextManager.current_context()
    converted = TypeEngine.dict_to_literal_map(context, dict(values), of.python_interface.inputs)
    return dict(converted.to_flyte_idl().literals)


def filled(arguments: Iterable[str], inputs: str, outputs: str, place: str, earlier: str = '""') -> list[str]:
    """A registered command line with the places of an attempt's data filled in, as Flyte does it."""
    values = {
        "{{.input}}": inputs,
        "{{.outputPrefix}}": outputs,
        "{{.rawOutputDataPrefix}}": f"{place}/raw",
        "{{.checkpointOutputPrefix}}": f"{place}/checkpoint",
        "{{.prevCheckpointPrefix}}": earlier,
    }
    return [values.get(argument, argument) for argument in arguments]


@dataclass(frozen=True)
class Attempt:
    """A pod that is to be started."""

    task: str
    """The name of the task's function."""
    stage: int | None
    number: int
    """The first attempt is 0."""
    image: str
    arguments: list[str]
    environment: dict[str, str]


@dataclass
class Propeller:
    """A project as it is registered, and where its executions keep their data."""

    found: Serialised
    s3: S3
    bucket: str
    start: Callable[[Attempt], str]
    """Runs a pod to its end; what it printed."""
    attempts: list[Attempt] = field(default_factory=list)
    """All that were started, in their order."""
    _catalog: dict[tuple[object, ...], Literals] = field(default_factory=dict)

    def run(self, workflow: str, inputs: Literals) -> Literals:
        """Runs a workflow as an execution of its launch plan; its outputs."""
        parameters = self.found.launch_plans[workflow].spec.default_inputs.parameters
        defaults = {name: one.default for name, one in parameters.items() if one.HasField("default")}
        template = self.found.workflows[workflow].template
        return self._graph(template.nodes, template.outputs, defaults | inputs, workflow.rpartition(".")[2])

    def _graph(
        self, nodes: Iterable[workflow_pb2.Node], outputs: Iterable[literals_pb2.Binding], inputs: Literals, place: str
    ) -> Literals:
        made: dict[str, Literals] = {"": inputs}
        waiting = [node for node in nodes if node.id not in ("start-node", "end-node")]
        while waiting:
            ready = [node for node in waiting if made.keys() >= set(node.upstream_node_ids) - {"start-node"}]
            assert ready, f"no node of {[node.id for node in waiting]} can start"
            for node in ready:
                bound = {one.var: _resolve(one.binding, made) for one in node.inputs}
                made[node.id] = self._node(node, bound, f"{place}/{node.id}")
                waiting.remove(node)
        return {one.var: _resolve(one.binding, made) for one in outputs}

    def _node(self, node: workflow_pb2.Node, bound: Literals, place: str) -> Literals:
        kind = node.WhichOneof("target")
        if kind == "array_node":
            return self._map(node, bound, place)
        if kind == "workflow_node":
            inner = self.found.workflows[node.workflow_node.sub_workflow_ref.name].template
            return self._graph(inner.nodes, inner.outputs, bound, place)
        assert kind == "task_node", kind
        return self.task(node.task_node.reference_id.name, bound, place)

    def _map(self, node: workflow_pb2.Node, bound: Literals, place: str) -> Literals:
        """A task over every element of what is not bound: each finds its own by its index."""
        array = node.array_node
        over = bound.keys() - set(array.bound_inputs)
        (length,) = {len(bound[name].collection.literals) for name in over}
        name, made = array.node.task_node.reference_id.name, []
        for index in range(length):
            variables = {"BATCH_JOB_ARRAY_INDEX_VAR_NAME": "FLYTE_K8S_ARRAY_INDEX", "FLYTE_K8S_ARRAY_INDEX": str(index)}
            elements = {one: bound[one].collection.literals[index] for one in over}
            made.append(self.task(name, bound, f"{place}/{index}", variables, elements))
        collected = literals_pb2.LiteralCollection(literals=[one["o0"] for one in made])
        return {"o0": literals_pb2.Literal(collection=collected)}

    def task(
        self,
        name: str,
        inputs: Literals,
        place: str,
        environment: dict[str, str] | None = None,
        elements: Literals | None = None,
    ) -> Literals:
        """Runs a task unless it is cached, in as many attempts as it takes; its outputs.

        ``environment`` is set in its pods besides what was registered. ``elements`` are what one of many tasks takes of
        those inputs that are lists.
        """
        template = self.found.tasks[name].template
        metadata = template.metadata
        if not metadata.discoverable:
            return self._attempts(template, inputs, place, environment or {})
        taken = {**inputs, **(elements or {})}
        key = (name, metadata.discovery_version, *((one, _cached(taken[one])) for one in sorted(taken)))
        if key not in self._catalog:
            self._catalog[key] = self._attempts(template, inputs, place, environment or {})
        return self._catalog[key]

    def _attempts(
        self, template: tasks_pb2.TaskTemplate, inputs: Literals, place: str, environment: dict[str, str]
    ) -> Literals:
        name = template.id.name
        container: tasks_pb2.Container = template.container
        folder, bucket = f"flyte/{place}", f"s3://{self.bucket}"
        self.s3.put(f"{bucket}/{folder}/inputs.pb", literals_pb2.LiteralMap(literals=inputs).SerializeToString())
        earlier, failures = '""', Counter[int]()  # named to every later attempt, whether it was written to or not
        most = {ExecutionError.SYSTEM: _SYSTEM_FAILURES, ExecutionError.USER: template.metadata.retries.retries}
        for number in count():
            out, own = f"{folder}/{number}/out", f"{bucket}/{folder}/{number}"
            command = filled(container.args, f"{bucket}/{folder}/inputs.pb", f"{bucket}/{out}", own, earlier)
            attempt = Attempt(
                task=name.rpartition(".")[2],
                stage=inputs["stage"].scalar.primitive.integer if "stage" in inputs else None,
                number=number,
                image=container.image,
                arguments=command,
                environment={
                    **{one.key: one.value for one in container.env},
                    "MU_GRPO_GPUS": "0",  # Machines of tests have none; test_attempts.py proves the check.
                    **environment,
                    "FLYTE_INTERNAL_EXECUTION_ID": "execution",
                    "FLYTE_ATTEMPT_NUMBER": str(number),
                },
            )
            self.attempts.append(attempt)
            printed = self.start(attempt)
            files = {key.rpartition("/")[2]: key for key in self.s3.keys(self.bucket) if key.startswith(f"{out}/")}
            origin = ExecutionError.USER
            if "error.pb" in files:
                error = errors_pb2.ErrorDocument.FromString(self._read(files["error.pb"])).error
                assert error.kind == errors_pb2.ContainerError.RECOVERABLE, f"{place}: {error.message}\n{printed}"
                origin = error.origin
            elif "futures.pb" in files:
                unrolled = dynamic_job_pb2.DynamicJobSpec.FromString(self._read(files["futures.pb"]))
                for one in unrolled.tasks:
                    if one.id.name in self.found.tasks:  # Its pod compiles it again; it must be what was registered.
                        registered = self.found.tasks[one.id.name].template
                        for part in _PARTS:
                            assert getattr(one, part) == getattr(registered, part), (one.id.name, part)
                    self.found.tasks[one.id.name] = task_pb2.TaskSpec(template=one)
                return self._graph(unrolled.nodes, unrolled.outputs, {}, place)
            elif "outputs.pb" in files:
                outputs = literals_pb2.LiteralMap.FromString(self._read(files["outputs.pb"]))
                return dict(outputs.literals)
            earlier = f"{own}/checkpoint"
            failures[origin] += 1
            assert failures[origin] <= most[origin], f"{place}: no attempt gave outputs; the last printed\n{printed}"
        raise AssertionError("attempts end with outputs or too many failures")

    def _read(self, key: str) -> bytes:
        return self.s3.client().get_object(Bucket=self.bucket, Key=key)["Body"].read()


def _cached(literal: literals_pb2.Literal) -> object:
    """The part of an input that enters a cache's key: its hash where it has one."""
    if literal.hash:
        return literal.hash
    if literal.HasField("collection"):
        return tuple(_cached(one) for one in literal.collection.literals)
    return literal.SerializeToString(deterministic=True)


def _resolve(binding: literals_pb2.BindingData, made: dict[str, Literals]) -> literals_pb2.Literal:
    kind = binding.WhichOneof("value")
    if kind == "promise":
        assert not binding.promise.attr_path
        return made[binding.promise.node_id][binding.promise.var]
    if kind == "collection":
        parts = [_resolve(one, made) for one in binding.collection.bindings]
        return literals_pb2.Literal(collection=literals_pb2.LiteralCollection(literals=parts))
    assert kind == "scalar", kind
    return literals_pb2.Literal(scalar=binding.scalar)
