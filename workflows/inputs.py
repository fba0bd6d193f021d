"""Inputs that a workflow passes on are declared once, by the task or the workflow that it passes them to."""

from collections.abc import Callable, Collection
from inspect import Parameter, signature
from typing import Any, TypeVar

from flytekit.core.base_task import PythonTask
from flytekit.core.workflow import WorkflowBase

from tasks.settings import Given, VerifySettings

Graph = TypeVar("Graph", bound=Callable[..., object])
RUN: dict[str, object] = {"verify": Given[VerifySettings](), "store": "runs", "seed": 0, "overrides": ""}
"""Defaults of the inputs of a run."""


def inputs_of(
    source: PythonTask[Any] | WorkflowBase, without: Collection[str] = (), **defaults: object
) -> Callable[[Graph], Graph]:
    """Give a graph the inputs of a task or workflow in place of its ``**`` parameter.

    Args:
        source: the task or workflow.
        without: inputs of it that the graph does not take. Those that the graph has itself are left out too.
        defaults: default values of the inputs, by name; the others have the source's.
    """
    given = {name: one for name, one in source.python_interface.inputs_with_defaults.items() if name not in without}

    def decorate(graph: Graph) -> Graph:
        found = signature(graph)
        own = {name: one for name, one in found.parameters.items() if one.kind is not Parameter.VAR_KEYWORD}
        taken = {name: one for name, one in given.items() if name not in own}
        parameters = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in own.values()]
        for name, (kind, default) in taken.items():
            value = defaults.get(name, default)
            # An interface of flytekit has None where there is no default.
            value = Parameter.empty if value is None else value
            parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, default=value, annotation=kind))
        hints = {name: graph.__annotations__[name] for name in (*own, "return")}
        graph.__annotations__ = hints | {name: kind for name, (kind, _) in taken.items()}
        graph.__signature__ = found.replace(parameters=parameters)  # type: ignore[attr-defined]  # for flytekit
        return graph

    return decorate
