"""Drives a workflow from its serialised form, task by task, as Flyte's propeller does on a cluster.

Inputs and outputs of every task are ``inputs.pb`` and ``outputs.pb`` on S3. What starts a pod is given: a process or a
container. An attempt that ends without outputs is followed by another, as often as the task was registered with.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from flyteidl.core import errors_pb2, literals_pb2, tasks_pb2, workflow_pb2

from tests.platform.serialised import Serialised
from tests.s3 import S3

Literals = dict[str, literals_pb2.Literal]


@dataclass(frozen=True)
class Attempt:
    """A pod that is to be started."""

    node: str
    task: str
    """The name of the task's function."""
    stage: int | None
    number: int
    """From 0."""
    image: str
    arguments: list[str]
    environment: dict[str, str]
    checkpoint: str
    """The key below which Flyte keeps what the attempt tells the next one."""


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

    def run(self, workflow: str, inputs: Literals) -> Literals:
        """Runs a workflow; its outputs."""
        parameters = self.found.launch_plans[workflow].spec.default_inputs.parameters
        defaults = {name: one.default for name, one in parameters.items() if one.HasField("default")}
        made: dict[str, Literals] = {"": defaults | inputs}
        template = self.found.workflows[workflow].template
        waiting = list(template.nodes)
        while waiting:
            ready = [node for node in waiting if made.keys() >= set(node.upstream_node_ids)]
            assert ready, f"no node of {[node.id for node in waiting]} can start"
            for node in ready:
                bound = {one.var: _resolve(one.binding, made) for one in node.inputs}
                place = f"{workflow.rpartition('.')[2]}/{node.id}"
                made[node.id] = (
                    self._map(node, bound, place)
                    if node.HasField("array_node")
                    else self.task(node.task_node.reference_id.name, bound, place)
                )
                waiting.remove(node)
        return {one.var: _resolve(one.binding, made) for one in template.outputs}

    def _map(self, node: workflow_pb2.Node, bound: Literals, place: str) -> Literals:
        """A task over every element of what is not bound: each finds its own by its index."""
        array = node.array_node
        (over,) = bound.keys() - set(array.bound_inputs)
        made = [
            self.task(
                array.node.task_node.reference_id.name,
                bound,
                f"{place}/{index}",
                {"BATCH_JOB_ARRAY_INDEX_VAR_NAME": "FLYTE_K8S_ARRAY_INDEX", "FLYTE_K8S_ARRAY_INDEX": str(index)},
            )
            for index in range(len(bound[over].collection.literals))
        ]
        collected = literals_pb2.LiteralCollection(literals=[one["o0"] for one in made])
        return {"o0": literals_pb2.Literal(collection=collected)}

    def task(self, name: str, inputs: Literals, place: str, environment: dict[str, str] | None = None) -> Literals:
        """Runs a task, in as many attempts as it takes; its outputs."""
        template = self.found.tasks[name].template
        container: tasks_pb2.Container = template.container
        client, folder = self.s3.client(), f"flyte/{place}"
        body = literals_pb2.LiteralMap(literals=inputs).SerializeToString()
        client.put_object(Bucket=self.bucket, Key=f"{folder}/inputs.pb", Body=body)
        earlier = '""'
        for number in range(template.metadata.retries.retries + 1):
            out, checkpoint = f"{folder}/{number}/out", f"{folder}/{number}/checkpoint"
            filled = {
                "{{.input}}": f"s3://{self.bucket}/{folder}/inputs.pb",
                "{{.outputPrefix}}": f"s3://{self.bucket}/{out}",
                "{{.rawOutputDataPrefix}}": f"s3://{self.bucket}/{folder}/{number}/raw",
                "{{.checkpointOutputPrefix}}": f"s3://{self.bucket}/{checkpoint}",
                "{{.prevCheckpointPrefix}}": earlier,
            }
            attempt = Attempt(
                node=place,
                task=name.rpartition(".")[2],
                stage=inputs["stage"].scalar.primitive.integer if "stage" in inputs else None,
                number=number,
                image=container.image,
                arguments=[filled.get(argument, argument) for argument in container.args],
                environment={
                    **{one.key: one.value for one in container.env},
                    **(environment or {}),
                    "FLYTE_INTERNAL_EXECUTION_ID": "execution",
                    "FLYTE_ATTEMPT_NUMBER": str(number),
                },
                checkpoint=checkpoint,
            )
            self.attempts.append(attempt)
            printed = self.start(attempt)
            files = {key.rpartition("/")[2]: key for key in self.s3.keys(self.bucket) if key.startswith(f"{out}/")}
            if "error.pb" in files:
                error = errors_pb2.ErrorDocument.FromString(self._read(files["error.pb"])).error
                assert error.kind == errors_pb2.ContainerError.RECOVERABLE, f"{place}: {error.message}\n{printed}"
            elif "outputs.pb" in files:
                outputs = literals_pb2.LiteralMap.FromString(self._read(files["outputs.pb"]))
                return dict(outputs.literals)
            earlier = f"s3://{self.bucket}/{checkpoint}"
        raise AssertionError(f"{place}: no attempt gave outputs; the last printed\n{printed}")

    def _read(self, key: str) -> bytes:
        body: bytes = self.s3.client().get_object(Bucket=self.bucket, Key=key)["Body"].read()
        return body

    def tried(self, task: str) -> Iterator[Attempt]:
        """The attempts of a task."""
        return (one for one in self.attempts if one.task == task)


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
